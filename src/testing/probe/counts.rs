//! What a readiness probe counts.

use std::{
    fmt,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
};

use super::Readiness;

/// Reads the counters of a [`ReadinessProbe`](super::ReadinessProbe) and all its clones. Clones read the same counters.
#[derive(Clone)]
pub struct Probe(pub(super) Arc<Counts>);

pub(super) struct Counts {
    script: Vec<Readiness>,
    usual: Readiness,
    reservations: AtomicUsize,
    pub(super) polls: AtomicUsize,
    pub(super) pendings: AtomicUsize,
    pub(super) readies: AtomicUsize,
    pub(super) readiness_errors: AtomicUsize,
    pub(super) calls: AtomicUsize,
    pub(super) clones: AtomicUsize,
    pub(super) drops: AtomicUsize,
    pub(super) unused_permits: AtomicUsize,
    pub(super) permits: Gauge,
    pub(super) flights: Gauge,
    pub(super) cancelled: AtomicUsize,
}

/// Something that goes up and down, and the highest it ever was.
#[derive(Debug, Default)]
pub(super) struct Gauge {
    live: AtomicUsize,
    max: AtomicUsize,
}

impl Probe {
    /// How often `poll_ready` was called.
    #[must_use]
    pub fn polls(&self) -> usize {
        load(&self.0.polls)
    }

    /// How many of these polls were `Pending`.
    #[must_use]
    pub fn pendings(&self) -> usize {
        load(&self.0.pendings)
    }

    /// How many of these polls were `Ready` without an error.
    #[must_use]
    pub fn readies(&self) -> usize {
        load(&self.0.readies)
    }

    /// How many of these polls failed, scripted or from the service.
    #[must_use]
    pub fn readiness_errors(&self) -> usize {
        load(&self.0.readiness_errors)
    }

    /// How often `call` was called, those that panicked included.
    #[must_use]
    pub fn calls(&self) -> usize {
        load(&self.0.calls)
    }

    /// How often the service was cloned.
    #[must_use]
    pub fn clones(&self) -> usize {
        load(&self.0.clones)
    }

    /// How many instances were dropped: the original and its clones.
    #[must_use]
    pub fn drops(&self) -> usize {
        load(&self.0.drops)
    }

    /// How many instances there are. 0 once everything is gone; more means that something leaked.
    #[must_use]
    pub fn live_instances(&self) -> usize {
        (1 + self.clones()).saturating_sub(self.drops())
    }

    /// How many permits are held now: instances that were `Ready` and have not been called since.
    #[must_use]
    pub fn live_permits(&self) -> usize {
        load(&self.0.permits.live)
    }

    /// The most permits that were ever held at once.
    #[must_use]
    pub fn max_live_permits(&self) -> usize {
        load(&self.0.permits.max)
    }

    /// How many permits went back without a call.
    #[must_use]
    pub fn unused_permits(&self) -> usize {
        load(&self.0.unused_permits)
    }

    /// How many calls are under way: their futures are alive and have no answer.
    #[must_use]
    pub fn in_flight(&self) -> usize {
        load(&self.0.flights.live)
    }

    /// The most calls that were ever under way at once.
    #[must_use]
    pub fn max_in_flight(&self) -> usize {
        load(&self.0.flights.max)
    }

    /// How many calls' futures were dropped before their answer.
    #[must_use]
    pub fn cancelled(&self) -> usize {
        load(&self.0.cancelled)
    }
}

impl fmt::Debug for Probe {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Probe")
            .field("polls", &self.polls())
            .field("pendings", &self.pendings())
            .field("readies", &self.readies())
            .field("readiness_errors", &self.readiness_errors())
            .field("calls", &self.calls())
            .field("live_instances", &self.live_instances())
            .field("live_permits", &self.live_permits())
            .field("max_live_permits", &self.max_live_permits())
            .field("unused_permits", &self.unused_permits())
            .field("in_flight", &self.in_flight())
            .field("cancelled", &self.cancelled())
            .finish_non_exhaustive()
    }
}

impl Counts {
    pub(super) fn new(script: Vec<Readiness>, usual: Readiness) -> Self {
        Self {
            script,
            usual,
            reservations: AtomicUsize::new(0),
            polls: AtomicUsize::new(0),
            pendings: AtomicUsize::new(0),
            readies: AtomicUsize::new(0),
            readiness_errors: AtomicUsize::new(0),
            calls: AtomicUsize::new(0),
            clones: AtomicUsize::new(0),
            drops: AtomicUsize::new(0),
            unused_permits: AtomicUsize::new(0),
            permits: Gauge::default(),
            flights: Gauge::default(),
            cancelled: AtomicUsize::new(0),
        }
    }

    pub(super) fn reserve(&self) -> Readiness {
        let n = add(&self.reservations);
        self.script.get(n).unwrap_or(&self.usual).clone()
    }
}

impl Gauge {
    pub(super) fn up(&self) {
        let live = add(&self.live) + 1;
        self.max.fetch_max(live, Ordering::Relaxed);
    }

    pub(super) fn down(&self) {
        self.live.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Adds one; the value before.
pub(super) fn add(counter: &AtomicUsize) -> usize {
    counter.fetch_add(1, Ordering::Relaxed)
}

fn load(counter: &AtomicUsize) -> usize {
    counter.load(Ordering::Relaxed)
}
