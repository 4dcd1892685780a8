use std::fmt;

use http::{HeaderMap, StatusCode};

use crate::scrub::scrub;
use crate::{AttemptCell, Class, Hint, bounded};

/// What the classifier says of one attempt.
///
/// A verdict is data: it carries the [`Class`] and what was found on the way (the provider's own
/// code, its hint, IDs, model, usage, how a stream ended). What follows from it is decided by an
/// [`ActionTable`](crate::ActionTable).
///
/// Read it from a response with [`Verdict::of`]. Custom classifiers build one with [`Verdict::new`]
/// and the `with_` methods.
#[derive(Clone, PartialEq)]
pub struct Verdict {
    class: Class,
    evidence: Evidence,
    status: Option<StatusCode>,
    effective_status: Option<StatusCode>,
    code: Option<Box<str>>,
    message: Option<Box<str>>,
    hint: Option<Hint>,
    should_retry: Option<bool>,
    request_id: Option<Box<str>>,
    model: Option<Box<str>>,
    usage: Option<Usage>,
    stream_end: Option<StreamEnd>,
    content_started: Option<bool>,
    unprocessed: bool,
}

impl Verdict {
    /// A verdict of `class` that knows nothing else.
    #[must_use]
    pub const fn new(class: Class) -> Self {
        Self {
            class,
            evidence: Evidence::Custom,
            status: None,
            effective_status: None,
            code: None,
            message: None,
            hint: None,
            should_retry: None,
            request_id: None,
            model: None,
            usage: None,
            stream_end: None,
            content_started: None,
            unprocessed: false,
        }
    }

    /// The verdict that a classifier left in `response`, if one did.
    ///
    /// For a stream that was handed on at its first content this is the verdict of that moment; the
    /// final one is in the [`AttemptCell`] once the body has ended.
    #[must_use]
    pub fn of<B>(response: &http::Response<B>) -> Option<&Self> {
        AttemptCell::of(response)?.verdict()
    }

    /// Whether an answer is one to hand on: by its verdict, if it has one, else by its status.
    #[inline]
    #[must_use]
    pub fn is_good<B>(response: &http::Response<B>) -> bool {
        match Self::of(response) {
            Some(verdict) => !verdict.class().is_failure(),
            None => response.status().is_success(),
        }
    }

    /// The verdict on an answer: the classifier's, if there is one, else by status and headers.
    #[must_use]
    pub fn of_answer<B>(
        response: &http::Response<B>,
        now: impl FnOnce() -> std::time::SystemTime,
    ) -> Self {
        match Self::of(response) {
            Some(verdict) => verdict.clone(),
            None => Self::of_head(response.status(), response.headers(), now),
        }
    }

    /// Success, or the class of the failure.
    #[must_use]
    pub const fn class(&self) -> Class {
        self.class
    }

    /// Which kind of fact decided the class.
    #[must_use]
    pub const fn evidence(&self) -> Evidence {
        self.evidence
    }

    /// The status as it stood on the wire; `None` where no answer came.
    #[must_use]
    pub const fn status(&self) -> Option<StatusCode> {
        self.status
    }

    /// The status that the answer deserved: that of an error object inside a 2xx, else the one on
    /// the wire, else the class's own ([`Class::status`]).
    #[must_use]
    pub fn effective_status(&self) -> StatusCode {
        match (self.effective_status, self.status) {
            (Some(status), _) => status,
            (None, Some(status)) if !(status.is_success() && self.class.is_failure()) => status,
            _ => self.class.status(),
        }
    }

    /// The provider's own code for the failure, as it wrote it.
    #[must_use]
    pub fn code(&self) -> Option<&str> {
        self.code.as_deref()
    }

    /// The provider's own words for the failure: at most 1 KiB, without anything that looks like a
    /// credential. For people to read; nothing here decides by it.
    #[must_use]
    pub fn message(&self) -> Option<&str> {
        self.message.as_deref()
    }

    /// When the provider said to come back. It belongs to this failure and to no later one.
    #[must_use]
    pub const fn hint(&self) -> Option<Hint> {
        self.hint
    }

    /// Whether the provider itself said that a repeat makes sense, or that it does not.
    #[must_use]
    pub const fn should_retry(&self) -> Option<bool> {
        self.should_retry
    }

    /// The provider's ID of the request.
    #[must_use]
    pub fn request_id(&self) -> Option<&str> {
        self.request_id.as_deref()
    }

    /// The model that answered, as the answer names it.
    #[must_use]
    pub fn model(&self) -> Option<&str> {
        self.model.as_deref()
    }

    /// The tokens that the answer says it cost.
    #[must_use]
    pub const fn usage(&self) -> Option<Usage> {
        self.usage
    }

    /// How the stream ended; `None` where the answer is no stream, or has not ended yet.
    #[must_use]
    pub const fn stream_end(&self) -> Option<StreamEnd> {
        self.stream_end
    }

    /// Whether a stream had carried content when this verdict was made; `None` where the answer is
    /// no stream.
    #[must_use]
    pub const fn content_started(&self) -> Option<bool> {
        self.content_started
    }

    /// Whether the request provably was not processed (refused stream, connection found closed
    /// before a byte was written), so that repeating it cannot do anything twice.
    #[must_use]
    pub const fn is_unprocessed(&self) -> bool {
        self.unprocessed
    }

    /// Whether the provider may have done something with the request that failed. A status that turns a
    /// request away at the door (401, 404, 413, 429, 503, 529, ...) says that nothing was done with it.
    #[must_use]
    pub fn may_be_processed(&self) -> bool {
        let turned_away = matches!(
            self.class,
            Class::RateLimited
                | Class::Overloaded
                | Class::QuotaExhausted
                | Class::ContextWindowExceeded
                | Class::Auth
                | Class::NotFound
                | Class::TooLarge
                | Class::InvalidRequest
        ) && self.status.is_some_and(|status| !status.is_success());
        !turned_away && !self.unprocessed
    }

    /// Changes the class, and says what decided it.
    #[must_use]
    pub const fn with_class(mut self, class: Class, evidence: Evidence) -> Self {
        self.class = class;
        self.evidence = evidence;
        self
    }

    /// Says which kind of fact decided the class.
    #[must_use]
    pub const fn with_evidence(mut self, evidence: Evidence) -> Self {
        self.evidence = evidence;
        self
    }

    /// Sets the status that stood on the wire.
    #[must_use]
    pub const fn with_status(mut self, status: StatusCode) -> Self {
        self.status = Some(status);
        self
    }

    /// Sets the status that an error object inside a 2xx carried.
    #[must_use]
    pub const fn with_effective_status(mut self, status: StatusCode) -> Self {
        self.effective_status = Some(status);
        self
    }

    /// Sets the provider's own code, bounded and scrubbed.
    #[must_use]
    pub fn with_code(mut self, code: impl Into<Box<str>>) -> Self {
        let code = code.into();
        self.code = Some(match scrub(&code, MAX_WORD) {
            std::borrow::Cow::Borrowed(clean) if clean.len() == code.len() => code,
            clean => clean.into(),
        });
        self
    }

    /// Sets the provider's own words, bounded and scrubbed.
    #[must_use]
    pub fn with_message(mut self, message: &str) -> Self {
        self.message = Some(scrub(message, MAX_MESSAGE).into());
        self
    }

    /// Sets the hint.
    #[must_use]
    pub const fn with_hint(mut self, hint: Option<Hint>) -> Self {
        self.hint = hint;
        self
    }

    /// Sets whether the provider wants a repeat.
    #[must_use]
    pub const fn with_should_retry(mut self, should_retry: bool) -> Self {
        self.should_retry = Some(should_retry);
        self
    }

    /// Sets the provider's ID of the request: at most 256 bytes, on one line.
    #[must_use]
    pub fn with_request_id(mut self, id: impl Into<Box<str>>) -> Self {
        self.request_id = Some(on_one_line(id.into()));
        self
    }

    /// Sets the model that answered: at most 256 bytes, on one line.
    #[must_use]
    pub fn with_model(mut self, model: impl Into<Box<str>>) -> Self {
        self.model = Some(on_one_line(model.into()));
        self
    }

    /// Sets the tokens used.
    #[must_use]
    pub const fn with_usage(mut self, usage: Option<Usage>) -> Self {
        self.usage = usage;
        self
    }

    /// Sets how the stream ended.
    #[must_use]
    pub const fn with_stream_end(mut self, end: Option<StreamEnd>) -> Self {
        self.stream_end = end;
        self
    }

    /// Sets whether the stream had carried content.
    #[must_use]
    pub const fn with_content_started(mut self, started: bool) -> Self {
        self.content_started = Some(started);
        self
    }

    /// Marks the request as provably not processed.
    #[must_use]
    pub const fn with_unprocessed(mut self) -> Self {
        self.unprocessed = true;
        self
    }

    /// Judges by status and headers alone: what a layer does that has no classifier below it.
    ///
    /// `now` is the wall clock, for hints that are dates. Only headers that mean the same at every
    /// provider are read (`retry-after-ms`, `retry-after`, `x-should-retry`).
    #[must_use]
    pub fn of_head(
        status: StatusCode,
        headers: &HeaderMap,
        now: impl FnOnce() -> std::time::SystemTime,
    ) -> Self {
        let class = crate::status::class_of(status);
        let mut verdict = Self::new(class).with_status(status).with_evidence(Evidence::Status);
        if class.is_failure() {
            verdict.hint = Hint::of_headers(headers, now);
            verdict.should_retry = crate::hint::should_retry(headers);
        }
        verdict
    }
}

/// Leaves out what is not known, so that a log line is short.
impl fmt::Debug for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            class,
            evidence,
            status,
            effective_status,
            code,
            message,
            hint,
            should_retry,
            request_id,
            model,
            usage,
            stream_end,
            content_started,
            unprocessed,
        } = self;
        let mut out = f.debug_struct("Verdict");
        out.field("class", class).field("evidence", evidence);
        let mut known = |name, value: Option<&dyn fmt::Debug>| {
            if let Some(value) = value {
                out.field(name, value);
            }
        };
        known("status", status.as_ref().map(|v| v as _));
        known("effective_status", effective_status.as_ref().map(|v| v as _));
        known("code", code.as_ref().map(|v| v as _));
        known("message", message.as_ref().map(|v| v as _));
        known("hint", hint.as_ref().map(|v| v as _));
        known("should_retry", should_retry.as_ref().map(|v| v as _));
        known("request_id", request_id.as_ref().map(|v| v as _));
        known("model", model.as_ref().map(|v| v as _));
        known("usage", usage.as_ref().map(|v| v as _));
        known("stream_end", stream_end.as_ref().map(|v| v as _));
        known("content_started", content_started.as_ref().map(|v| v as _));
        known("unprocessed", unprocessed.then_some(unprocessed as _));
        out.finish()
    }
}

/// Which kind of fact decided a verdict.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Evidence {
    /// The provider's own code, of a dialect that is known.
    Code,
    /// A custom classifier's word.
    Custom,
    /// The finish, stop or block reason of an answer.
    FinishReason,
    /// The grammar of the answer: an end that is missing, a body that is empty or cannot be read.
    Grammar,
    /// We ourselves gave up or refused: a timeout, a limit, a caller who left.
    Local,
    /// The status line.
    Status,
    /// The transport: refused, reset, closed early.
    Transport,
}

/// How an answer in pieces ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum StreamEnd {
    /// The dialect's own end marker was seen.
    Complete,
    /// An error event, or an error finish reason, even if an end marker follows.
    Error,
    /// The bytes ended, cleanly or not, before the end marker.
    Truncated,
}

impl StreamEnd {
    /// The word for this end in records.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Complete => "complete",
            Self::Error => "error",
            Self::Truncated => "truncated",
        }
    }
}

/// Tokens as the provider counted them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub struct Usage {
    /// All prompt tokens, cached ones included.
    pub input_tokens: u64,
    /// All generated tokens, reasoning included.
    pub output_tokens: u64,
}

impl Usage {
    /// `input` prompt tokens and `output` generated ones.
    #[must_use]
    pub const fn new(input: u64, output: u64) -> Self {
        Self { input_tokens: input, output_tokens: output }
    }
}

/// Names come from a provider, and go into logs: a line break in one would forge a line.
fn on_one_line(name: Box<str>) -> Box<str> {
    if name.len() <= MAX_WORD && !name.contains(char::is_control) {
        return name;
    }
    bounded::cut(&name, MAX_WORD)
        .chars()
        .map(|c| if c.is_control() { ' ' } else { c })
        .collect::<String>()
        .into()
}

/// Codes, IDs and names of models are far shorter.
const MAX_WORD: usize = 256;
/// As much as a record keeps of a provider's error text.
pub(crate) const MAX_MESSAGE: usize = 1024;
