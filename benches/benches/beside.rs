//! What a layer adds to a call that succeeds at once, beside `tower::retry`, in turns.
//!
//! `cargo bench --bench beside`. A machine's speed drifts, and a benchmark that measures one thing after the
//! other measures the drift as well. Here the stacks take turns, 2 000 calls each, for 300 rounds, so that
//! it hits all of them alike; the ratios can be trusted where the times cannot.

use std::pin::Pin;
use std::task::{Context, Poll, Waker};

use backstop_backoff::BackoffLayer;
use backstop_benches::turns::{Length, Turn, compare, turn};
use backstop_benches::{Provider, headers_only, no_retry, request, tower_retry};
use backstop_core::RequestBody;
use bytes::Bytes;
use http::Request;
use http_body::Body;
use tower::{Layer, Service};

fn main() -> std::io::Result<()> {
    measure("a request just built", &request)?;
    let template = request();
    measure("a cloned request, its header values shared", &|| template.clone())
}

fn measure(what: &str, request: &dyn Fn() -> Request<RequestBody>) -> std::io::Result<()> {
    let length = Length::of_this_run();
    let stacks: Vec<(&str, Turn<'_>)> = vec![
        ("bare", turn(Provider::new(), length, request)),
        ("tower-retry", turn(tower_retry(), length, request)),
        ("backoff", turn(BackoffLayer::new().layer(Provider::new()), length, request)),
        ("least that a layer can do", turn(Least(Provider::new()), length, request)),
        ("backoff, max_retries = 0", turn(no_retry().layer(Provider::new()), length, request)),
        ("classify, hold = headers", turn(headers_only().layer(Provider::new()), length, request)),
    ];
    compare(what, length, stacks)
}

/// The least that a layer with the signature of `BackoffLayer` can do: takes the caller's body, whatever
/// its type, and calls the service below with a `RequestBody`. It has no future, no deadline and no error
/// of its own, all of which the contract asks for.
struct Least<S>(S);

impl<S, B> Service<Request<B>> for Least<S>
where
    S: Service<Request<RequestBody>>,
    B: Body<Data = Bytes> + Unpin,
{
    type Response = S::Response;
    type Error = S::Error;
    type Future = S::Future;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.0.poll_ready(cx)
    }

    fn call(&mut self, request: Request<B>) -> S::Future {
        let (head, mut body) = request.into_parts();
        let mut cx = Context::from_waker(Waker::noop());
        let body = match Pin::new(&mut body).poll_frame(&mut cx) {
            Poll::Ready(Some(Ok(frame))) => frame.into_data().unwrap_or_default().into(),
            _ => RequestBody::empty(),
        };
        self.0.call(Request::from_parts(head, body))
    }
}
