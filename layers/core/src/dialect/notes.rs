//! What has been read of an answer so far.

use super::bounded;
use super::failure::Failure;
use crate::json::Value;
use crate::{Class, Usage};

/// What one event of a stream carries.
pub(super) enum Payload<'a> {
    /// `[DONE]`.
    Done,
    /// A JSON text.
    Json(Value<'a>),
    /// More than is kept: the beginning of a JSON text.
    Oversized(&'a [u8]),
}

/// Filled by the dialects' readers, judged by the judge. Only sums and short texts: it does not grow
/// with the answer.
#[derive(Default)]
pub(super) struct Notes {
    /// The answer's model, and how much its place is to be trusted.
    model: Option<Box<str>>,
    model_rank: u8,
    /// The request's ID, where it stands in the body.
    pub(super) request_id: Option<Box<str>>,
    pub(super) tokens: Tokens,
    /// A non-empty piece of text, reasoning, refusal or tool call was seen.
    pub(super) content: bool,
    /// Text or a tool call, as opposed to reasoning and refusals.
    pub(super) spoke: bool,
    /// Text that is a refusal.
    pub(super) declined: bool,
    /// Something that is an answer, if perhaps a silent one.
    pub(super) answered: bool,
    /// An event was too large to be read, so that anything may have been in it.
    pub(super) blind: bool,
    /// The dialect's own state: for OpenAI, that the events are those of the Responses API.
    pub(super) typed: bool,
    pub(super) choices: Choices,
    /// The first error object or error event, or what is better known of it.
    pub(super) failure: Option<Failure>,
}

impl Notes {
    pub(super) fn model(&self) -> Option<&str> {
        self.model.as_deref()
    }

    /// Whether there is an answer, good or bad.
    pub(super) const fn has_answer(&self) -> bool {
        self.answered || self.content || self.choices.any_finished()
    }

    /// Notes the model, unless one of a higher rank is known. Empty names are none (Azure's first
    /// chunk has one).
    pub(super) fn note_model(&mut self, rank: u8, model: Option<Value<'_>>) {
        if rank >= self.model_rank
            && let Some(name) = model.and_then(|value| value.as_str())
            && !name.is_empty()
        {
            self.model_rank = rank;
            bounded::note(&mut self.model, &name);
        }
    }

    pub(super) fn note_request_id(&mut self, id: Option<Value<'_>>) {
        if let Some(id) = id.and_then(|value| value.as_str())
            && !id.is_empty()
        {
            bounded::note(&mut self.request_id, &id);
        }
    }

    /// Notes text or a tool call.
    pub(super) const fn note_speech(&mut self) {
        self.content = true;
        self.spoke = true;
        self.answered = true;
    }

    /// Notes reasoning, of any kind.
    pub(super) const fn note_reasoning(&mut self) {
        self.content = true;
    }

    /// Notes text that is a refusal.
    pub(super) const fn note_refusal(&mut self) {
        self.content = true;
        self.declined = true;
        self.answered = true;
    }

    /// Notes a failure. The first one counts, but for one that says nothing: Azure's Responses API
    /// sends `response.failed` with `error: null` first, and the error itself after it.
    pub(super) fn note_failure(&mut self, failure: Failure) {
        if self.failure.as_ref().is_none_or(Failure::is_mute) {
            self.failure = Some(failure);
        }
    }
}

/// Token counts, in parts, since streams send them in parts.
#[derive(Default)]
pub(super) struct Tokens {
    pub(super) input: Option<u64>,
    pub(super) cache_creation: Option<u64>,
    pub(super) cache_read: Option<u64>,
    pub(super) output: Option<u64>,
    pub(super) reasoning: Option<u64>,
}

impl Tokens {
    /// Replaces `slot` where a count is given.
    pub(super) fn note(slot: &mut Option<u64>, count: Option<Value<'_>>) {
        if let Some(count) = count.and_then(|value| value.as_u64()) {
            *slot = Some(count);
        }
    }

    pub(super) fn usage(&self) -> Option<Usage> {
        let Self { input, cache_creation, cache_read, output, reasoning } = *self;
        if input.is_none() && output.is_none() {
            return None;
        }
        let sum = |parts: &[Option<u64>]| {
            parts.iter().fold(0u64, |sum, part| sum.saturating_add(part.unwrap_or_default()))
        };
        Some(Usage::new(sum(&[input, cache_creation, cache_read]), sum(&[output, reasoning])))
    }
}

/// How the choices (candidates) of an answer stand, by index. Indexes past the last bit share it.
#[derive(Default)]
pub(super) struct Choices {
    seen: u128,
    finished: u128,
    failed: u128,
    failure: Option<(Class, Box<str>)>,
}

impl Choices {
    pub(super) const fn see(&mut self, index: u64) {
        self.seen |= bit(index);
    }

    /// Notes that a choice has ended. The last word on a choice counts: Gemini's older models say
    /// `STOP` in every chunk.
    pub(super) fn finish(&mut self, index: u64, class: Class, reason: &str) {
        self.seen |= bit(index);
        self.finished |= bit(index);
        if class.is_failure() {
            self.failed |= bit(index);
            if self.failure.as_ref().is_none_or(|(_, known)| **known != *reason) {
                self.failure = Some((class, bounded::boxed(reason)));
            }
        } else {
            self.failed &= !bit(index);
        }
    }

    pub(super) const fn any_seen(&self) -> bool {
        self.seen != 0
    }

    pub(super) const fn any_finished(&self) -> bool {
        self.finished != 0
    }

    /// Whether there are choices, and each has ended.
    pub(super) const fn all_finished(&self) -> bool {
        self.finished != 0 && self.seen & !self.finished == 0
    }

    /// What the answer failed with, if no choice of it is any good.
    pub(super) fn failure(&self) -> Option<(Class, &str)> {
        if self.finished == 0 || self.finished & !self.failed != 0 {
            return None;
        }
        self.failure.as_ref().map(|(class, reason)| (*class, &**reason))
    }
}

const fn bit(index: u64) -> u128 {
    1 << if index < 127 { index } else { 127 }
}
