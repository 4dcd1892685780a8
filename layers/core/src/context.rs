#![expect(
    clippy::disallowed_types,
    reason = "notes are taken when an attempt begins or fails, never while bytes pass, and no lock is held across a wait"
)]

use std::borrow::Cow;
use std::fmt;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use crate::{CallId, CallOptions, Chain, Labels, Original, WaitReason};

/// What the layers of one stack know about the call in common: the one request extension by which
/// they talk downwards.
///
/// The outermost of our layers inserts it once and all below share it; a layer alone inserts none
/// for a first attempt. Cloning shares it. A service below can read it to learn which attempt it
/// serves.
#[derive(Clone)]
pub struct CallContext {
    inner: Arc<Inner>,
}

struct Inner {
    options: CallOptions,
    id: OnceLock<CallId>,
    chain: OnceLock<Chain>,
    original: OnceLock<Original>,
    started: Option<Instant>,
    deadline: OnceLock<Instant>,
    attempt: AtomicU32,
    rung: AtomicU32,
    waited_nanos: AtomicU64,
    notes: Mutex<Notes>,
}

#[derive(Default)]
struct Notes {
    last_wait: Option<(Duration, WaitReason)>,
    decisions: Vec<Decision>,
    /// The highest number that an attempt took.
    numbered: u32,
    sent: Sent,
}

/// The attempts that really left.
#[derive(Clone, Copy, Default)]
struct Sent {
    attempts: u32,
    /// What had been waited when the last of them left.
    waited: Duration,
}

impl Notes {
    /// The attempts that left, if somebody counts them.
    fn counted(&self) -> Option<Sent> {
        (self.numbered > 0).then_some(self.sent)
    }
}

/// Something that was decided about a call without an attempt: a rung that was skipped, an answer that
/// was too long to be held.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Decision {
    /// When.
    pub at: Instant,
    /// What, in words for people.
    pub what: Cow<'static, str>,
}

impl CallContext {
    /// The context of a call that began at `started`, if that is known.
    #[must_use]
    pub fn new(options: CallOptions, started: Option<Instant>, deadline: Option<Instant>) -> Self {
        Self {
            inner: Arc::new(Inner {
                options,
                id: OnceLock::new(),
                chain: OnceLock::new(),
                original: OnceLock::new(),
                started,
                deadline: deadline.map_or_else(OnceLock::new, OnceLock::from),
                attempt: AtomicU32::new(0),
                rung: AtomicU32::new(0),
                waited_nanos: AtomicU64::new(0),
                notes: Mutex::default(),
            }),
        }
    }

    /// The context of the call to which `request` belongs.
    #[must_use]
    pub fn of<B>(request: &http::Request<B>) -> Option<&Self> {
        request.extensions().get()
    }

    /// What the call wants otherwise than the layers are set.
    pub fn options(&self) -> &CallOptions {
        &self.inner.options
    }

    /// The caller's names for the call.
    #[must_use]
    pub fn labels(&self) -> &Labels {
        self.inner.options.labels()
    }

    /// The call's ID, once a layer has given it one.
    #[must_use]
    pub fn id(&self) -> Option<CallId> {
        self.inner.id.get().copied()
    }

    /// Gives the call its ID, unless it has one.
    pub fn set_id(&self, id: CallId) {
        let _ = self.inner.id.set(id);
    }

    /// The chain planned for the call, once its router has planned one.
    #[must_use]
    pub fn chain(&self) -> Option<&Chain> {
        self.inner.chain.get()
    }

    /// Plans `chain` for the call, unless one is planned: the outermost router decides.
    pub fn plan(&self, chain: Chain) {
        let _ = self.inner.chain.set(chain);
    }

    /// The request as the caller sent it, where the router keeps it for every layer below.
    #[must_use]
    pub fn original(&self) -> Option<&Original> {
        self.inner.original.get()
    }

    /// Keeps the request as the caller sent it for every layer below: one copy serves them all.
    pub fn keep(&self, original: Original) {
        let _ = self.inner.original.set(original);
    }

    /// When the call began; `None` where the layer that made the context kept no time.
    #[must_use]
    pub fn started(&self) -> Option<Instant> {
        self.inner.started
    }

    /// The one instant at which the call must be over.
    #[must_use]
    pub fn deadline(&self) -> Option<Instant> {
        self.inner.deadline.get().copied()
    }

    /// Sets the instant at which the call must be over, if there is none yet: a layer above, or the
    /// caller, comes first.
    pub fn set_deadline(&self, deadline: Instant) {
        let _ = self.inner.deadline.set(deadline);
    }

    /// The number of the current attempt, from 1; 0 before the first.
    #[must_use]
    pub fn attempt(&self) -> u32 {
        self.inner.attempt.load(Ordering::Acquire)
    }

    /// The current rung, from 0.
    #[must_use]
    pub fn rung(&self) -> u32 {
        self.inner.rung.load(Ordering::Acquire)
    }

    /// The waits between attempts so far, added up.
    #[must_use]
    pub fn waited(&self) -> Duration {
        Duration::from_nanos(self.inner.waited_nanos.load(Ordering::Acquire))
    }

    /// Announces the call's first attempt; does nothing if a layer above has done so.
    pub fn begin_first(&self) {
        let _ = self.inner.attempt.compare_exchange(0, 1, Ordering::AcqRel, Ordering::Relaxed);
    }

    /// The wait before the current attempt and its reason; `None` for an attempt that was not waited
    /// for.
    #[must_use]
    pub fn last_wait(&self) -> Option<(Duration, WaitReason)> {
        self.lock().last_wait
    }

    /// Announces another attempt, after `wait`.
    pub fn begin_next(&self, wait: Duration, reason: WaitReason) {
        let nanos = u64::try_from(wait.as_nanos()).unwrap_or(u64::MAX);
        self.lock().last_wait = Some((wait, reason));
        let add = |sum: u64| Some(sum.saturating_add(nanos));
        let _ = self.inner.waited_nanos.fetch_update(Ordering::AcqRel, Ordering::Acquire, add);
        let add = |n: u32| Some(n.saturating_add(1));
        let _ = self.inner.attempt.fetch_update(Ordering::AcqRel, Ordering::Acquire, add);
    }

    /// Takes the number of the attempt that is about to leave, and the wait that was announced before it.
    ///
    /// It is the current one ([`CallContext::attempt`]), unless an attempt has taken that: somebody who
    /// announces nothing repeats the request, and the next free number is taken.
    #[must_use]
    pub fn number_attempt(&self) -> (u32, Option<(Duration, WaitReason)>) {
        let announced = self.attempt().max(1);
        let mut notes = self.lock();
        let is_announced = announced > notes.numbered;
        notes.numbered = if is_announced { announced } else { notes.numbered.saturating_add(1) };
        let _ = self.inner.attempt.fetch_max(notes.numbered, Ordering::AcqRel);
        (notes.numbered, notes.last_wait.filter(|_| is_announced))
    }

    /// Counts an attempt that leaves now: what was announced may never have come to it.
    pub fn count_attempt(&self) {
        let waited = self.waited();
        let mut notes = self.lock();
        let attempts = notes.sent.attempts.saturating_add(1);
        notes.sent = Sent { attempts, waited };
    }

    /// How many attempts have left. Where none took a number ([`CallContext::number_attempt`]), nobody
    /// counts them: then those that were announced, the last of which may still be waited for.
    #[must_use]
    pub fn attempts(&self) -> u32 {
        self.lock().counted().map_or_else(|| self.attempt(), |sent| sent.attempts)
    }

    /// The waits after which an attempt really left, added up; where nobody counts attempts, all that
    /// were announced.
    #[must_use]
    pub fn waited_through(&self) -> Duration {
        self.lock().counted().map_or_else(|| self.waited(), |sent| sent.waited)
    }

    /// Announces that the call is on rung `rung` now.
    pub fn set_rung(&self, rung: u32) {
        self.inner.rung.store(rung, Ordering::Release);
    }

    /// The profile of the current rung, where a chain is planned.
    #[must_use]
    pub fn profile(&self) -> Option<&crate::Profile> {
        Some(self.chain()?.rungs().get(self.rung() as usize)?.profile())
    }

    /// Notes what was decided at `at`. Up to 64 decisions of a call are kept; later ones are not.
    pub fn note(&self, at: Instant, what: impl Into<Cow<'static, str>>) {
        let decisions = &mut self.lock().decisions;
        if decisions.len() < MAX_DECISIONS {
            decisions.push(Decision { at, what: what.into() });
        }
    }

    /// What was decided so far, in order.
    #[must_use]
    pub fn decisions(&self) -> Vec<Decision> {
        self.lock().decisions.clone()
    }

    fn lock(&self) -> MutexGuard<'_, Notes> {
        // Notes are whole whatever panicked beside them.
        self.inner.notes.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

const MAX_DECISIONS: usize = 64;

impl fmt::Debug for CallContext {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CallContext")
            .field("options", self.options())
            .field("chain", &self.chain())
            .field("attempt", &self.attempt())
            .field("rung", &self.rung())
            .field("waited", &self.waited())
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    #[test]
    fn an_attempt_that_was_announced_and_never_left_is_not_counted() {
        let context = CallContext::new(CallOptions::new(), None, None);
        assert_eq!((context.attempts(), context.waited_through()), (0, Duration::ZERO));
        context.begin_first();
        assert_eq!(context.attempts(), 1, "nobody counts, so what is announced counts");
        assert_eq!(context.number_attempt(), (1, None));
        assert_eq!(context.attempts(), 0, "it has not left");
        context.count_attempt();
        context.begin_next(SECOND, WaitReason::Schedule);
        assert_eq!(context.number_attempt(), (2, Some((SECOND, WaitReason::Schedule))));
        context.count_attempt();
        context.begin_next(SECOND * 2, WaitReason::Schedule);
        assert_eq!((context.attempt(), context.waited()), (3, SECOND * 3));
        assert_eq!((context.attempts(), context.waited_through()), (2, SECOND));
    }

    #[test]
    fn attempts_that_nobody_announced_have_numbers_of_their_own() {
        let context = CallContext::new(CallOptions::new(), None, None);
        context.begin_first();
        assert_eq!([1, 2].map(|_| context.number_attempt()), [(1, None), (2, None)]);
        context.begin_next(SECOND, WaitReason::Schedule);
        assert_eq!(context.number_attempt(), (3, Some((SECOND, WaitReason::Schedule))));
        assert_eq!(context.number_attempt(), (4, None));
    }
}
