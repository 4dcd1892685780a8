//! Error objects: what they look like at all providers, and which of their codes counts.

use std::borrow::Cow;

use http::StatusCode;

use super::facts::look_up;
use super::{Dialect, google};
use crate::json::{self, Value};
use crate::{Class, Evidence, Hint, bounded, status};

/// What an error object, or an event that is an error, says.
#[derive(Default)]
pub(super) struct Failure {
    /// A code of the dialect's that says more than the status does.
    strong: Option<Class>,
    /// A code of the dialect's that stands for a status.
    weak: Option<Class>,
    /// The numeric code, which stands for a status where the answer's own is 2xx.
    pub(super) status: Option<StatusCode>,
    /// The provider's own code.
    pub(super) code: Option<Box<str>>,
    pub(super) hint: Option<Hint>,
    pub(super) message: Option<Box<str>>,
    /// The error object in the dialect's non-streaming form, where it stood in a 2xx.
    pub(super) document: Option<bytes::Bytes>,
    /// It is a finish reason that says so, not an error object.
    pub(super) is_finish: bool,
    /// It is an error object, or a text in its place.
    is_object: bool,
}

impl Failure {
    /// A failure that is known by an event or a finish reason alone.
    pub(super) fn of_finish(class: Class, reason: &str) -> Self {
        let code = Some(bounded::boxed(reason));
        Self { weak: Some(class), code, is_finish: true, ..Self::default() }
    }

    /// How much it says: a finish reason less than an error that cannot be read, and that less than
    /// an error object, above all one with a code.
    pub(super) const fn rank(&self) -> u8 {
        match (self.is_object, self.is_finish) {
            (true, _) => 2 + self.code.is_some() as u8,
            (false, true) => 0,
            (false, false) => 1,
        }
    }

    /// The class, given the status on the wire: a code that says more than the status, else the
    /// status, else the numeric code, else a code that stands for a status. An unknown code inside
    /// a 2xx is taken for a passing fault, as codex does
    /// (openai/codex codex-rs/codex-api/src/sse/responses.rs).
    pub(super) fn class(&self, wire: StatusCode) -> Class {
        self.strong.unwrap_or_else(|| match self.status {
            _ if !wire.is_success() => status::class_of(wire),
            Some(code) => status::class_of(code),
            None => self.weak.unwrap_or(Class::Transient),
        })
    }

    /// What decides [`Failure::class`].
    pub(super) fn evidence(&self, wire: StatusCode) -> Evidence {
        match (self.strong, self.status, self.weak) {
            _ if self.is_finish => Evidence::FinishReason,
            (Some(_), ..) => Evidence::Code,
            _ if !wire.is_success() => Evidence::Status,
            (_, Some(_), _) | (.., Some(_)) => Evidence::Code,
            _ => Evidence::Grammar,
        }
    }

    /// Reads `error`: an object, or a text that stands in its place. `beside` is the object around
    /// it, in which xAI keeps the code.
    pub(super) fn read(
        dialect: Option<Dialect>,
        wire: StatusCode,
        error: Value<'_>,
        beside: Option<Value<'_>>,
    ) -> Self {
        let mut failure = Self { is_object: true, ..Self::read_once(dialect, wire, error, beside) };
        // Google's message can itself be an error document, which holds the details
        // (google-gemini/gemini-cli packages/core/src/utils/googleErrors.test.ts).
        let mut text =
            error.get("message").and_then(|message| message.as_str()).map(Cow::into_owned);
        for _ in 0..MAX_NESTED {
            let Some(outer) = text.filter(|text| text.trim_start().starts_with('{')) else { break };
            // What is nested too deeply holds no error that anybody wrote.
            let Ok(document) = json::parse(outer.as_bytes()) else { break };
            let Some(inner) = document.get("error").filter(is_error) else { break };
            let inner_failure = Self::read_once(dialect, wire, inner, None);
            failure = Self {
                strong: inner_failure.strong.or(failure.strong),
                weak: inner_failure.weak.or(failure.weak),
                status: inner_failure.status.or(failure.status),
                code: inner_failure.code.or(failure.code),
                hint: inner_failure.hint.or(failure.hint),
                message: inner_failure.message.or(failure.message),
                ..failure
            };
            text = inner.get("message").and_then(|message| message.as_str()).map(Cow::into_owned);
        }
        failure
    }

    fn read_once(
        dialect: Option<Dialect>,
        wire: StatusCode,
        error: Value<'_>,
        beside: Option<Value<'_>>,
    ) -> Self {
        let object = if error.as_str().is_some() { beside } else { Some(error) };
        let mut words: [Option<Cow<'_, str>>; PLACES] = [const { None }; PLACES];
        let mut failure = Self::default();
        let mut number = None;
        if let Some(object) = object {
            let [details, metadata, code, kind, word] =
                object.get_many(["details", "metadata", "code", "type", "status"]);
            let code = code.and_then(text_or_number);
            let is_number = |code: &Cow<'_, str>| code.bytes().all(|byte| byte.is_ascii_digit());
            number = code.clone().filter(is_number);
            let google = details.map(google::Details::read).unwrap_or_default();
            failure.hint = google.hint;
            words = [
                details.and_then(|details| text(details, "error_code")),
                google.reason,
                metadata.and_then(|metadata| text(metadata, "limit_source")),
                metadata.and_then(|metadata| text(metadata, "error_type")),
                code.filter(|code| !is_number(code)),
                // In a flat error event `type` is the event's, not the error's.
                kind.and_then(|kind| kind.as_str())
                    .filter(|kind| !is_blank(kind) && kind != "error"),
                word.and_then(|word| word.as_str()).filter(|word| !is_blank(word)),
            ];
        }
        failure.status = number.as_deref().and_then(error_status);
        failure.message = match error.as_str() {
            Some(text) => Some(text),
            None => object.and_then(|object| text(object, "message")),
        }
        .map(|message| bounded::cut(&message, MAX_MESSAGE).into());
        if let Some(facts) = dialect.map(Dialect::facts) {
            let first = |table| words.iter().flatten().find_map(|word| look_up(table, word));
            let stands_for = if wire.is_success() { failure.status } else { Some(wire) };
            failure.strong = stands_for
                .and_then(|status| (facts.refine)(object?, status))
                .or_else(|| first(facts.strong));
            failure.weak = first(facts.weak);
        }
        failure.code =
            words.into_iter().flatten().next().or(number).map(|code| bounded::boxed(&code));
        failure
    }
}

/// Where an error may stand in `document`, an object: the error itself, in the order in which the
/// places are looked at. `error: null` is no error (OpenAI's Responses API always sends the key), and
/// neither is `error: {}`.
pub(super) fn find(document: Value<'_>) -> Option<Value<'_>> {
    let [error, response, choices, object, kind] =
        document.get_many(["error", "response", "choices", "object", "type"]);
    if let Some(error) = error.filter(is_error) {
        return Some(error);
    }
    if let Some(error) = response.and_then(|response| response.get("error")).filter(is_error) {
        return Some(error);
    }
    // OpenRouter: an error of one choice.
    if let Some(choices) = choices
        && let Some(error) =
            choices.elements().find_map(|choice| choice.get("error").filter(is_error))
    {
        return Some(error);
    }
    // Flat: Mistral and older vLLM say `object: "error"`, OpenAI's Responses events `type: "error"`.
    (says_error(object) || says_error(kind)).then_some(document)
}

/// As [`find`], for a 2xx of an endpoint without facts, and for an event of its stream: what it
/// returns may be an object that keeps an error of its own (a batch, a job, an operation), which is
/// no failure of this request. What has choices is a chat's answer, wherever it comes from.
pub(super) fn find_alone(document: Value<'_>) -> Option<Value<'_>> {
    let [error, kind, object, status, done, choices] =
        document.get_many(["error", "type", "object", "status", "done", "choices"]);
    let is_chat = object.and_then(|object| object.as_str()).is_some_and(|object| {
        object.starts_with("chat.completion") || object.starts_with("text_completion")
    });
    if choices.is_some() || is_chat {
        return find(document);
    }
    let is_about_another =
        (object.is_some() && !says_error(object)) || status.is_some() || done.is_some();
    let error = error.filter(is_error).filter(|_| !is_about_another);
    error.or_else(|| (says_error(kind) || says_error(object)).then_some(document))
}

/// As [`find`], for an answer whose status already says that it failed: a flat object with a
/// `message`, or with a `code` beside a text, needs no further mark, and an empty error object is one.
pub(super) fn find_in_failed(document: Value<'_>) -> Option<Value<'_>> {
    find(document).or_else(|| {
        let [message, error] = document.get_many(["message", "error"]);
        let is_flat = message.is_some_and(|message| message.as_str().is_some());
        if is_flat { Some(document) } else { error.filter(|error| error.is_object()) }
    })
}

/// Whether a mark such as `type` says that this is an error.
fn says_error(mark: Option<Value<'_>>) -> bool {
    mark.is_some_and(|mark| mark.str_is("error"))
}

/// A non-empty text of `object`.
pub(super) fn text<'a>(object: Value<'a>, key: &str) -> Option<Cow<'a, str>> {
    object.get(key)?.as_str().filter(|text| !is_blank(text))
}

fn is_error(value: &Value<'_>) -> bool {
    value.members().next().is_some() || value.as_str().is_some_and(|text| !is_blank(&text))
}

fn text_or_number(value: Value<'_>) -> Option<Cow<'_, str>> {
    let text = match value.as_str() {
        Some(text) => text,
        None => Cow::Owned(value.as_u64()?.to_string()),
    };
    (!is_blank(&text)).then_some(text)
}

fn is_blank(text: &str) -> bool {
    text.trim().is_empty()
}

/// A number that is a status of failure: 400 to 599.
fn error_status(number: &str) -> Option<StatusCode> {
    let code: u16 = number.parse().ok()?;
    StatusCode::from_u16(code)
        .ok()
        .filter(|status| status.is_client_error() || status.is_server_error())
}

/// Places where a code may stand, in the order in which they are asked: the most exact first.
const PLACES: usize = 7;
/// How many documents inside messages are opened.
const MAX_NESTED: usize = 2;
/// More than a verdict keeps, so that a key at its bound is not cut before it can be masked.
const MAX_MESSAGE: usize = 2_048;
