use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use backstop_core::Verdict;
use http::{HeaderName, HeaderValue, Response};
use pin_project_lite::pin_project;
use tower_service::Service;

/// Tells SDKs above that a failure was retried enough: it carries `x-should-retry: false`, which the official
/// OpenAI and Anthropic SDKs obey (openai/openai-python src/openai/_base_client.py `_should_retry`).
///
/// The outermost piece of a [`Stack`](super::Stack).
#[derive(Clone, Debug)]
pub struct LastWord<S> {
    inner: S,
}

impl<S> LastWord<S> {
    pub(super) const fn new(inner: S) -> Self {
        Self { inner }
    }

    /// The stack below.
    pub const fn get_ref(&self) -> &S {
        &self.inner
    }

    /// The stack below.
    pub fn into_inner(self) -> S {
        self.inner
    }
}

impl<S, R, RB> Service<R> for LastWord<S>
where
    S: Service<R, Response = Response<RB>>,
{
    type Response = Response<RB>;
    type Error = S::Error;
    type Future = LastWordFuture<S::Future>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.inner.poll_ready(cx)
    }

    fn call(&mut self, request: R) -> LastWordFuture<S::Future> {
        LastWordFuture { call: self.inner.call(request) }
    }
}

pin_project! {
    /// The future of a [`LastWord`]. Dropping it cancels the call.
    #[derive(Debug)]
    pub struct LastWordFuture<F> {
        #[pin]
        call: F,
    }
}

impl<F, RB, E> Future for LastWordFuture<F>
where
    F: Future<Output = Result<Response<RB>, E>>,
{
    type Output = F::Output;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<F::Output> {
        let mut result = ready!(self.project().call.poll(cx));
        if let Ok(response) = &mut result
            && !Verdict::is_good(response)
        {
            response
                .headers_mut()
                .insert(X_SHOULD_RETRY.clone(), HeaderValue::from_static("false"));
        }
        Poll::Ready(result)
    }
}

static X_SHOULD_RETRY: HeaderName = HeaderName::from_static("x-should-retry");
