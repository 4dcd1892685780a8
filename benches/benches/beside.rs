//! What a layer adds to a call that succeeds at once, beside `tower::retry`, in turns.
//!
//! `cargo bench --bench beside`. A machine's speed drifts, and a benchmark that measures one thing after the
//! other measures the drift as well. Here the stacks take turns, 2 000 calls each, for 300 rounds, so that
//! it hits all of them alike; the ratios can be trusted where the times cannot.

use std::future::Future;
use std::hint::black_box;
use std::io::Write;
use std::pin::Pin;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use backstop_backoff::BackoffLayer;
use backstop_benches::{Provider, headers_only, no_retry, request, tower_retry};
use backstop_core::RequestBody;
use bytes::Bytes;
use http::Request;
use http_body::Body;
use tower::{Layer, Service};

fn main() -> std::io::Result<()> {
    // `cargo test` runs every benchmark once, to see that it runs.
    let is_test = !std::env::args().any(|arg| arg == "--bench");
    let (rounds, calls) = if is_test { (1, 1) } else { (300, 2_000) };
    compare("a request just built", rounds, calls, &request)?;
    let template = request();
    compare("a cloned request, its header values shared", rounds, calls, &|| template.clone())
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

/// One turn of a stack: its time for a call.
type Turn<'a> = Box<dyn FnMut() -> f64 + 'a>;

fn compare(
    what: &str,
    rounds: usize,
    calls: u32,
    request: &dyn Fn() -> Request<RequestBody>,
) -> std::io::Result<()> {
    let mut stacks: Vec<(&str, Turn<'_>)> = vec![
        ("bare", turn(Provider::new(), calls, request)),
        ("tower-retry", turn(tower_retry(), calls, request)),
        ("backoff", turn(BackoffLayer::new().layer(Provider::new()), calls, request)),
        ("least that a layer can do", turn(Least(Provider::new()), calls, request)),
        ("backoff, max_retries = 0", turn(no_retry().layer(Provider::new()), calls, request)),
        ("classify, hold = headers", turn(headers_only().layer(Provider::new()), calls, request)),
    ];
    let mut times = vec![Vec::with_capacity(rounds); stacks.len()];
    for round in 0..rounds {
        // Another one begins each time, so that none has always the same one before it.
        for place in 0..stacks.len() {
            let of = (round + place) % stacks.len();
            times[of].push(stacks[of].1());
        }
    }
    let quiet: Vec<f64> = times.into_iter().map(quiet).collect();
    let (bare, tower) = (quiet[0], quiet[1]);
    let mut out = std::io::stdout().lock();
    writeln!(out, "\n{what}: the 10th percentile of {rounds} rounds")?;
    for ((name, _), time) in stacks.iter().zip(&quiet) {
        let (over, ratio) = (time - bare, time / tower);
        writeln!(out, "{name:28} {time:8.1} ns  {over:+7.1} over bare  {ratio:5.2} x tower-retry")?;
    }
    Ok(())
}

fn turn<'a, S>(
    mut service: S,
    calls: u32,
    request: &'a dyn Fn() -> Request<RequestBody>,
) -> Turn<'a>
where
    S: Service<Request<RequestBody>> + 'a,
{
    Box::new(move || {
        let mut cx = Context::from_waker(Waker::noop());
        let took = timed(|| {
            for _ in 0..calls {
                let call = std::pin::pin!(service.call(request()));
                black_box(call.poll(&mut cx).is_ready());
            }
        });
        took.as_secs_f64() * 1e9 / f64::from(calls)
    })
}

#[expect(clippy::disallowed_methods, reason = "a benchmark reads the real clock")]
fn timed(run: impl FnOnce()) -> Duration {
    let start = std::time::Instant::now();
    run();
    start.elapsed()
}

/// The 10th percentile: other work on the machine adds to a time, and takes nothing from it.
fn quiet(mut times: Vec<f64>) -> f64 {
    times.sort_by(f64::total_cmp);
    times[times.len() / 10]
}
