use std::sync::atomic::{AtomicU8, AtomicU32, AtomicU64, Ordering};
use std::time::Duration;

use crate::WaitReason;

/// How far a call is: what its layers have announced, and what of it really left.
pub(super) struct Progress {
    attempt: AtomicU32,
    rung: AtomicU32,
    waited_nanos: AtomicU64,
    last_wait_nanos: AtomicU64,
    last_reason: AtomicU8,
    /// The highest number that an attempt took.
    numbered: AtomicU32,
    /// The attempts that really left.
    sent: AtomicU32,
    /// What had been waited when the last of them left.
    sent_waited_nanos: AtomicU64,
}

impl Progress {
    pub(super) const fn new(attempt: u32) -> Self {
        Self {
            attempt: AtomicU32::new(attempt),
            rung: AtomicU32::new(0),
            waited_nanos: AtomicU64::new(0),
            last_wait_nanos: AtomicU64::new(0),
            last_reason: AtomicU8::new(NO_REASON),
            numbered: AtomicU32::new(0),
            sent: AtomicU32::new(0),
            sent_waited_nanos: AtomicU64::new(0),
        }
    }

    pub(super) fn attempt(&self) -> u32 {
        self.attempt.load(Ordering::Acquire)
    }

    pub(super) fn rung(&self) -> u32 {
        self.rung.load(Ordering::Acquire)
    }

    pub(super) fn set_rung(&self, rung: u32) {
        self.rung.store(rung, Ordering::Release);
    }

    pub(super) fn waited(&self) -> Duration {
        Duration::from_nanos(self.waited_nanos.load(Ordering::Acquire))
    }

    pub(super) fn begin_first(&self) {
        if self.attempt() == 0 {
            let _ = self.attempt.compare_exchange(0, 1, Ordering::AcqRel, Ordering::Relaxed);
        }
    }

    pub(super) fn last_wait(&self) -> Option<(Duration, WaitReason)> {
        let reason = usize::from(self.last_reason.load(Ordering::Acquire));
        let nanos = self.last_wait_nanos.load(Ordering::Acquire);
        Some((Duration::from_nanos(nanos), *WaitReason::ALL.get(reason)?))
    }

    pub(super) fn begin_next(&self, wait: Duration, reason: WaitReason) {
        let nanos = u64::try_from(wait.as_nanos()).unwrap_or(u64::MAX);
        let reason = WaitReason::ALL.iter().position(|one| *one == reason);
        let reason = reason.and_then(|at| u8::try_from(at).ok()).unwrap_or(NO_REASON);
        self.last_wait_nanos.store(nanos, Ordering::Release);
        self.last_reason.store(reason, Ordering::Release);
        let add = |sum: u64| Some(sum.saturating_add(nanos));
        let _ = self.waited_nanos.fetch_update(Ordering::AcqRel, Ordering::Acquire, add);
        let add = |n: u32| Some(n.saturating_add(1));
        let _ = self.attempt.fetch_update(Ordering::AcqRel, Ordering::Acquire, add);
    }

    pub(super) fn number_attempt(&self) -> (u32, Option<(Duration, WaitReason)>) {
        let announced = self.attempt().max(1);
        let next = |numbered: u32| Some(announced.max(numbered.saturating_add(1)));
        let before = self.numbered.fetch_update(Ordering::AcqRel, Ordering::Acquire, next);
        let before = before.unwrap_or_else(|numbered| numbered);
        let number = announced.max(before.saturating_add(1));
        if number > announced || self.attempt() == 0 {
            let _ = self.attempt.fetch_max(number, Ordering::AcqRel);
        }
        let is_announced = announced > before;
        (number, if is_announced { self.last_wait() } else { None })
    }

    pub(super) fn count_attempt(&self) {
        let waited = self.waited_nanos.load(Ordering::Acquire);
        self.sent_waited_nanos.store(waited, Ordering::Release);
        let add = |n: u32| Some(n.saturating_add(1));
        let _ = self.sent.fetch_update(Ordering::AcqRel, Ordering::Acquire, add);
    }

    /// Whether somebody counts the attempts that leave.
    fn is_counted(&self) -> bool {
        self.numbered.load(Ordering::Acquire) > 0
    }

    pub(super) fn attempts(&self) -> u32 {
        match self.is_counted() {
            true => self.sent.load(Ordering::Acquire),
            false => self.attempt(),
        }
    }

    pub(super) fn waited_through(&self) -> Duration {
        match self.is_counted() {
            true => Duration::from_nanos(self.sent_waited_nanos.load(Ordering::Acquire)),
            false => self.waited(),
        }
    }
}

const NO_REASON: u8 = u8::MAX;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::HintSource;

    const SECOND: Duration = Duration::from_secs(1);

    #[test]
    fn the_last_wait_is_told_with_every_reason() {
        let progress = Progress::new(0);
        assert_eq!(progress.last_wait(), None);
        for reason in WaitReason::ALL {
            progress.begin_next(SECOND, *reason);
            assert_eq!(progress.last_wait(), Some((SECOND, *reason)));
        }
        progress.begin_next(Duration::MAX, WaitReason::Hint(HintSource::Reset));
        assert!(progress.last_wait().is_some_and(|(wait, _)| wait > Duration::from_secs(1 << 33)));
    }

    #[test]
    fn an_attempt_that_was_announced_and_never_left_is_not_counted() {
        let progress = Progress::new(0);
        assert_eq!((progress.attempts(), progress.waited_through()), (0, Duration::ZERO));
        progress.begin_first();
        assert_eq!(progress.attempts(), 1, "nobody counts, so what is announced counts");
        assert_eq!(progress.number_attempt(), (1, None));
        assert_eq!(progress.attempts(), 0, "it has not left");
        progress.count_attempt();
        progress.begin_next(SECOND, WaitReason::Schedule);
        assert_eq!(progress.number_attempt(), (2, Some((SECOND, WaitReason::Schedule))));
        progress.count_attempt();
        progress.begin_next(SECOND * 2, WaitReason::Schedule);
        assert_eq!((progress.attempt(), progress.waited()), (3, SECOND * 3));
        assert_eq!((progress.attempts(), progress.waited_through()), (2, SECOND));
    }

    #[test]
    fn attempts_that_nobody_announced_have_numbers_of_their_own() {
        let progress = Progress::new(0);
        progress.begin_first();
        assert_eq!([1, 2].map(|_| progress.number_attempt()), [(1, None), (2, None)]);
        progress.begin_next(SECOND, WaitReason::Schedule);
        assert_eq!(progress.number_attempt(), (3, Some((SECOND, WaitReason::Schedule))));
        assert_eq!(progress.number_attempt(), (4, None));
    }
}
