use std::fmt;
use std::sync::Arc;
use std::task::{Context, Poll};

use backstop_core::error::{BoxError, Error};
use bytes::Bytes;
use http::{Request, Response};
use http_body::Body;
use tower_service::Service;

use crate::attempt::body::AttemptBody;
use crate::attempt::config::Config;
use crate::attempt::future::ResponseFuture;
use crate::ledger::{Ledger, NoLedger};

/// The service that [`AttemptLayer`](crate::AttemptLayer) makes. See the crate's page.
pub struct AttemptService<S, L = NoLedger> {
    inner: S,
    config: Arc<Config<L>>,
}

impl<S, L> AttemptService<S, L> {
    pub(crate) const fn new(inner: S, config: Arc<Config<L>>) -> Self {
        Self { inner, config }
    }

    /// The inner service.
    pub const fn get_ref(&self) -> &S {
        &self.inner
    }

    /// The inner service.
    pub const fn get_mut(&mut self) -> &mut S {
        &mut self.inner
    }

    /// The inner service, without the layer.
    pub fn into_inner(self) -> S {
        self.inner
    }
}

impl<S: Clone, L> Clone for AttemptService<S, L> {
    fn clone(&self) -> Self {
        let Self { inner, config } = self;
        Self { inner: inner.clone(), config: Arc::clone(config) }
    }
}

impl<S: fmt::Debug, L: fmt::Debug> fmt::Debug for AttemptService<S, L> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { inner, config } = self;
        f.debug_struct("AttemptService").field("inner", inner).field("config", config).finish()
    }
}

impl<S, B, RB, L> Service<Request<B>> for AttemptService<S, L>
where
    L: Ledger,
    S: Service<Request<B>, Response = Response<RB>> + Clone,
    S::Error: Into<BoxError>,
    B: Body + 'static,
    RB: Body<Data = Bytes>,
    RB::Error: Into<BoxError>,
{
    type Response = Response<AttemptBody<RB, L>>;
    type Error = Error;
    type Future = ResponseFuture<S, B, L>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Error>> {
        // Where the service is not ready, nothing leaves: that is no attempt.
        self.inner.poll_ready(cx).map_err(Error::from_inner)
    }

    fn call(&mut self, request: Request<B>) -> ResponseFuture<S, B, L> {
        ResponseFuture::new(&mut self.inner, &self.config, request)
    }
}
