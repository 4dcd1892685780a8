//! What a layer adds to a call that succeeds at once, beside `tower::retry`, in one run.
//!
//! `cargo bench --bench layers`. Every stack gets the same inner service and the same request: a POST
//! of 2 KiB with six headers, answered by a ready 200 with 1 KiB of JSON. The inner service does
//! nothing, so that what differs is the layer.
//!
//! Two groups. In `call` every call has a request that was just built, as calls have; its building is
//! part of the time. In `call, cloned request` it is a clone of one request, whose header values are
//! shared already, so that the layers' own copy costs less, and the rest of them shows more.

use std::convert::Infallible;
use std::future::{Future, Ready, ready};
use std::hint::black_box;
use std::task::{Context, Poll, Waker};

use backstop_backoff::BackoffLayer;
use backstop_classify::{ClassifyLayer, Timeouts};
use backstop_core::{Hold, RequestBody};
use bytes::Bytes;
use criterion::{Criterion, criterion_group, criterion_main};
use http::{HeaderValue, Request, Response};
use http_body_util::Full;
use tower::retry::Policy;
use tower::retry::backoff::{Backoff, ExponentialBackoff, ExponentialBackoffMaker, MakeBackoff};
use tower::util::rng::HasherRng;
use tower::{Layer, Service};

/// Answers every request with the same good answer.
#[derive(Clone)]
struct Provider {
    answer: Bytes,
}

impl Provider {
    fn new() -> Self {
        let text = "x".repeat(800);
        let answer = format!(
            r#"{{"id":"c1","object":"chat.completion","model":"m-1","choices":[{{"index":0,"message":{{"role":"assistant","content":"{text}"}},"finish_reason":"stop"}}],"usage":{{"prompt_tokens":11,"completion_tokens":4}}}}"#
        );
        // Static, so that a clone of the service counts nothing.
        Self { answer: Bytes::from_static(answer.leak().as_bytes()) }
    }
}

impl<B> Service<Request<B>> for Provider {
    type Response = Response<Full<Bytes>>;
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
#[derive(Clone)]
struct RetryPolicy {
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

fn tower_retry() -> tower::retry::Retry<RetryPolicy, Provider> {
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

fn request() -> Request<RequestBody> {
    let key = black_box("Bearer sk-0123456789").to_owned();
    Request::post("https://api.example.com/v1/chat/completions")
        .header("authorization", key)
        .header("content-type", "application/json")
        .header("accept", "application/json")
        .header("user-agent", "bench/1")
        .header("x-stainless-lang", "none")
        .header("x-trace", "abc")
        .body(RequestBody::from(vec![b' '; 2048]))
        .expect("a request")
}

fn calls(c: &mut Criterion) {
    measure(c, "call", request);
    let template = request();
    measure(c, "call, cloned request", || template.clone());
}

fn measure(c: &mut Criterion, group: &str, request: impl Fn() -> Request<RequestBody>) {
    let mut cx = Context::from_waker(Waker::noop());
    let mut group = c.benchmark_group(group);
    macro_rules! stack {
        ($name:literal, $service:expr) => {
            let mut service = $service;
            group.bench_function($name, |b| {
                b.iter(|| {
                    // Everything is ready at once: no runtime is needed, and none is measured.
                    let call = std::pin::pin!(service.call(request()));
                    black_box(call.poll(&mut cx).is_ready())
                });
            });
        };
    }
    let no_retry = BackoffLayer::builder().max_retries(0).build().expect("a layer");
    let headers_only = ClassifyLayer::builder()
        .hold(Hold::Headers)
        .timeouts(Timeouts::none())
        .build()
        .expect("a layer");
    stack!("bare", Provider::new());
    stack!("tower-retry", tower_retry());
    stack!("backoff", BackoffLayer::new().layer(Provider::new()));
    stack!("backoff, max_retries = 0", no_retry.layer(Provider::new()));
    stack!("classify, hold = headers", headers_only.layer(Provider::new()));
    stack!("classify", ClassifyLayer::new().layer(Provider::new()));
    stack!(
        "backoff over classify, hold = headers",
        BackoffLayer::new().layer(headers_only.layer(Provider::new()))
    );
    stack!(
        "backoff over classify",
        BackoffLayer::new().layer(ClassifyLayer::new().layer(Provider::new()))
    );
    group.finish();
}

criterion_group!(layers, calls);
criterion_main!(layers);
