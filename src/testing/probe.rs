//! A probe that panics when a service is called without having been ready, and counts how readiness is treated.

use std::{
    fmt,
    future::Future,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, ready},
};

use pin_project_lite::pin_project;
use tower_service::Service;

pub use self::{counts::Probe, readiness::Readiness};
use self::{
    counts::{Counts, add},
    readiness::Progress,
};
use super::error::BoxError;

mod counts;
mod readiness;

/// Wraps any service and holds its caller to `tower`'s contract.
///
/// - [`call`](Service::call) panics unless **this very instance** answered `Ready` since its last call. A clone is never
///   ready, whatever its original was: a layer that clones the service in `call` and calls the clone is found out.
/// - `Ready` takes a *permit* (what a concurrency limit or a connection pool would reserve); the call or the drop of
///   the instance gives it back. Holding one over a wait shows as [`live_permits`](Probe::live_permits) during it.
/// - Readiness can be scripted: pending for some polls or some time, failing, never.
///
/// The service's own readiness and answers stay as they are. Errors are boxed, since scripted readiness can fail.
///
/// Let every layer make **three** attempts over it: a layer that is right once may still call an unready service on its
/// second try.
///
/// ```should_panic
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() {
/// use backstop::testing::{Outcome, ReadinessProbe, ScriptedBody, ScriptedService};
/// use tower_service::Service;
///
/// let mut service = ReadinessProbe::new(ScriptedService::new([Outcome::status(200)]));
/// // Not polled for readiness: panics.
/// let _ = service.call(http::Request::new(ScriptedBody::empty())).await;
/// # }
/// ```
#[derive(Debug)]
#[must_use]
pub struct ReadinessProbe<S> {
    inner: S,
    slot: Slot,
}

/// One instance's standing, apart from the service so that its drop can be counted.
#[derive(Debug)]
struct Slot {
    state: State,
    probe: Probe,
}

/// Where one instance stands between two calls.
#[derive(Debug)]
enum State {
    /// Nobody has asked yet.
    Idle,
    /// Asked, and on the way through its share of the script.
    Asked(Progress),
    /// `Ready` was answered; a permit is held.
    Ready,
}

pin_project! {
    /// The future of a [`ReadinessProbe`]: the service's own, counted while it is alive.
    #[must_use = "futures do nothing unless polled"]
    pub struct ProbeFuture<F> {
        #[pin]
        inner: F,
        flight: Flight,
    }
}

/// One call between its start and its answer.
#[derive(Debug)]
struct Flight {
    probe: Probe,
    landed: bool,
}

// === impl ReadinessProbe ===

impl<S> ReadinessProbe<S> {
    /// Watches `inner`, which is ready whenever it says so.
    pub fn new(inner: S) -> Self {
        Self::with(inner, Vec::new(), Readiness::now())
    }

    /// The nth reservation, over all clones, goes as the nth entry says; those after the last entry are as ready as the
    /// service itself. An instance begins a reservation with its first `poll_ready` after a call (or after a failure).
    ///
    /// To be called before the probe is cloned or its counters are read; it starts them afresh.
    pub fn readiness(self, script: impl IntoIterator<Item = Readiness>) -> Self {
        Self::with(self.inner, script.into_iter().collect(), Readiness::now())
    }

    /// Every reservation takes `pendings` polls that are `Pending` (each wakes the task) before one that is `Ready`.
    ///
    /// To be called before the probe is cloned or its counters are read; it starts them afresh.
    pub fn ready_after(self, pendings: usize) -> Self {
        Self::with(self.inner, Vec::new(), Readiness::pending(pendings))
    }

    /// Reservation `n` (from 0, over all clones) fails with a [`ScriptedError`](super::ScriptedError) of this text; all
    /// others are as ready as the service itself.
    ///
    /// To be called before the probe is cloned or its counters are read; it starts them afresh.
    pub fn fail_readiness(self, n: usize, message: impl Into<String>) -> Self {
        let mut script = vec![Readiness::now(); n];
        script.push(Readiness::error(message));
        self.readiness(script)
    }

    /// A handle that reads the counters.
    #[must_use]
    pub fn probe(&self) -> Probe {
        self.slot.probe.clone()
    }

    /// The service that is watched.
    pub fn get_ref(&self) -> &S {
        &self.inner
    }

    fn with(inner: S, script: Vec<Readiness>, usual: Readiness) -> Self {
        Self {
            inner,
            slot: Slot { state: State::Idle, probe: Probe(Arc::new(Counts::new(script, usual))) },
        }
    }
}

impl<S: Clone> Clone for ReadinessProbe<S> {
    fn clone(&self) -> Self {
        let Self { inner, slot: Slot { state: _, probe } } = self;
        add(&probe.0.clones);
        Self { inner: inner.clone(), slot: Slot { state: State::Idle, probe: probe.clone() } }
    }
}

impl<S, R> Service<R> for ReadinessProbe<S>
where
    S: Service<R>,
    S::Error: Into<BoxError>,
{
    type Response = S::Response;
    type Error = BoxError;
    type Future = ProbeFuture<S::Future>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        let Self { inner, slot } = self;
        add(&slot.probe.0.polls);
        if let State::Idle = slot.state {
            slot.state = State::Asked(slot.probe.0.reserve().into_progress());
        }
        let result = match &mut slot.state {
            State::Asked(progress) => progress.poll(inner, cx),
            // Asked again while ready: the contract allows it, and the permit that is held stays the one.
            State::Idle | State::Ready => inner.poll_ready(cx).map_err(Into::into),
        };
        slot.note(&result);
        result
    }

    #[track_caller]
    fn call(&mut self, request: R) -> Self::Future {
        let flight = self.slot.call();
        ProbeFuture { inner: self.inner.call(request), flight }
    }
}

// === impl Slot ===

impl Slot {
    fn note(&mut self, result: &Poll<Result<(), BoxError>>) {
        let counts = &self.probe.0;
        match result {
            Poll::Pending => {
                add(&counts.pendings);
            }
            Poll::Ready(Ok(())) => {
                add(&counts.readies);
                if !matches!(self.state, State::Ready) {
                    counts.permits.up();
                    self.state = State::Ready;
                }
            }
            Poll::Ready(Err(_)) => {
                add(&counts.readiness_errors);
                self.release();
            }
        }
    }

    #[track_caller]
    fn call(&mut self) -> Flight {
        let n = add(&self.probe.0.calls);
        assert!(
            matches!(self.state, State::Ready),
            "ReadinessProbe: call {n} on an instance that is not ready: its own `poll_ready` has not returned `Ready` \
             since it was made, cloned or last called ({:?})",
            self.state,
        );
        self.probe.0.permits.down();
        self.state = State::Idle;
        Flight::start(self.probe.clone())
    }

    /// Back to `Idle`; a permit that was held goes back unused.
    fn release(&mut self) {
        if matches!(self.state, State::Ready) {
            self.probe.0.permits.down();
            add(&self.probe.0.unused_permits);
        }
        self.state = State::Idle;
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        self.release();
        add(&self.probe.0.drops);
    }
}

// === impl ProbeFuture ===

impl<F, T, E> Future for ProbeFuture<F>
where
    F: Future<Output = Result<T, E>>,
    E: Into<BoxError>,
{
    type Output = Result<T, BoxError>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let this = self.project();
        let result = ready!(this.inner.poll(cx));
        this.flight.land();
        Poll::Ready(result.map_err(Into::into))
    }
}

impl<F> fmt::Debug for ProbeFuture<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ProbeFuture").field("flight", &self.flight).finish_non_exhaustive()
    }
}

impl Flight {
    fn start(probe: Probe) -> Self {
        probe.0.flights.up();
        Self { probe, landed: false }
    }

    fn land(&mut self) {
        if !self.landed {
            self.landed = true;
            self.probe.0.flights.down();
        }
    }
}

impl Drop for Flight {
    fn drop(&mut self) {
        if !self.landed {
            add(&self.probe.0.cancelled);
            self.land();
        }
    }
}
