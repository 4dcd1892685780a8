mod decisions;
mod progress;

use std::borrow::Cow;
use std::fmt;
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use http::Request;

pub use decisions::Decision;

use self::decisions::Decisions;
use self::progress::Progress;
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
    /// What a router keeps goes with the requests that it sends, and is nobody else's: another request of
    /// the same context never meets it, and it goes when the router's call goes.
    original: Option<Arc<Kept>>,
}

// Small: what few calls have is in boxes.
struct Inner {
    options: Option<Box<CallOptions>>,
    id: OnceLock<CallId>,
    chain: OnceLock<Chain>,
    started: Option<Instant>,
    deadline: OnceLock<Instant>,
    progress: Progress,
    decisions: Decisions,
}

struct Kept {
    original: Original,
    is_shared: bool,
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
                started,
                deadline: deadline.map_or_else(OnceLock::new, OnceLock::from),
                progress: Progress::new(0),
                decisions: Decisions::default(),
            }),
            original: None,
        }
    }

    /// The context of a call that a router begins: its chain is planned, its first attempt announced, and
    /// the request kept, as with [`CallContext::keeping`].
    #[must_use]
    pub fn planned(
        options: Option<CallOptions>,
        deadline: Option<Instant>,
        chain: Chain,
        original: Option<Original>,
        is_shared: bool,
    ) -> Self {
        let original = original.map(|original| Arc::new(Kept { original, is_shared }));
        Self {
            inner: Arc::new(Inner {
                options: options.map(Box::new),
                id: OnceLock::new(),
                chain: OnceLock::from(chain),
                started: None,
                deadline: deadline.map_or_else(OnceLock::new, OnceLock::from),
                progress: Progress::new(1),
                decisions: Decisions::default(),
            }),
            original,
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
        self.original.as_ref().map(|kept| &kept.original)
    }

    /// Whether the layers below may make their repeats from [`CallContext::original`].
    #[must_use]
    pub fn shares_original(&self) -> bool {
        self.original.as_ref().is_some_and(|kept| kept.is_shared)
    }

    /// Keeps the request as the caller sent it: for the router alone, or, if it `is_shared`, so that one
    /// copy serves every layer below.
    #[must_use]
    pub fn keeping(mut self, original: Original, is_shared: bool) -> Self {
        self.original = Some(Arc::new(Kept { original, is_shared }));
        self
    }

    /// The same context without what a router keeps: for a router that finds one above it.
    #[must_use]
    pub fn keeping_nothing(mut self) -> Self {
        self.original = None;
        self
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
        self.inner.progress.attempt()
    }

    /// The current rung, from 0.
    #[must_use]
    pub fn rung(&self) -> u32 {
        self.inner.progress.rung()
    }

    /// The waits between attempts so far, added up.
    #[must_use]
    pub fn waited(&self) -> Duration {
        self.inner.progress.waited()
    }

    /// Announces the call's first attempt; does nothing if a layer above has done so.
    pub fn begin_first(&self) {
        self.inner.progress.begin_first();
    }

    /// The wait before the current attempt and its reason; `None` for an attempt that was not waited
    /// for.
    #[must_use]
    pub fn last_wait(&self) -> Option<(Duration, WaitReason)> {
        self.inner.progress.last_wait()
    }

    /// Announces another attempt, after `wait`.
    pub fn begin_next(&self, wait: Duration, reason: WaitReason) {
        self.inner.progress.begin_next(wait, reason);
    }

    /// Takes the number of the attempt that is about to leave, and the wait that was announced before it.
    ///
    /// It is the current one ([`CallContext::attempt`]), unless an attempt has taken that: somebody who
    /// announces nothing repeats the request, and the next free number is taken.
    #[must_use]
    pub fn number_attempt(&self) -> (u32, Option<(Duration, WaitReason)>) {
        self.inner.progress.number_attempt()
    }

    /// Counts an attempt that leaves now: what was announced may never have come to it.
    pub fn count_attempt(&self) {
        self.inner.progress.count_attempt();
    }

    /// How many attempts have left. Where none took a number ([`CallContext::number_attempt`]), nobody
    /// counts them: then those that were announced, the last of which may still be waited for.
    #[must_use]
    pub fn attempts(&self) -> u32 {
        self.inner.progress.attempts()
    }

    /// The waits after which an attempt really left, added up; where nobody counts attempts, all that
    /// were announced.
    #[must_use]
    pub fn waited_through(&self) -> Duration {
        self.inner.progress.waited_through()
    }

    /// Announces that the call is on rung `rung` now.
    pub fn set_rung(&self, rung: u32) {
        self.inner.progress.set_rung(rung);
    }

    /// The profile of the current rung, where a chain is planned.
    #[must_use]
    pub fn profile(&self) -> Option<&Profile> {
        Some(self.chain()?.rungs().get(self.rung() as usize)?.profile())
    }

    /// Notes what was decided at `at`. Up to 64 decisions of a call are kept; later ones are not.
    pub fn note(&self, at: Instant, what: impl Into<Cow<'static, str>>) {
        self.inner.decisions.note(Decision { at, what: what.into() });
    }

    /// What was decided so far, in order.
    pub fn decisions(&self) -> impl Iterator<Item = &Decision> {
        self.inner.decisions.iter()
    }
}

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
