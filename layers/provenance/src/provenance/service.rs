use std::fmt;
use std::sync::Arc;
use std::task::{Context, Poll};

use backstop_core::RequestBody;
use backstop_core::error::{BoxError, Error};
use bytes::Bytes;
use http::{Request, Response};
use http_body::Body;
use tower_service::Service;

use crate::ledger::{Ledger, NoLedger};
use crate::provenance::body::ProvenanceBody;
use crate::provenance::config::Config;
use crate::provenance::future::ResponseFuture;

/// The service that [`ProvenanceLayer`](crate::ProvenanceLayer) makes. See the crate's page.
pub struct ProvenanceService<S, L = NoLedger> {
    inner: S,
    config: Arc<Config<L>>,
    /// An error of the inner `poll_ready`: the next call fails with it, on the record.
    unready: Option<Error>,
}

impl<S, L> ProvenanceService<S, L> {
    pub(crate) const fn new(inner: S, config: Arc<Config<L>>) -> Self {
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
impl<S: Clone, L> Clone for ProvenanceService<S, L> {
    fn clone(&self) -> Self {
        let Self { inner, config, unready: _ } = self;
        Self { inner: inner.clone(), config: Arc::clone(config), unready: None }
    }
}

impl<S: fmt::Debug, L: fmt::Debug> fmt::Debug for ProvenanceService<S, L> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { inner, config, unready } = self;
        f.debug_struct("ProvenanceService")
            .field("inner", inner)
            .field("config", config)
            .field("unready", unready)
            .finish()
    }
}

impl<S, B, RB, L> Service<Request<B>> for ProvenanceService<S, L>
where
    L: Ledger,
    S: Service<Request<RequestBody>, Response = Response<RB>> + Clone,
    S::Error: Into<BoxError>,
    B: Body<Data = Bytes> + Unpin + 'static,
    B::Error: Into<BoxError>,
    RB: Body<Data = Bytes>,
    RB::Error: Into<BoxError>,
{
    type Response = Response<ProvenanceBody<RB, L>>;
    type Error = Error;
    type Future = ResponseFuture<S, B, L>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Error>> {
        if self.unready.is_some() {
            return Poll::Ready(Ok(()));
        }
        match self.inner.poll_ready(cx) {
            Poll::Ready(Err(error)) => {
                // A failure like any other: the call will meet it, where it is recorded.
                self.unready = Some(Error::from_inner(error));
                Poll::Ready(Ok(()))
            }
            Poll::Ready(Ok(())) => Poll::Ready(Ok(())),
            Poll::Pending => Poll::Pending,
        }
    }

    fn call(&mut self, request: Request<B>) -> ResponseFuture<S, B, L> {
        ResponseFuture::new(&mut self.inner, &self.config, request, &mut self.unready)
    }
}
