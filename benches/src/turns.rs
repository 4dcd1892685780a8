//! Stacks that take turns.

use std::future::Future;
use std::hint::black_box;
use std::io::Write;
use std::task::{Context, Waker};
use std::time::Duration;

use backstop_core::RequestBody;
use http::Request;
use tower::Service;

/// One turn of a stack: its time for a call, in nanoseconds.
pub type Turn<'a> = Box<dyn FnMut() -> f64 + 'a>;

/// How long a comparison takes.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct Length {
    /// How often each stack has its turn.
    pub rounds: usize,
    /// How many calls are in a turn.
    pub calls: u32,
}

impl Length {
    /// 300 rounds of 2 000 calls; one call where `cargo test` only wants to see that a benchmark runs.
    #[must_use]
    pub fn of_this_run() -> Self {
        match std::env::args().any(|arg| arg == "--bench") {
            true => Self { rounds: 300, calls: 2_000 },
            false => Self { rounds: 1, calls: 1 },
        }
    }
}

/// Lets `stacks` take turns, so that a machine whose speed drifts hits all of them alike, and prints for
/// each the 10th percentile of its turns, beside the first of them and, as a ratio, the second.
///
/// # Errors
/// Whatever standard output says.
pub fn compare(
    what: &str,
    length: Length,
    mut stacks: Vec<(&str, Turn<'_>)>,
) -> std::io::Result<()> {
    let mut times = vec![Vec::with_capacity(length.rounds); stacks.len()];
    for round in 0..length.rounds {
        // Another one begins each time, so that none has always the same one before it.
        for place in 0..stacks.len() {
            let of = (round + place) % stacks.len();
            times[of].push(stacks[of].1());
        }
    }
    let quiet: Vec<f64> = times.into_iter().map(quiet).collect();
    let (first, second) = (quiet[0], quiet[1]);
    let (bare, peer) = (stacks[0].0, stacks[1].0);
    let mut out = std::io::stdout().lock();
    writeln!(out, "\n{what}: the 10th percentile of {} rounds", length.rounds)?;
    for ((name, _), time) in stacks.iter().zip(&quiet) {
        let (over, ratio) = (time - first, time / second);
        writeln!(out, "{name:40} {time:8.1} ns  {over:+7.1} over {bare}  {ratio:5.2} x {peer}")?;
    }
    Ok(())
}

/// The turns of `service`, whose answers are all ready at once: no runtime is needed, and none is measured.
pub fn turn<'a, S>(
    mut service: S,
    length: Length,
    request: &'a dyn Fn() -> Request<RequestBody>,
) -> Turn<'a>
where
    S: Service<Request<RequestBody>> + 'a,
{
    Box::new(move || {
        let took = timed(|| {
            for _ in 0..length.calls {
                black_box(call(&mut service, request()));
            }
        });
        took.as_secs_f64() * 1e9 / f64::from(length.calls)
    })
}

/// One call, and whether it was ready at once.
pub fn call<S: Service<Request<RequestBody>>>(
    service: &mut S,
    request: Request<RequestBody>,
) -> bool {
    let mut cx = Context::from_waker(Waker::noop());
    let call = std::pin::pin!(service.call(request));
    call.poll(&mut cx).is_ready()
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
