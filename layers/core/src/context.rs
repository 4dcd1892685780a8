use std::borrow::Cow;
use std::fmt;
use std::sync::atomic::{AtomicU8, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use http::Request;

use crate::rewrite::{self, Place, Unfit};
use crate::{CallId, CallOptions, Chain, Labels, Original, Profile, RequestBody, WaitReason};

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

// Small: what few calls have is in boxes.
struct Inner {
    options: Option<Box<CallOptions>>,
    id: OnceLock<CallId>,
    chain: OnceLock<Chain>,
    original: OnceLock<Box<Kept>>,
    started: Option<Instant>,
    deadline: OnceLock<Instant>,
    attempt: AtomicU32,
    rung: AtomicU32,
    waited_nanos: AtomicU64,
    last_wait_nanos: AtomicU64,
    last_reason: AtomicU8,
    decisions: Decisions,
}

/// Decisions in order: each is written once, and the place for the next one with it.
type Decisions = OnceLock<Box<Noted>>;

struct Noted {
    decision: Decision,
    next: Decisions,
}

struct Kept {
    original: Original,
    is_shared: bool,
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
                options: (options != CallOptions::new()).then(|| Box::new(options)),
                id: OnceLock::new(),
                chain: OnceLock::new(),
                original: OnceLock::new(),
                started,
                deadline: deadline.map_or_else(OnceLock::new, OnceLock::from),
                attempt: AtomicU32::new(0),
                rung: AtomicU32::new(0),
                waited_nanos: AtomicU64::new(0),
                last_wait_nanos: AtomicU64::new(0),
                last_reason: AtomicU8::new(NO_REASON),
                decisions: OnceLock::new(),
            }),
        }
    }

    /// The context of a call that a router begins: its chain is planned, its first attempt announced, and
    /// the request kept, as with [`CallContext::keep`].
    #[must_use]
    pub fn planned(
        options: Option<CallOptions>,
        deadline: Option<Instant>,
        chain: Chain,
        original: Option<Original>,
        is_shared: bool,
    ) -> Self {
        let original = original.map(|original| Box::new(Kept { original, is_shared }));
        Self {
            inner: Arc::new(Inner {
                options: options.map(Box::new),
                id: OnceLock::new(),
                chain: OnceLock::from(chain),
                original: original.map_or_else(OnceLock::new, OnceLock::from),
                started: None,
                deadline: deadline.map_or_else(OnceLock::new, OnceLock::from),
                attempt: AtomicU32::new(1),
                rung: AtomicU32::new(0),
                waited_nanos: AtomicU64::new(0),
                last_wait_nanos: AtomicU64::new(0),
                last_reason: AtomicU8::new(NO_REASON),
                decisions: OnceLock::new(),
            }),
        }
    }

    /// The context of the call to which `request` belongs.
    #[must_use]
    pub fn of<B>(request: &Request<B>) -> Option<&Self> {
        request.extensions().get()
    }

    /// What the call wants otherwise than the layers are set.
    pub fn options(&self) -> &CallOptions {
        static NONE: CallOptions = CallOptions::new();
        self.inner.options.as_deref().unwrap_or(&NONE)
    }

    /// The caller's names for the call.
    #[must_use]
    pub fn labels(&self) -> &Labels {
        self.options().labels()
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

    /// The request as the caller sent it, where a router keeps it.
    #[must_use]
    pub fn original(&self) -> Option<&Original> {
        self.inner.original.get().map(|kept| &kept.original)
    }

    /// Whether the layers below may make their repeats from [`CallContext::original`].
    #[must_use]
    pub fn shares_original(&self) -> bool {
        self.inner.original.get().is_some_and(|kept| kept.is_shared)
    }

    /// Keeps the request as the caller sent it: for the router alone, or, if it `is_shared`, so that one
    /// copy serves every layer below.
    pub fn keep(&self, original: Original, is_shared: bool) {
        let _ = self.inner.original.set(Box::new(Kept { original, is_shared }));
    }

    /// The request of the current rung once more, made from [`CallContext::original`]; `None` where none
    /// is kept.
    #[must_use]
    pub fn request_again(&self) -> Option<Result<Request<RequestBody>, Unfit>> {
        let mut request = self.original()?.request();
        request.extensions_mut().insert(self.clone());
        let place = if self.rung() == 0 { Place::Primary } else { Place::Fallback };
        let fit = self.profile().map_or(Ok(()), |to| rewrite::apply(&mut request, to, place));
        Some(fit.map(|()| request))
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
        let reason = usize::from(self.inner.last_reason.load(Ordering::Acquire));
        let nanos = self.inner.last_wait_nanos.load(Ordering::Acquire);
        Some((Duration::from_nanos(nanos), *WaitReason::ALL.get(reason)?))
    }

    /// Announces another attempt, after `wait`.
    pub fn begin_next(&self, wait: Duration, reason: WaitReason) {
        let nanos = u64::try_from(wait.as_nanos()).unwrap_or(u64::MAX);
        let reason = WaitReason::ALL.iter().position(|one| *one == reason);
        let reason = reason.and_then(|at| u8::try_from(at).ok()).unwrap_or(NO_REASON);
        self.inner.last_wait_nanos.store(nanos, Ordering::Release);
        self.inner.last_reason.store(reason, Ordering::Release);
        let add = |sum: u64| Some(sum.saturating_add(nanos));
        let _ = self.inner.waited_nanos.fetch_update(Ordering::AcqRel, Ordering::Acquire, add);
        let add = |n: u32| Some(n.saturating_add(1));
        let _ = self.inner.attempt.fetch_update(Ordering::AcqRel, Ordering::Acquire, add);
    }

    /// Announces that the call is on rung `rung` now.
    pub fn set_rung(&self, rung: u32) {
        self.inner.rung.store(rung, Ordering::Release);
    }

    /// The profile of the current rung, where a chain is planned.
    #[must_use]
    pub fn profile(&self) -> Option<&Profile> {
        Some(self.chain()?.rungs().get(self.rung() as usize)?.profile())
    }

    /// Notes what was decided at `at`. Up to 64 decisions of a call are kept; later ones are not.
    pub fn note(&self, at: Instant, what: impl Into<Cow<'static, str>>) {
        let mut noted =
            Box::new(Noted { decision: Decision { at, what: what.into() }, next: OnceLock::new() });
        let mut place = &self.inner.decisions;
        for _ in 0..MAX_DECISIONS {
            match place.set(noted) {
                Ok(()) => return,
                Err(back) => noted = back,
            }
            match place.get() {
                Some(taken) => place = &taken.next,
                None => return,
            }
        }
    }

    /// What was decided so far, in order.
    pub fn decisions(&self) -> impl Iterator<Item = &Decision> {
        let first = self.inner.decisions.get();
        std::iter::successors(first, |noted| noted.next.get()).map(|noted| &noted.decision)
    }
}

const NO_REASON: u8 = u8::MAX;
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
    use crate::HintSource;

    fn context() -> CallContext {
        CallContext::new(CallOptions::new(), None, None)
    }

    #[test]
    fn the_last_wait_is_told_with_every_reason() {
        let context = context();
        assert_eq!(context.last_wait(), None);
        for reason in WaitReason::ALL {
            context.begin_next(Duration::from_millis(5), *reason);
            assert_eq!(context.last_wait(), Some((Duration::from_millis(5), *reason)));
        }
        context.begin_next(Duration::MAX, WaitReason::Hint(HintSource::Reset));
        assert!(context.last_wait().is_some_and(|(wait, _)| wait > Duration::from_secs(1 << 33)));
    }

    #[test]
    #[expect(clippy::disallowed_methods, reason = "any instant will do")]
    fn decisions_stand_in_order_and_are_bounded_whoever_notes_them() {
        let context = context();
        let now = Instant::now();
        std::thread::scope(|scope| {
            for thread in 0..4 {
                let context = context.clone();
                scope.spawn(move || {
                    for n in 0..12 {
                        context.note(now, format!("{thread} {n}"));
                    }
                });
            }
        });
        let all: Vec<_> = context.decisions().map(|decision| decision.what.clone()).collect();
        assert_eq!(all.len(), 48);
        for thread in 0..4 {
            let own = all.iter().filter(|what| what.starts_with(&format!("{thread} ")));
            assert!(own.is_sorted_by_key(|what| what[2..].parse::<u32>().unwrap()));
        }
        (0..1_000).for_each(|_| context.note(now, "more"));
        assert_eq!(context.decisions().count(), MAX_DECISIONS);
    }
}
