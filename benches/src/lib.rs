//! What the benchmarks have in common: a provider that does nothing, a request, and a peer.

pub mod turns;

use std::convert::Infallible;
use std::future::{Ready, ready};
use std::hint::black_box;
use std::task::{Context, Poll};

use backstop_backoff::BackoffLayer;
use backstop_classify::{ClassifyLayer, Timeouts};
use backstop_core::{Hold, RequestBody};
use bytes::Bytes;
use http::{HeaderValue, Request, Response};
use http_body_util::Full;
use tower::retry::Policy;
use tower::retry::backoff::{Backoff, ExponentialBackoff, ExponentialBackoffMaker, MakeBackoff};
use tower::util::rng::HasherRng;
use tower::{Layer, Service};

/// What a [`Provider`] answers.
pub type Answer = Response<Full<Bytes>>;

/// Answers every request with the same good answer.
#[derive(Clone, Debug)]
pub struct Provider {
    answer: Bytes,
}

impl Provider {
    /// A provider.
    #[must_use]
    pub fn new() -> Self {
        let text = "x".repeat(800);
        let answer = format!(
            r#"{{"id":"c1","object":"chat.completion","model":"m-1","choices":[{{"index":0,"message":{{"role":"assistant","content":"{text}"}},"finish_reason":"stop"}}],"usage":{{"prompt_tokens":11,"completion_tokens":4}}}}"#
        );
        // Static, so that a clone of the service counts nothing.
        Self { answer: Bytes::from_static(answer.leak().as_bytes()) }
    }
}

impl<B> Service<Request<B>> for Provider {
    type Response = Answer;
    type Error = Infallible;
    type Future = Ready<Result<Self::Response, Infallible>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        drop(black_box(request));
        let mut response = Response::new(Full::new(self.answer.clone()));
        let headers = response.headers_mut();
        headers.insert("content-type", HeaderValue::from_static("application/json"));
        headers.insert("x-request-id", HeaderValue::from_static("req_1"));
        ready(Ok(response))
    }
}

/// What a user of `tower::retry` writes: retry on 5xx and errors, exponential backoff.
#[derive(Clone, Debug)]
pub struct RetryPolicy {
    retries: u32,
    backoff: ExponentialBackoff,
}

impl<B: Clone> Policy<Request<B>, Response<Full<Bytes>>, Infallible> for RetryPolicy {
    type Future = <ExponentialBackoff as Backoff>::Future;

    fn retry(
        &mut self,
        _: &mut Request<B>,
        result: &mut Result<Response<Full<Bytes>>, Infallible>,
    ) -> Option<Self::Future> {
        let failed = result.as_ref().map_or(true, |response| response.status().is_server_error());
        if !failed || self.retries == 0 {
            return None;
        }
        self.retries -= 1;
        Some(self.backoff.next_backoff())
    }

    fn clone_request(&mut self, request: &Request<B>) -> Option<Request<B>> {
        Some(request.clone())
    }
}

/// `tower::retry` with that policy over a [`Provider`].
#[must_use]
pub fn tower_retry() -> tower::retry::Retry<RetryPolicy, Provider> {
    let mut maker = ExponentialBackoffMaker::new(
        std::time::Duration::from_millis(500),
        std::time::Duration::from_secs(60),
        0.25,
        HasherRng::default(),
    )
    .expect("a backoff that makes sense");
    let policy = RetryPolicy { retries: 7, backoff: maker.make_backoff() };
    tower::retry::RetryLayer::new(policy).layer(Provider::new())
}

/// A BackoffLayer with nothing to do.
pub fn no_retry() -> BackoffLayer {
    BackoffLayer::builder().max_retries(0).build().expect("a layer")
}

/// A ClassifyLayer with nothing to do.
pub fn headers_only() -> ClassifyLayer {
    let builder = ClassifyLayer::builder().hold(Hold::Headers).timeouts(Timeouts::none());
    builder.build().expect("a layer")
}

/// A request as callers build one: a chat of 2 KiB, with six headers.
#[must_use]
pub fn request() -> Request<RequestBody> {
    let prompt = "Say which of these two answers is the better one, and why. ".repeat(31);
    let body = format!(
        r#"{{"model":"judge","temperature":1.0,"messages":[{{"role":"system","content":"You are fair."}},{{"role":"user","content":"{prompt}"}}]}}"#
    );
    let key = black_box("Bearer sk-0123456789").to_owned();
    Request::post("https://api.example.com/v1/chat/completions")
        .header("authorization", key)
        .header("content-type", "application/json")
        .header("accept", "application/json")
        .header("user-agent", "bench/1")
        .header("x-stainless-lang", "none")
        .header("x-trace", "abc")
        .body(RequestBody::from(body))
        .expect("a request")
}

impl Default for Provider {
    fn default() -> Self {
        Self::new()
    }
}
