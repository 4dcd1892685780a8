use std::sync::Arc;

use backstop_core::{Chain, Profile};
use tower_layer::Layer;

use crate::config::{Config, FallbackBuilder};
use crate::service::FallbackRouter;

/// Makes a service ask the profiles of a chain in their order. See the crate's page.
#[derive(Clone, Debug)]
#[must_use = "a layer does nothing until a service is put under it"]
pub struct FallbackRouterLayer {
    pub(crate) config: Arc<Config>,
}

impl FallbackRouterLayer {
    /// Asks the rungs of `chain` in their order, with the defaults.
    pub fn new(chain: Chain) -> Self {
        FallbackBuilder::new(chain).into_layer_unchecked()
    }

    /// Asks `profile` alone, as often as the guards of a BackoffLayer below allow.
    pub fn single(profile: impl Into<Arc<Profile>>) -> Self {
        Self::new(Chain::single(profile))
    }

    /// The chain of calls that have none of their own.
    #[must_use]
    pub fn chain(&self) -> &Chain {
        &self.config.chain
    }

    /// A builder with the defaults.
    pub fn builder(chain: Chain) -> FallbackBuilder {
        FallbackBuilder::new(chain)
    }
}

impl<S> Layer<S> for FallbackRouterLayer {
    type Service = FallbackRouter<S>;

    fn layer(&self, inner: S) -> FallbackRouter<S> {
        FallbackRouter::new(inner, Arc::clone(&self.config))
    }
}
