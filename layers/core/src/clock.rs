use std::time::{Instant, SystemTime};

/// A wall clock that runs on monotonic time: one reading of both clocks, and from there the
/// monotonic one alone.
///
/// Hints that are dates are measured against it. It never jumps, and under a paused tokio clock it
/// stands still with it, so that tests of dated hints are exact. It follows the system's clock only
/// as well as at its start; make a new one to set it again.
#[derive(Clone, Copy, Debug)]
pub struct WallClock {
    wall: SystemTime,
    monotonic: Instant,
}

impl WallClock {
    /// A clock that reads `wall` at the moment `monotonic`.
    #[must_use]
    pub const fn new(wall: SystemTime, monotonic: Instant) -> Self {
        Self { wall, monotonic }
    }

    /// The wall time at the moment `now`; before the start, the start's.
    #[must_use]
    pub fn at(&self, now: Instant) -> SystemTime {
        let elapsed = now.saturating_duration_since(self.monotonic);
        self.wall.checked_add(elapsed).unwrap_or(self.wall)
    }
}
