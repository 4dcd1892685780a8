use std::sync::Arc;

use tower_layer::Layer;

use crate::ledger::{Ledger, NoLedger};
use crate::provenance::config::{Config, ProvenanceBuilder};
use crate::provenance::service::ProvenanceService;

/// Makes a service tell who answered each call, and keep a record of it. See the crate's page.
#[derive(Clone, Debug)]
#[must_use = "a layer does nothing until a service is put under it"]
pub struct ProvenanceLayer<L = NoLedger> {
    pub(crate) config: Arc<Config<L>>,
}

impl ProvenanceLayer {
    /// The defaults: no record is kept, and the response tells ([`Provenance::of`]).
    ///
    /// [`Provenance::of`]: crate::Provenance::of
    pub fn new() -> Self {
        ProvenanceBuilder::new().into_layer_unchecked()
    }

    /// A builder with the defaults.
    pub fn builder() -> ProvenanceBuilder {
        ProvenanceBuilder::new()
    }
}

impl<L: Ledger> ProvenanceLayer<L> {
    /// The defaults, and records in `ledger`.
    pub fn recording(ledger: L) -> Self {
        ProvenanceBuilder::new().ledger(ledger).into_layer_unchecked()
    }

    /// How many calls went on without a record, over all clones of this layer and its services.
    #[must_use]
    pub fn losses(&self) -> u64 {
        self.config.keeper.losses()
    }
}

impl Default for ProvenanceLayer {
    fn default() -> Self {
        Self::new()
    }
}

impl<L: Ledger, S> Layer<S> for ProvenanceLayer<L> {
    type Service = ProvenanceService<S, L>;

    fn layer(&self, inner: S) -> ProvenanceService<S, L> {
        ProvenanceService::new(inner, Arc::clone(&self.config))
    }
}
