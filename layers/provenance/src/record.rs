//! What is kept of a call and of its attempts: times, names and counts; neither prompts nor answers, and
//! no credential.

use std::time::{Duration, SystemTime};

use backstop_core::{
    CallId, Chain, Decision, Labels, Profile, RequestBody, StreamEnd, Usage, WaitReason,
};
use http::StatusCode;

/// The start of a record.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum Started {
    /// A call came in.
    Call(Box<CallStarted>),
    /// An attempt is about to leave.
    Attempt(Box<AttemptStarted>),
}

/// The finish of a record.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum Finished {
    /// A call is over.
    Call(Box<CallFinished>),
    /// An attempt is over.
    Attempt(Box<AttemptFinished>),
}

/// What is known of a call when it comes in.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct CallStarted {
    /// Its ID.
    pub call: CallId,
    /// The caller's names for it.
    pub labels: Labels,
    /// The path that the caller asked for, without its query.
    pub path: Box<str>,
    /// The model that the caller asked for. `None` where the request names none, or two.
    pub requested_model: Option<Box<str>>,
    /// The caller's body, for the ledger to take the SHA-256 of; it is not kept.
    pub body: RequestBody,
    /// What the caller's own SDK says of its retries (`x-stainless-retry-count`).
    pub caller_retry: Option<u32>,
    /// When it came in.
    pub at: SystemTime,
}

/// What is known of a call when it is over.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct CallFinished {
    /// Its ID.
    pub call: CallId,
    /// How it ended.
    pub outcome: Outcome,
    /// The chain that was planned for it; `None` where there was no router.
    pub planned_chain: Option<Chain>,
    /// The rung whose answer the caller got; `None` where it got none, or a failure.
    pub produced_by: Option<u32>,
    /// The model that the answer names.
    pub reported_model: Option<Box<str>>,
    /// How many attempts there were, on all rungs.
    pub attempts: u32,
    /// The waits between attempts, added up.
    pub waited: Duration,
    /// What was decided without an attempt.
    pub decisions: Vec<DecisionMade>,
    /// The tokens of the answer that the caller got.
    pub usage: Option<Usage>,
    /// From its start to the last byte that the caller got.
    pub duration: Duration,
    /// The failure that the caller got: at most 1 KiB, without anything that looks like a credential.
    pub error: Option<Box<str>>,
}

/// A [`Decision`], and how long after the call's start it was made.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct DecisionMade {
    /// Since the call's start.
    pub after: Duration,
    /// What.
    pub what: Box<str>,
}

impl DecisionMade {
    /// `decision` in a call that began at `started`.
    #[must_use]
    pub fn new(decision: &Decision, started: std::time::Instant) -> Self {
        let after = decision.at.saturating_duration_since(started);
        Self { after, what: decision.what.as_ref().into() }
    }
}

/// What is known of an attempt before it leaves.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct AttemptStarted {
    /// The call that it belongs to; `None` where no ProvenanceLayer stands above.
    pub call: Option<CallId>,
    /// Its number in the call, from 1.
    pub attempt: u32,
    /// The rung that it is on, from 0.
    pub rung: u32,
    /// The chain that is planned for the call; `None` where there is no router.
    pub chain: Option<Chain>,
    /// The model that is sent.
    pub model: Option<Box<str>>,
    /// Where it goes: scheme, host and path, without the query.
    pub endpoint: Box<str>,
    /// How many bytes its body has.
    pub request_bytes: u64,
    /// The wait before it, and why it was that long; `None` for one that was not waited for.
    pub wait: Option<(Duration, WaitReason)>,
    /// When it leaves.
    pub at: SystemTime,
}

impl AttemptStarted {
    /// The profile that is asked; `None` where there is no router.
    #[must_use]
    pub fn profile(&self) -> Option<&Profile> {
        Some(self.chain.as_ref()?.rungs().get(self.rung as usize)?.profile())
    }
}

/// What is known of an attempt when it is over.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct AttemptFinished {
    /// The call that it belongs to.
    pub call: Option<CallId>,
    /// Its number in the call, from 1.
    pub attempt: u32,
    /// The status on the wire; `None` where no answer came.
    pub status: Option<StatusCode>,
    /// What it amounts to: `success`, or the class of its failure.
    pub class: &'static str,
    /// The provider's own code for the failure.
    pub code: Option<Box<str>>,
    /// When the provider said to come back.
    pub hint: Option<Duration>,
    /// The provider's ID of the request.
    pub request_id: Option<Box<str>>,
    /// The model that the answer names.
    pub reported_model: Option<Box<str>>,
    /// Whether the request provably was not processed.
    pub unprocessed: bool,
    /// Until the answer's head.
    pub head: Option<Duration>,
    /// Until the first byte of the answer's body.
    pub first_byte: Option<Duration>,
    /// Until the first content of a stream.
    pub first_content: Option<Duration>,
    /// Until its end.
    pub duration: Duration,
    /// How many bytes of body came.
    pub bytes: u64,
    /// How the stream ended; `None` where the answer was none.
    pub stream_end: Option<StreamEnd>,
    /// The tokens that the answer says it cost.
    pub usage: Option<Usage>,
    /// What went wrong: at most 1 KiB, without anything that looks like a credential.
    pub error: Option<Box<str>>,
}

/// How a call ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Outcome {
    /// The caller got a whole good answer, to its last byte.
    Ok,
    /// The infrastructure was exhausted: no attempt gave a whole good answer.
    Incomplete,
    /// The provider's or our own no: a class whose action is to return it, or a refusal.
    Rejected,
    /// The caller left.
    Cancelled,
    /// We died, or the record was lost: it was started and never finished.
    Interrupted,
}

impl Outcome {
    /// The word for this outcome in records and headers.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Ok => "ok",
            Self::Incomplete => "incomplete",
            Self::Rejected => "rejected",
            Self::Cancelled => "cancelled",
            Self::Interrupted => "interrupted",
        }
    }

    /// The outcome that a record calls `word`.
    #[must_use]
    pub fn from_word(word: &str) -> Option<Self> {
        [Self::Ok, Self::Incomplete, Self::Rejected, Self::Cancelled, Self::Interrupted]
            .into_iter()
            .find(|outcome| outcome.as_str() == word)
    }
}
