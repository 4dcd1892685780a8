//! What a call costs in allocations, beside tower's own retry.

use std::convert::Infallible;
use std::future::{Future, Ready, ready};
use std::hint::black_box;
use std::task::{Context, Poll, Waker};

use allocation_counter::AllocationInfo;
use backstop::classify::Timeouts;
use backstop::{BackoffLayer, ClassifyLayer, Hold, RequestBody};
use bytes::Bytes;
use http::{Request, Response};
use http_body_util::Full;
use tower::retry::Policy;
use tower::{Layer, Service};

/// Answers with nothing of its own to allocate.
#[derive(Clone)]
struct Provider;

impl<B> Service<Request<B>> for Provider {
    type Response = Response<Full<Bytes>>;
    type Error = Infallible;
    type Future = Ready<Result<Self::Response, Infallible>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        drop(black_box(request));
        ready(Ok(Response::new(Full::new(Bytes::from_static(b"{}")))))
    }
}

#[derive(Clone)]
struct RetryPolicy;

impl<B: Clone> Policy<Request<B>, Response<Full<Bytes>>, Infallible> for RetryPolicy {
    type Future = Ready<()>;

    fn retry(
        &mut self,
        _: &mut Request<B>,
        result: &mut Result<Response<Full<Bytes>>, Infallible>,
    ) -> Option<Ready<()>> {
        let failed = result.as_ref().map_or(true, |response| response.status().is_server_error());
        failed.then(|| ready(()))
    }

    fn clone_request(&mut self, request: &Request<B>) -> Option<Request<B>> {
        Some(request.clone())
    }
}

fn request() -> Request<RequestBody> {
    Request::post("https://api.example.com/v1/chat/completions")
        .header("authorization", "Bearer k")
        .header("content-type", "application/json")
        .header("x-trace", "abc")
        .body(RequestBody::from(vec![b' '; 4096]))
        .unwrap()
}

fn cost<S>(mut service: S) -> AllocationInfo
where
    S: Service<Request<RequestBody>>,
{
    let request = request();
    allocation_counter::measure(|| {
        let call = std::pin::pin!(service.call(request));
        let polled = call.poll(&mut Context::from_waker(Waker::noop()));
        assert!(polled.is_ready(), "everything is ready at once");
    })
}

#[test]
fn backoff_alone_allocates_no_more_than_towers_retry_for_a_success_at_once() {
    let towers = cost(tower::retry::RetryLayer::new(RetryPolicy).layer(Provider));
    let ours = cost(BackoffLayer::new().layer(Provider));
    assert!(towers.count_total > 0, "the measure measures");
    assert!(
        ours.count_total <= towers.count_total && ours.bytes_total <= towers.bytes_total,
        "ours {} ({} B), tower's {} ({} B)",
        ours.count_total,
        ours.bytes_total,
        towers.count_total,
        towers.bytes_total
    );
}

#[test]
fn a_layer_with_nothing_to_do_allocates_nothing() {
    let bare = cost(Provider).count_total;
    let no_retry = BackoffLayer::builder().max_retries(0).build().unwrap();
    let no_time =
        BackoffLayer::builder().max_retry_time(std::time::Duration::ZERO).build().unwrap();
    let no_hold =
        ClassifyLayer::builder().hold(Hold::Headers).timeouts(Timeouts::none()).build().unwrap();
    assert_eq!(cost(no_retry.layer(Provider)).count_total, bare);
    assert_eq!(cost(no_time.layer(Provider)).count_total, bare);
    assert_eq!(cost(no_hold.layer(Provider)).count_total, bare);
    assert_eq!(cost(no_retry.layer(no_hold.layer(Provider))).count_total, bare);
}
