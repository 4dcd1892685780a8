use std::sync::Arc;

use tower_layer::Layer;

use crate::attempt::config::{AttemptBuilder, Config};
use crate::attempt::service::AttemptService;
use crate::ledger::{Ledger, NoLedger};

/// Makes a service keep a record of each attempt: below what repeats calls, above what reads answers.
/// See the crate's page.
#[derive(Clone, Debug)]
#[must_use = "a layer does nothing until a service is put under it"]
pub struct AttemptLayer<L = NoLedger> {
    pub(crate) config: Arc<Config<L>>,
}

impl AttemptLayer {
    /// The defaults: no record is kept; attempts are counted and traced.
    pub fn new() -> Self {
        AttemptBuilder::new().into_layer_unchecked()
    }

    /// A builder with the defaults.
    pub fn builder() -> AttemptBuilder {
        AttemptBuilder::new()
    }
}

impl<L: Ledger> AttemptLayer<L> {
    /// The defaults, and records in `ledger`.
    pub fn recording(ledger: L) -> Self {
        AttemptBuilder::new().ledger(ledger).into_layer_unchecked()
    }

    /// How many attempts went on without a record, over all clones of this layer and its services.
    #[must_use]
    pub fn losses(&self) -> u64 {
        self.config.keeper.losses()
    }
}

impl Default for AttemptLayer {
    fn default() -> Self {
        Self::new()
    }
}

impl<L: Ledger, S> Layer<S> for AttemptLayer<L> {
    type Service = AttemptService<S, L>;

    fn layer(&self, inner: S) -> AttemptService<S, L> {
        AttemptService::new(inner, Arc::clone(&self.config))
    }
}
