//! What has been read of an answer so far.

use super::failure::Failure;
use crate::json::Value;
use crate::{Class, Usage, bounded};

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
    /// An event was too large to be read, so that anything may have been in it; and no choice was
    /// heard of since, so that it may have been the last word.
    pub(super) blind: bool,
    /// The dialect's own state: for OpenAI, that the events are those of the Responses API; for
    /// Anthropic, that the message has begun.
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

    /// Notes a failure: of several the one that says most, and of those the first. Azure's Responses
    /// API sends `response.failed` with `error: null`, and the error itself after it; OpenRouter a
    /// finish reason `error`, and an error object beside it.
    pub(super) fn note_failure(&mut self, failure: Failure) {
        if self.failure.as_ref().is_none_or(|known| known.rank() < failure.rank()) {
            self.failure = Some(failure);
        }
    }

    /// Nothing more comes: if the generation of every choice broke, which is not the model's word,
    /// the answer failed. Not before: one good choice is enough, and it may come last.
    pub(super) fn settle(&mut self) {
        if self.choices.all_finished()
            && let Some((class, reason)) = self.choices.failure()
            && class != Class::ContentRefused
        {
            self.note_failure(Failure::of_finish(class, reason));
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
    spoke: u128,
    /// Those whose last word is no good end: one entry for each.
    bad: Vec<Bad>,
}

struct Bad {
    bit: u128,
    class: Class,
    reason: Box<str>,
    /// It is a good end if the choice said anything.
    only_if_silent: bool,
}

impl Choices {
    pub(super) const fn see(&mut self, index: u64) {
        self.seen |= bit(index);
    }

    /// Notes text or a call of a choice.
    pub(super) const fn speak(&mut self, index: u64) {
        self.spoke |= bit(index);
    }

    /// Notes text that may be any choice's.
    pub(super) const fn speak_unread(&mut self) {
        self.spoke = u128::MAX;
    }

    /// Notes that a choice has ended. The last word on a choice counts: Gemini's older models say
    /// `STOP` in every chunk.
    pub(super) fn finish(&mut self, index: u64, class: Class, reason: &str) {
        self.end(index, class, reason, false);
    }

    /// As [`Choices::finish`], for a reason that is a failure of a choice that says nothing, however
    /// late it says it.
    pub(super) fn finish_if_silent(&mut self, index: u64, class: Class, reason: &str) {
        self.end(index, class, reason, true);
    }

    fn end(&mut self, index: u64, class: Class, reason: &str, only_if_silent: bool) {
        let bit = bit(index);
        self.seen |= bit;
        self.finished |= bit;
        self.bad.retain(|bad| bad.bit != bit);
        if class.is_failure() {
            let reason = bounded::boxed(reason);
            self.bad.push(Bad { bit, class, reason, only_if_silent });
        }
    }

    pub(super) const fn any_finished(&self) -> bool {
        self.finished != 0
    }

    /// Whether there are choices, and each has ended.
    pub(super) const fn all_finished(&self) -> bool {
        self.finished != 0 && self.seen & !self.finished == 0
    }

    /// What the answer failed with, if no choice of it is any good: of several reasons the one that
    /// another attempt mends soonest, then that of the first choice, in whatever order they came.
    pub(super) fn failure(&self) -> Option<(Class, &str)> {
        let bad = || self.bad.iter().filter(|bad| !bad.only_if_silent || bad.bit & self.spoke == 0);
        let failed = bad().fold(0, |bits, bad| bits | bad.bit);
        if self.finished & !failed != 0 {
            return None;
        }
        bad()
            .min_by_key(|bad| (bad.class == Class::ContentRefused, bad.bit))
            .map(|bad| (bad.class, &*bad.reason))
    }
}

const fn bit(index: u64) -> u128 {
    1 << if index < 127 { index } else { 127 }
}
