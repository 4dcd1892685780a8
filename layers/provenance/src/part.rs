//! The four parts of which a call's record is joined, in the words of `backstop/record/v1`.

use std::collections::BTreeMap;

use backstop_core::CallId;
use serde::{Deserialize, Serialize};

use crate::call_record::{
    DecisionRecord, ProducedBy, RungRecord, UsageRecord, id, ms, rfc3339, word,
};
use crate::record::{self, Finished, Outcome, Started};

/// One part of a record.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(tag = "record", rename_all = "snake_case")]
pub(crate) enum Part {
    CallStarted(Box<CallStarted>),
    AttemptStarted(Box<AttemptStarted>),
    AttemptFinished(Box<AttemptFinished>),
    CallFinished(Box<CallFinished>),
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct CallStarted {
    #[serde(with = "id")]
    pub(crate) call: CallId,
    pub(crate) run: Option<String>,
    pub(crate) node: Option<String>,
    pub(crate) lane: Option<String>,
    #[serde(default)]
    pub(crate) labels: BTreeMap<String, String>,
    pub(crate) route: Option<String>,
    pub(crate) path: Option<String>,
    pub(crate) requested_model: Option<String>,
    pub(crate) request_sha256: Option<String>,
    pub(crate) caller_retry: Option<u32>,
    pub(crate) started_at: Option<String>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct AttemptStarted {
    #[serde(flatten)]
    pub(crate) whose: Whose,
    pub(crate) attempt: u32,
    pub(crate) rung: Option<u32>,
    pub(crate) profile: Option<String>,
    pub(crate) model: Option<String>,
    pub(crate) endpoint: Option<String>,
    pub(crate) request_bytes: Option<u64>,
    pub(crate) wait_ms: Option<u64>,
    pub(crate) wait_reason: Option<String>,
    pub(crate) started_at: Option<String>,
    /// With the first attempt only: what a call that is interrupted had planned.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) planned_chain: Option<Vec<RungRecord>>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct AttemptFinished {
    #[serde(flatten)]
    pub(crate) whose: Whose,
    pub(crate) attempt: u32,
    #[serde(default)]
    pub(crate) unprocessed: bool,
    pub(crate) status: Option<u16>,
    pub(crate) class: String,
    pub(crate) code: Option<String>,
    pub(crate) hint_ms: Option<u64>,
    pub(crate) request_id: Option<String>,
    pub(crate) reported_model: Option<String>,
    pub(crate) head_ms: Option<u64>,
    pub(crate) first_byte_ms: Option<u64>,
    pub(crate) first_content_ms: Option<u64>,
    pub(crate) duration_ms: Option<u64>,
    pub(crate) bytes: Option<u64>,
    pub(crate) stream_end: Option<String>,
    pub(crate) usage: Option<UsageRecord>,
    pub(crate) error: Option<String>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct CallFinished {
    #[serde(with = "id")]
    pub(crate) call: CallId,
    #[serde(with = "word")]
    pub(crate) outcome: Outcome,
    #[serde(default)]
    pub(crate) planned_chain: Vec<RungRecord>,
    pub(crate) produced_by: Option<ProducedBy>,
    #[serde(default)]
    pub(crate) fallback_used: bool,
    #[serde(default)]
    pub(crate) retries: u32,
    pub(crate) attempts_made: Option<u32>,
    #[serde(default)]
    pub(crate) waited_ms: u64,
    pub(crate) duration_ms: Option<u64>,
    pub(crate) usage: Option<UsageRecord>,
    #[serde(default)]
    pub(crate) decisions: Vec<DecisionRecord>,
    pub(crate) error: Option<String>,
}

/// What an attempt belongs to: a call, or, where no call is known, nothing but the other part of its own
/// record, which has the same name.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub(crate) struct Whose {
    #[serde(with = "optional_id")]
    pub(crate) call: Option<CallId>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) alone: Option<String>,
}

impl Part {
    /// `alone` names an attempt that belongs to no call.
    pub(crate) fn of_started(
        started: &Started,
        request_sha256: Option<String>,
        alone: impl FnOnce() -> String,
    ) -> Self {
        match started {
            Started::Call(call) => Self::CallStarted(Box::new(of_call(call, request_sha256))),
            Started::Attempt(attempt) => {
                Self::AttemptStarted(Box::new(of_attempt(attempt, Whose::of(attempt.call, alone))))
            }
        }
    }

    /// `alone` names an attempt that belongs to no call.
    pub(crate) fn of_finished(finished: &Finished, alone: impl FnOnce() -> String) -> Self {
        match finished {
            Finished::Call(call) => Self::CallFinished(Box::new(of_finished_call(call))),
            Finished::Attempt(attempt) => {
                let whose = Whose::of(attempt.call, alone);
                Self::AttemptFinished(Box::new(of_finished_attempt(attempt, whose)))
            }
        }
    }

    #[cfg(feature = "jsonl")]
    pub(crate) const fn call(&self) -> Option<CallId> {
        match self {
            Self::CallStarted(part) => Some(part.call),
            Self::AttemptStarted(part) => part.whose.call,
            Self::AttemptFinished(part) => part.whose.call,
            Self::CallFinished(part) => Some(part.call),
        }
    }

    #[cfg(feature = "jsonl")]
    pub(crate) const fn record(&self) -> &'static str {
        match self {
            Self::CallStarted(_) => "call_started",
            Self::AttemptStarted(_) => "attempt_started",
            Self::AttemptFinished(_) => "attempt_finished",
            Self::CallFinished(_) => "call_finished",
        }
    }
}

impl Whose {
    fn of(call: Option<CallId>, alone: impl FnOnce() -> String) -> Self {
        Self { call, alone: call.is_none().then(alone) }
    }
}

fn of_call(call: &record::CallStarted, request_sha256: Option<String>) -> CallStarted {
    let owned = |label: &Option<std::sync::Arc<str>>| label.as_deref().map(Into::into);
    CallStarted {
        call: call.call,
        run: owned(&call.labels.run),
        node: owned(&call.labels.node),
        lane: owned(&call.labels.lane),
        labels: BTreeMap::new(),
        route: None,
        path: Some(call.path.as_ref().into()),
        requested_model: call.requested_model.as_deref().map(Into::into),
        request_sha256,
        caller_retry: call.caller_retry,
        started_at: Some(rfc3339(call.at)),
    }
}

fn of_attempt(attempt: &record::AttemptStarted, whose: Whose) -> AttemptStarted {
    let chain = attempt.chain.as_ref().filter(|_| attempt.attempt == 1);
    AttemptStarted {
        whose,
        attempt: attempt.attempt,
        rung: Some(attempt.rung),
        profile: attempt.profile().map(|profile| profile.id().into()),
        model: attempt.model.as_deref().map(Into::into),
        endpoint: Some(attempt.endpoint.as_ref().into()),
        request_bytes: Some(attempt.request_bytes),
        wait_ms: attempt.wait.map(|(wait, _)| ms(wait)),
        wait_reason: attempt.wait.map(|(_, reason)| reason.as_str().into()),
        started_at: Some(rfc3339(attempt.at)),
        planned_chain: chain.map(RungRecord::of_chain),
    }
}

fn of_finished_attempt(attempt: &record::AttemptFinished, whose: Whose) -> AttemptFinished {
    let owned = |text: &Option<Box<str>>| text.as_deref().map(Into::into);
    AttemptFinished {
        whose,
        attempt: attempt.attempt,
        unprocessed: attempt.unprocessed,
        status: attempt.status.map(|status| status.as_u16()),
        class: attempt.class.into(),
        code: owned(&attempt.code),
        hint_ms: attempt.hint.map(ms),
        request_id: owned(&attempt.request_id),
        reported_model: owned(&attempt.reported_model),
        head_ms: attempt.head.map(ms),
        first_byte_ms: attempt.first_byte.map(ms),
        first_content_ms: attempt.first_content.map(ms),
        duration_ms: Some(ms(attempt.duration)),
        bytes: Some(attempt.bytes),
        stream_end: attempt.stream_end.map(|end| end.as_str().into()),
        usage: attempt.usage.map(Into::into),
        error: owned(&attempt.error),
    }
}

fn of_finished_call(call: &record::CallFinished) -> CallFinished {
    let rungs = call.planned_chain.as_ref().map_or(&[][..], |chain| chain.rungs());
    let produced_by = call.produced_by.map(|rung| {
        let profile = rungs.get(rung as usize).map(|rung| rung.profile());
        ProducedBy::new(profile, call.reported_model.as_deref())
    });
    let decisions = call.decisions.iter();
    CallFinished {
        call: call.call,
        outcome: call.outcome,
        planned_chain: call.planned_chain.as_ref().map(RungRecord::of_chain).unwrap_or_default(),
        produced_by,
        fallback_used: call.produced_by.is_some_and(|rung| rung != 0),
        retries: call.attempts.saturating_sub(1),
        attempts_made: Some(call.attempts),
        waited_ms: ms(call.waited),
        duration_ms: Some(ms(call.duration)),
        usage: call.usage.map(Into::into),
        decisions: decisions
            .map(|made| DecisionRecord { at_ms: ms(made.after), what: made.what.as_ref().into() })
            .collect(),
        error: call.error.as_deref().map(Into::into),
    }
}

/// IDs of calls as they are displayed, or `null`.
mod optional_id {
    use serde::{Deserializer, Serializer};

    use super::*;

    pub(super) fn serialize<S: Serializer>(
        call: &Option<CallId>,
        to: S,
    ) -> Result<S::Ok, S::Error> {
        match call {
            Some(call) => to.collect_str(call),
            None => to.serialize_none(),
        }
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(
        from: D,
    ) -> Result<Option<CallId>, D::Error> {
        let text = Option::<String>::deserialize(from)?;
        let no_id = || serde::de::Error::custom("no ID of a call");
        text.map(|text| CallId::parse(&text).ok_or_else(no_id)).transpose()
    }
}
