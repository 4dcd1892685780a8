//! A call as a report shows it: the elements of `calls` in the schema `backstop/report/v1`.

use std::collections::BTreeMap;
use std::fmt;
use std::time::{Duration, SystemTime};

use backstop_core::{CallId, Chain, Profile, Rung, Usage};
use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::record::Outcome;

/// One call with its attempts, joined from the parts of its record.
///
/// Its JSON is exactly an element of `calls` in `backstop/report/v1`: what is not known is `null`, times are
/// whole milliseconds. Fields that the schema does not have stand here only, as each of them says.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct CallRecord {
    /// Its ID.
    #[serde(with = "id")]
    pub call: CallId,
    /// The caller's name for its evaluation run.
    pub run: Option<String>,
    /// The caller's name for its unit of work.
    pub node: Option<String>,
    /// The caller's name for its policy.
    pub lane: Option<String>,
    /// Further names; a layer gives none.
    #[serde(default)]
    pub labels: BTreeMap<String, String>,
    /// The route that it took; a layer knows none.
    pub route: Option<String>,
    /// How it ended: [`Outcome::Interrupted`] where there is no finish.
    #[serde(with = "word")]
    pub outcome: Outcome,
    /// The chain that was planned for it; empty where there was no router.
    #[serde(default)]
    pub planned_chain: Vec<RungRecord>,
    /// Whose answer the caller got.
    pub produced_by: Option<ProducedBy>,
    /// Whether that was another than the primary.
    pub fallback_used: bool,
    /// Attempts after the first.
    pub retries: u32,
    /// The waits between attempts, added up.
    pub waited_ms: u64,
    /// Of the caller's body, in hexadecimal; `None` without the feature `digest`.
    pub request_sha256: Option<String>,
    /// What the caller's own SDK says of its retries.
    pub caller_retry: Option<u32>,
    /// When it came in, as RFC 3339 has it; `None` where the start is lost.
    pub started_at: Option<String>,
    /// Until the last byte that the caller got; `None` for an interrupted one.
    pub duration_ms: Option<u64>,
    /// The tokens of the answer that the caller got.
    pub usage: Option<UsageRecord>,
    /// What was decided without an attempt.
    #[serde(default)]
    pub decisions: Vec<DecisionRecord>,
    /// Its attempts in their order.
    #[serde(default)]
    pub attempts: Vec<AttemptRecord>,
    /// The path that the caller asked for. Not in the JSON.
    #[serde(skip)]
    pub path: Option<String>,
    /// The model that the caller asked for. Not in the JSON.
    #[serde(skip)]
    pub requested_model: Option<String>,
    /// How many attempts the call says it had, recorded or not. Not in the JSON.
    #[serde(skip)]
    pub attempts_made: Option<u32>,
    /// The failure that the caller got. Not in the JSON.
    #[serde(skip)]
    pub error: Option<String>,
}

/// One attempt.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct AttemptRecord {
    /// Its number in the call, from 1.
    pub attempt: u32,
    /// Its rung, from 0; `None` where the start is lost.
    pub rung: Option<u32>,
    /// The profile that was asked; `None` where there was no router.
    pub profile: Option<String>,
    /// The model that was sent.
    pub model: Option<String>,
    /// Where it went.
    pub endpoint: Option<String>,
    /// The wait before it.
    pub wait_ms: Option<u64>,
    /// Why the wait was that long.
    pub wait_reason: Option<String>,
    /// Whether the request provably was not processed.
    pub unprocessed: bool,
    /// The status on the wire.
    pub status: Option<u16>,
    /// What it amounts to: `success`, the class of its failure, or [`AttemptRecord::INTERRUPTED`].
    pub class: String,
    /// The provider's own code for the failure.
    pub code: Option<String>,
    /// When the provider said to come back.
    pub hint_ms: Option<u64>,
    /// The provider's ID of the request.
    pub request_id: Option<String>,
    /// The model that the answer names.
    pub reported_model: Option<String>,
    /// When it left, as RFC 3339 has it; `None` where the start is lost.
    pub started_at: Option<String>,
    /// Until the first byte of the answer's body.
    pub first_byte_ms: Option<u64>,
    /// Until the first content of a stream.
    pub first_content_ms: Option<u64>,
    /// Until its end; `None` for an interrupted one.
    pub duration_ms: Option<u64>,
    /// How many bytes of body came; `None` for an interrupted one.
    pub bytes: Option<u64>,
    /// How the stream ended.
    pub stream_end: Option<String>,
    /// The tokens that the answer says it cost.
    pub usage: Option<UsageRecord>,
    /// What went wrong.
    pub error: Option<String>,
    /// Until the answer's head. Not in the JSON.
    #[serde(skip)]
    pub head_ms: Option<u64>,
    /// How many bytes its body had. Not in the JSON.
    #[serde(skip)]
    pub request_bytes: Option<u64>,
}

impl AttemptRecord {
    /// The class of an attempt that was started and never finished.
    pub const INTERRUPTED: &'static str = "interrupted";
}

/// One step of a planned chain.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct RungRecord {
    /// Its number, from 0.
    pub rung: u32,
    /// The profile's ID.
    pub profile: String,
    /// The profile's opaque label.
    pub agent: Option<String>,
    /// The provider's ID.
    pub provider: String,
    /// The model that is sent.
    pub model: String,
    /// The reasoning effort.
    pub reasoning: Option<String>,
    /// How many attempts it gets; `None` where guards alone bound them.
    pub attempts: Option<u32>,
}

/// Whose answer the caller got. Without a router there is no profile: `model` is the one that was sent.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct ProducedBy {
    /// The profile's ID.
    pub profile: Option<String>,
    /// The profile's opaque label.
    pub agent: Option<String>,
    /// The provider's ID.
    pub provider: Option<String>,
    /// The model that was sent.
    pub model: Option<String>,
    /// The reasoning effort.
    pub reasoning: Option<String>,
    /// The model that the answer names.
    pub reported_model: Option<String>,
}

/// Tokens as the provider counted them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct UsageRecord {
    /// All prompt tokens.
    pub input_tokens: u64,
    /// All generated tokens.
    pub output_tokens: u64,
}

/// Something that was decided about a call without an attempt.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct DecisionRecord {
    /// Since the call's start.
    pub at_ms: u64,
    /// What.
    pub what: String,
}

impl RungRecord {
    pub(crate) fn of_chain(chain: &Chain) -> Vec<Self> {
        (0..).zip(chain.rungs()).map(|(number, rung)| Self::of(number, rung)).collect()
    }

    fn of(number: u32, rung: &Rung) -> Self {
        let profile = rung.profile();
        Self {
            rung: number,
            profile: profile.id().into(),
            agent: profile.agent().map(Into::into),
            provider: profile.provider().into(),
            model: profile.model().into(),
            reasoning: profile.reasoning().map(Into::into),
            attempts: Some(rung.attempts()).filter(|attempts| *attempts != u32::MAX),
        }
    }
}

impl ProducedBy {
    pub(crate) fn new(profile: Option<&Profile>, reported_model: Option<&str>) -> Self {
        let reported_model = reported_model.map(Into::into);
        match profile {
            Some(profile) => Self {
                profile: Some(profile.id().into()),
                agent: profile.agent().map(Into::into),
                provider: Some(profile.provider().into()),
                model: Some(profile.model().into()),
                reasoning: profile.reasoning().map(Into::into),
                reported_model,
            },
            None => Self {
                profile: None,
                agent: None,
                provider: None,
                model: None,
                reasoning: None,
                reported_model,
            },
        }
    }
}

impl From<Usage> for UsageRecord {
    fn from(usage: Usage) -> Self {
        Self { input_tokens: usage.input_tokens, output_tokens: usage.output_tokens }
    }
}

/// The word of [`Outcome::as_str`].
impl Serialize for Outcome {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        word::serialize(self, serializer)
    }
}

/// The word of [`Outcome::as_str`].
impl<'de> Deserialize<'de> for Outcome {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        word::deserialize(deserializer)
    }
}

/// Outcomes as their words.
pub(crate) mod word {
    use super::*;

    pub(crate) fn serialize<S: Serializer>(outcome: &Outcome, to: S) -> Result<S::Ok, S::Error> {
        to.serialize_str(outcome.as_str())
    }

    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Outcome, D::Error> {
        let word = String::deserialize(from)?;
        Outcome::from_word(&word).ok_or_else(|| D::Error::custom("no outcome"))
    }
}

/// IDs of calls as they are displayed.
pub(crate) mod id {
    use super::*;

    pub(crate) fn serialize<S: Serializer>(call: &CallId, to: S) -> Result<S::Ok, S::Error> {
        to.collect_str(call)
    }

    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<CallId, D::Error> {
        let text = String::deserialize(from)?;
        CallId::parse(&text).ok_or_else(|| D::Error::custom("no ID of a call"))
    }
}

/// Whole milliseconds.
pub(crate) fn ms(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

/// `at` as RFC 3339 has it. What it cannot say is the nearest that it can.
pub(crate) fn rfc3339(at: SystemTime) -> String {
    let since = at.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default().min(LAST);
    let mut text = String::with_capacity(24);
    let _ = fmt::write(
        &mut text,
        format_args!("{}", humantime::format_rfc3339_millis(SystemTime::UNIX_EPOCH + since)),
    );
    text
}

/// 9999-12-31T23:59:59Z: humantime has no later one.
const LAST: Duration = Duration::from_secs(253_402_300_799);
