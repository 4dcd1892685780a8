use std::task::{Context, Poll};

use backstop_core::error::{BoxError, Error};
use bytes::Bytes;
use http::{Request, Response};
use http_body::Body;
use tower_service::Service;

use crate::body::ClassifyBody;
use crate::config::Config;
use crate::future::{Attempt, ResponseFuture};

/// The service that [`ClassifyLayer`](crate::ClassifyLayer) makes. See the crate's page.
#[derive(Clone, Debug)]
pub struct ClassifyService<S> {
    inner: S,
    config: Config,
}

impl<S> ClassifyService<S> {
    pub(crate) const fn new(inner: S, config: Config) -> Self {
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

impl<S, B, RB> Service<Request<B>> for ClassifyService<S>
where
    S: Service<Request<B>, Response = Response<RB>>,
    S::Error: Into<BoxError>,
    RB: Body<Data = Bytes> + Unpin,
    RB::Error: Into<BoxError>,
{
    type Response = Response<ClassifyBody<RB>>;
    type Error = Error;
    type Future = ResponseFuture<S::Future, RB>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Error>> {
        self.inner.poll_ready(cx).map_err(Error::from_inner)
    }

    fn call(&mut self, request: Request<B>) -> ResponseFuture<S::Future, RB> {
        let attempt = Attempt::of(&request, self.config.clone());
        ResponseFuture::new(self.inner.call(request), attempt)
    }
}
