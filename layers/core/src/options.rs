use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use crate::{CallContext, Chain, Limit};

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
    chain: Option<Chain>,
    forbid_fallback: bool,
}

impl CallOptions {
    /// Nothing set.
    pub const fn new() -> Self {
        Self {
            labels: Labels { run: None, node: None, lane: None },
            max_attempts: None,
            max_retries: None,
            max_retry_time: None,
            max_hint: None,
            deadline: None,
            hold: None,
            on_exhausted: None,
            retry_stateful: None,
            chain: None,
            forbid_fallback: false,
        }
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

    /// The chain of this call, in place of its router's.
    pub fn chain(mut self, chain: Chain) -> Self {
        self.chain = Some(chain);
        self
    }

    /// Forbids any fallback. It fails closed: a call for which one is planned is refused before
    /// anything is sent, and an answer that a fallback gave all the same is thrown away.
    pub fn forbid_fallback(mut self) -> Self {
        self.forbid_fallback = true;
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

    /// The chain of this call, if it has one of its own.
    #[must_use]
    pub const fn planned(&self) -> Option<&Chain> {
        self.chain.as_ref()
    }

    /// Whether any fallback is forbidden.
    #[must_use]
    pub const fn forbids_fallback(&self) -> bool {
        self.forbid_fallback
    }
}
