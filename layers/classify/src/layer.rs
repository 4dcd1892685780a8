use tower_layer::Layer;

use crate::config::{ClassifyBuilder, Config};
use crate::service::ClassifyService;

/// Makes a service read answers far enough to be sure of them. See the crate's page.
#[derive(Clone, Debug)]
#[must_use = "a layer does nothing until a service is put under it"]
pub struct ClassifyLayer {
    pub(crate) config: Config,
}

impl ClassifyLayer {
    /// The defaults: dialects told from the path, streams held until their first content and other
    /// answers until they are complete.
    pub fn new() -> Self {
        ClassifyBuilder::new().into_layer_unchecked()
    }

    /// A builder with the defaults.
    pub fn builder() -> ClassifyBuilder {
        ClassifyBuilder::new()
    }
}

impl Default for ClassifyLayer {
    fn default() -> Self {
        Self::new()
    }
}

impl<S> Layer<S> for ClassifyLayer {
    type Service = ClassifyService<S>;

    fn layer(&self, inner: S) -> ClassifyService<S> {
        ClassifyService::new(inner, self.config.clone())
    }
}
