use std::sync::Arc;

use tower_layer::Layer;

use crate::config::{BackoffBuilder, Config};
use crate::service::Backoff;

/// Makes a service repeat calls that failed and may succeed next time. See the crate's page.
#[derive(Clone, Debug)]
#[must_use = "a layer does nothing until a service is put under it"]
pub struct BackoffLayer {
    pub(crate) config: Arc<Config>,
}

impl BackoffLayer {
    /// The defaults: 7 retries within 60 s of waiting, from 0.5 s doubling up to 60 s.
    pub fn new() -> Self {
        BackoffBuilder::new().into_layer_unchecked()
    }

    /// A builder with the defaults.
    pub fn builder() -> BackoffBuilder {
        BackoffBuilder::new()
    }

    /// A builder with a preset for unattended runs on Anthropic: 5 attempts, waits of 2, 4, 8 and 16 s,
    /// no bound on their sum.
    pub fn anthropic() -> BackoffBuilder {
        BackoffBuilder::anthropic()
    }

    /// A builder with a preset for unattended runs on Gemini's free tier, whose limits count minutes: 5
    /// attempts, waits of 15, 30, 60 and 60 s, no bound on their sum.
    pub fn gemini_free_tier() -> BackoffBuilder {
        BackoffBuilder::gemini_free_tier()
    }
}

impl Default for BackoffLayer {
    fn default() -> Self {
        Self::new()
    }
}

impl<S> Layer<S> for BackoffLayer {
    type Service = Backoff<S>;

    fn layer(&self, inner: S) -> Backoff<S> {
        Backoff::new(inner, Arc::clone(&self.config))
    }
}
