use std::fmt;
use std::sync::Arc;
use std::task::{Context, Poll};

use backstop_core::RequestBody;
use backstop_core::error::{BoxError, Error};
use bytes::Bytes;
use http::{Request, Response};
use http_body::Body;
use tower_service::Service;

use crate::config::Config;
use crate::future::ResponseFuture;

/// The service that [`FallbackRouterLayer`](crate::FallbackRouterLayer) makes. See the crate's page.
pub struct FallbackRouter<S> {
    inner: S,
    config: Arc<Config>,
    /// An error of the inner `poll_ready`: the next call meets it on its first rung.
    unready: Option<Error>,
}

impl<S> FallbackRouter<S> {
    pub(crate) const fn new(inner: S, config: Arc<Config>) -> Self {
        Self { inner, config, unready: None }
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

/// What `poll_ready` found belongs to the service that was polled: a clone has found nothing yet.
impl<S: Clone> Clone for FallbackRouter<S> {
    fn clone(&self) -> Self {
        let Self { inner, config, unready: _ } = self;
        Self { inner: inner.clone(), config: Arc::clone(config), unready: None }
    }
}

impl<S: fmt::Debug> fmt::Debug for FallbackRouter<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { inner, config, unready } = self;
        f.debug_struct("FallbackRouter")
            .field("inner", inner)
            .field("config", config)
            .field("unready", unready)
            .finish()
    }
}

impl<S, B, RB> Service<Request<B>> for FallbackRouter<S>
where
    S: Service<Request<RequestBody>, Response = Response<RB>> + Clone,
    S::Error: Into<BoxError>,
    B: Body<Data = Bytes> + Unpin + 'static,
    B::Error: Into<BoxError>,
    RB: Body,
{
    type Response = Response<RB>;
    type Error = Error;
    type Future = ResponseFuture<S, B, RB>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Error>> {
        if self.unready.is_some() {
            return Poll::Ready(Ok(()));
        }
        match self.inner.poll_ready(cx) {
            Poll::Ready(Err(error)) => {
                // A failure like any other: the next rung may do better.
                self.unready = Some(Error::from_inner(error));
                Poll::Ready(Ok(()))
            }
            ready => ready.map_err(Error::from_inner),
        }
    }

    fn call(&mut self, request: Request<B>) -> ResponseFuture<S, B, RB> {
        ResponseFuture::new(&mut self.inner, &self.config, request, &mut self.unready)
    }
}
