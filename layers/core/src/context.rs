use std::fmt;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use crate::{Chain, Limit};

/// How long an answer is held back before its first byte is handed on.
///
/// An attempt may be thrown away only while no byte of its answer has been handed on; so the longer
/// an answer is held, the more failures can still be retried.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Hold {
    /// Until the whole answer is there and its proper end was seen: the caller never sees half an
    /// answer. The default for answers that are no streams, and the choice for unattended work.
    Complete,
    /// Until the first event that carries content. The default for streams.
    FirstContent,
    /// Not at all: a 2xx is handed on at its head.
    Headers,
}

impl Hold {
    /// The word for this in configs.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Complete => "complete",
            Self::FirstContent => "first-content",
            Self::Headers => "headers",
        }
    }
}

/// What a call gets that has used up its retries.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum OnExhausted {
    /// An error that names URL, label, retries, waiting and guards ([`crate::Exhausted`]).
    Error,
    /// The provider's last answer; where its status was 2xx although it failed, with the status
    /// and the error object that it should have had.
    #[default]
    Last,
}

/// The caller's names for a call. Opaque to us; they go into records and messages, never upstream.
#[derive(Clone, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Labels {
    /// An evaluation run.
    pub run: Option<Arc<str>>,
    /// A unit of work in the run.
    pub node: Option<Arc<str>>,
    /// A policy of the run, for example `benchmark`.
    pub lane: Option<Arc<str>>,
}

impl fmt::Debug for Labels {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { run, node, lane } = self;
        let mut out = f.debug_map();
        for (name, label) in [("run", run), ("node", node), ("lane", lane)] {
            if let Some(label) = label {
                out.entry(&name, label);
            }
        }
        out.finish()
    }
}

/// What one call wants otherwise than its layers are set: put it into the request's extensions.
///
/// Every field is optional; what is not set stays as the layer has it.
///
/// ```
/// use backstop_core::CallOptions;
/// use std::time::Duration;
///
/// let mut request = http::Request::post("https://api.openai.com/v1/chat/completions").body(())?;
/// request.extensions_mut().insert(
///     CallOptions::new().max_attempts(2).deadline(Duration::from_secs(90)).node("task-17"),
/// );
/// # Ok::<(), http::Error>(())
/// ```
#[derive(Clone, Debug, Default, PartialEq)]
#[must_use]
pub struct CallOptions {
    labels: Labels,
    max_attempts: Option<u32>,
    max_retries: Option<Limit<u32>>,
    max_retry_time: Option<Limit<Duration>>,
    max_hint: Option<Limit<Duration>>,
    deadline: Option<Duration>,
    hold: Option<Hold>,
    on_exhausted: Option<OnExhausted>,
    retry_stateful: Option<bool>,
}

impl CallOptions {
    /// Nothing set.
    pub fn new() -> Self {
        Self::default()
    }

    /// What a request's extensions say: the options in the context of its call, else those that its
    /// caller put there.
    #[must_use]
    pub fn of(extensions: &http::Extensions) -> Option<&Self> {
        match extensions.get::<CallContext>() {
            Some(context) => Some(context.options()),
            None => extensions.get(),
        }
    }

    /// All tries on a rung, the first included; at least 1 (0 counts as 1). It can lower or raise
    /// the rung's own number. `max_retries` bounds it: the lower of the two wins.
    pub fn max_attempts(mut self, attempts: u32) -> Self {
        self.max_attempts = Some(attempts.max(1));
        self
    }

    /// Attempts after the first.
    pub fn max_retries(mut self, retries: impl Into<Limit<u32>>) -> Self {
        self.max_retries = Some(retries.into());
        self
    }

    /// Accumulated waiting.
    pub fn max_retry_time(mut self, time: impl Into<Limit<Duration>>) -> Self {
        self.max_retry_time = Some(time.into());
        self
    }

    /// The longest hint that is slept through, inclusive.
    pub fn max_hint(mut self, hint: impl Into<Limit<Duration>>) -> Self {
        self.max_hint = Some(hint.into());
        self
    }

    /// How long the whole call may take: attempts, waits and, with a ClassifyLayer, the answer's body. Zero
    /// sends nothing.
    pub fn deadline(mut self, deadline: Duration) -> Self {
        self.deadline = Some(deadline);
        self
    }

    /// How long answers are held, streams and others.
    pub fn hold(mut self, hold: Hold) -> Self {
        self.hold = Some(hold);
        self
    }

    /// What the call gets when its retries are used up.
    pub fn on_exhausted(mut self, on_exhausted: OnExhausted) -> Self {
        self.on_exhausted = Some(on_exhausted);
        self
    }

    /// Whether a body that continues state kept by the server is sent again.
    pub fn retry_stateful(mut self, retry: bool) -> Self {
        self.retry_stateful = Some(retry);
        self
    }

    /// The evaluation run that the call belongs to.
    pub fn run(mut self, run: impl Into<Arc<str>>) -> Self {
        self.labels.run = Some(run.into());
        self
    }

    /// The unit of work that the call belongs to.
    pub fn node(mut self, node: impl Into<Arc<str>>) -> Self {
        self.labels.node = Some(node.into());
        self
    }

    /// The policy of the run.
    pub fn lane(mut self, lane: impl Into<Arc<str>>) -> Self {
        self.labels.lane = Some(lane.into());
        self
    }

    /// The labels.
    #[must_use]
    pub const fn labels(&self) -> &Labels {
        &self.labels
    }

    /// All tries on a rung, if set.
    #[must_use]
    pub const fn attempts(&self) -> Option<u32> {
        self.max_attempts
    }

    /// A guard, as it is for this call: `set` unless the call says otherwise.
    #[must_use]
    pub fn guards(&self, set: &crate::Guards) -> crate::Guards {
        let mut guards = set.clone();
        guards.max_retries = self.max_retries.unwrap_or(guards.max_retries);
        guards.max_retry_time = self.max_retry_time.unwrap_or(guards.max_retry_time);
        guards.max_hint = self.max_hint.unwrap_or(guards.max_hint);
        guards
    }

    /// The time for the whole call, if set.
    #[must_use]
    pub const fn time(&self) -> Option<Duration> {
        self.deadline
    }

    /// How long answers are held, if set.
    #[must_use]
    pub const fn held(&self) -> Option<Hold> {
        self.hold
    }

    /// What the call gets in the end, if set.
    #[must_use]
    pub const fn exhaustion(&self) -> Option<OnExhausted> {
        self.on_exhausted
    }

    /// Whether stateful bodies are sent again, if set.
    #[must_use]
    pub const fn stateful(&self) -> Option<bool> {
        self.retry_stateful
    }
}

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
    chain: Option<Chain>,
    started: Option<Instant>,
    deadline: OnceLock<Instant>,
    attempt: AtomicU32,
    rung: AtomicU32,
    waited_nanos: AtomicU64,
}

impl CallContext {
    /// The context of a call that began at `started`, if that is known.
    #[must_use]
    pub fn new(options: CallOptions, started: Option<Instant>, deadline: Option<Instant>) -> Self {
        Self {
            inner: Arc::new(Inner {
                options,
                chain: None,
                started,
                deadline: deadline.map_or_else(OnceLock::new, OnceLock::from),
                attempt: AtomicU32::new(0),
                rung: AtomicU32::new(0),
                waited_nanos: AtomicU64::new(0),
            }),
        }
    }

    /// Plans `chain` for the call. To be set before the context is shared; later it has no effect.
    #[must_use]
    pub fn with_chain(mut self, chain: Chain) -> Self {
        if let Some(inner) = Arc::get_mut(&mut self.inner) {
            inner.chain = Some(chain);
        }
        self
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
        &self.inner.options.labels
    }

    /// The chain planned for the call.
    #[must_use]
    pub fn chain(&self) -> Option<&Chain> {
        self.inner.chain.as_ref()
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

    /// Announces another attempt, after `wait`.
    pub fn begin_next(&self, wait: Duration) {
        let nanos = u64::try_from(wait.as_nanos()).unwrap_or(u64::MAX);
        let add = |sum: u64| Some(sum.saturating_add(nanos));
        let _ = self.inner.waited_nanos.fetch_update(Ordering::AcqRel, Ordering::Acquire, add);
        let add = |n: u32| Some(n.saturating_add(1));
        let _ = self.inner.attempt.fetch_update(Ordering::AcqRel, Ordering::Acquire, add);
    }

    /// Announces that the call is on rung `rung` now.
    pub fn set_rung(&self, rung: u32) {
        self.inner.rung.store(rung, Ordering::Release);
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
