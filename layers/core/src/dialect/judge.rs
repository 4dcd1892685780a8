use std::fmt;
use std::time::SystemTime;

use http::header::CONTENT_TYPE;
use http::{HeaderMap, HeaderName, HeaderValue, StatusCode};

use super::array::ArrayReader;
use super::facts::{REQUEST_ID, X_REQUEST_ID};
use super::failure::Failure;
use super::notes::Notes;
use super::presentation::{Lack, Presentation};
use super::sse::SseReader;
use super::stream::Reader;
use super::{Endpoint, Framing, Route, resets};
use crate::hint::{self, text};
use crate::{Class, Evidence, Hint, StreamEnd, Verdict, bounded, status};

/// Reads the answer of one attempt and says what it amounts to.
///
/// Give it the head of the answer, then the body's bytes after decompression: a stream piece by
/// piece to [`Judge::push`], cut anywhere; a document in one piece to [`Judge::finish`], with which
/// both end. It holds a stream's unfinished event and no more, and never allocates for a document
/// before the end.
///
/// ```
/// use std::time::SystemTime;
/// use backstop_core::dialect::{BodyEnd, Dialect, Judge, Mode, Route};
/// use backstop_core::Class;
/// use http::{HeaderMap, Method, StatusCode};
///
/// let uri = "/v1/chat/completions".parse().unwrap();
/// let route = Route::new(Dialect::OPENAI, &Method::POST, &uri);
/// let now = SystemTime::UNIX_EPOCH;
/// let mut judge = Judge::new(Mode::Provider, route, StatusCode::TOO_MANY_REQUESTS, &HeaderMap::new(), now);
/// let body = br#"{"error":{"message":"no credit","type":"insufficient_quota","code":"insufficient_quota"}}"#;
/// let verdict = judge.finish(body, BodyEnd::Eof);
/// assert_eq!(verdict.class(), Class::QuotaExhausted);
/// assert_eq!(verdict.code(), Some("insufficient_quota"));
/// ```
pub struct Judge {
    pub(super) mode: Mode,
    pub(super) route: Route,
    pub(super) status: StatusCode,
    pub(super) framing: Framing,
    pub(super) is_html_type: bool,
    pub(super) max_event: usize,
    header_hint: Option<Hint>,
    reset_hint: Option<Hint>,
    should_retry: Option<bool>,
    request_id: Option<HeaderValue>,
    pub(super) reader: Reader,
    pub(super) notes: Notes,
    /// The stream's own end marker was seen; what follows is noise.
    pub(super) ended: bool,
    pub(super) stream_end: Option<StreamEnd>,
    pub(super) lack: Option<Lack>,
}

impl Judge {
    /// A judge of the answer with this head. `now` is the wall clock, for hints that are dates.
    #[must_use]
    pub fn new(
        mode: Mode,
        route: Route,
        status: StatusCode,
        headers: &HeaderMap,
        now: SystemTime,
    ) -> Self {
        let content_type = headers.get(CONTENT_TYPE);
        let framing = route.framing_of(status, content_type);
        let facts = route.dialect().map(super::Dialect::facts);
        let ids = facts.map_or(&REQUEST_IDS[..], |facts| facts.request_ids);
        let reset_hint = facts
            .filter(|_| status == StatusCode::TOO_MANY_REQUESTS)
            .and_then(|facts| resets::hint(facts.resets, headers, now));
        Self {
            mode,
            route,
            status,
            framing,
            is_html_type: is_type(content_type, "text/html"),
            max_event: MAX_EVENT,
            header_hint: Hint::of_headers(headers, || now),
            reset_hint,
            should_retry: match mode {
                Mode::Agnostic => None,
                Mode::Provider => hint::should_retry(headers),
            },
            request_id: ids.iter().find_map(|id| headers.get(*id)).cloned(),
            reader: reader(framing, MAX_EVENT),
            notes: Notes::default(),
            ended: false,
            stream_end: None,
            lack: None,
        }
    }

    /// Bounds what is kept of one event of a stream: 4 MiB where nothing is set. Of a larger event
    /// only its kind is known; it counts as content, and perhaps as an end. At most twice as much is
    /// held.
    #[must_use]
    pub fn with_max_event(mut self, bytes: usize) -> Self {
        // So that sums of it never overflow.
        self.max_event = bytes.min(usize::MAX / 4);
        self.reader = reader(self.framing, self.max_event);
        self
    }

    /// Whether the answer comes in pieces. An answer whose status is not 2xx never does, and neither
    /// does a JSON document that answers a request for a stream.
    #[must_use]
    pub fn is_stream(&self) -> bool {
        self.framing != Framing::Document
    }

    /// In what the answer is wrapped.
    #[must_use]
    pub const fn framing(&self) -> Framing {
        self.framing
    }

    /// Takes the next bytes of a stream, and says what the most significant thing in them was. The
    /// bytes of a document are not looked at.
    pub fn push(&mut self, bytes: &[u8]) -> Seen {
        if self.ended { Seen::Nothing } else { self.read_stream(bytes) }
    }

    /// Whether the answer is whole as it stands: its end marker was seen, or what stands in its
    /// place where a dialect has none. A stream that its reader gives up here has ended well, as
    /// with [`BodyEnd::Eof`].
    #[must_use]
    pub fn is_whole(&self) -> bool {
        let has_grammar = self.route.grammar().is_some() && self.is_stream();
        self.ended || (has_grammar && !self.notes.blind && self.may_end_here())
    }

    /// Whether content was seen in a stream.
    #[must_use]
    pub const fn content_started(&self) -> bool {
        self.notes.content
    }

    /// The verdict, now that the answer is over; ask once. `body` is the document, or what came of it; for a
    /// stream, whose bytes were pushed, it is not looked at.
    pub fn finish(&mut self, body: &[u8], end: BodyEnd) -> Verdict {
        match (end, self.framing) {
            (BodyEnd::Unread, _) => {}
            (_, Framing::Document) => self.read_document(body, end),
            _ => self.end_stream(end),
        }
        self.conclude()
    }

    /// The verdict as far as it can be known before the end: for a stream that is handed on.
    #[must_use]
    pub fn verdict_so_far(&self) -> Verdict {
        self.conclude()
    }

    /// How the answer is shown to a caller if this is the last of it; for use once the verdict is
    /// there.
    #[must_use]
    pub fn presentation(&self) -> Presentation {
        if !self.status.is_success() {
            return Presentation::AsSent;
        }
        match (&self.notes.failure, self.lack) {
            (Some(failure), _) if failure.is_finish => Presentation::AsSent,
            (Some(failure), _) => match &failure.document {
                Some(body) => {
                    let status = self.status_of(failure);
                    Presentation::Error { status, body: body.clone() }
                }
                None => Lack::ErrorEvent.presentation(self.route, self.status),
            },
            (None, Some(lack)) => lack.presentation(self.route, self.status),
            (None, None) => Presentation::AsSent,
        }
    }

    /// The status that a failure inside a 2xx deserves: that of its numeric code, else the one
    /// under which the provider would have sent an error of its class.
    fn status_of(&self, failure: &Failure) -> StatusCode {
        if failure.document.is_none() {
            return StatusCode::BAD_GATEWAY;
        }
        failure.status.unwrap_or_else(|| {
            let class = failure.class(self.status);
            let dialect = self.route.dialect();
            dialect.map_or_else(|| class.status(), |dialect| (dialect.facts().status)(class))
        })
    }

    pub(super) fn header_id(&self) -> Option<&str> {
        text(self.request_id.as_ref()).filter(|id| !id.is_empty())
    }

    fn conclude(&self) -> Verdict {
        let notes = &self.notes;
        let mut verdict = self.outcome().with_status(self.status);
        if let Some(id) = self.header_id().or(notes.request_id.as_deref()) {
            verdict = verdict.with_request_id(bounded::cut(id, MAX_ID));
        }
        if let Some(model) = notes.model() {
            verdict = verdict.with_model(model);
        }
        verdict = verdict.with_usage(notes.tokens.usage());
        if self.is_stream() {
            verdict = verdict.with_stream_end(self.stream_end).with_content_started(notes.content);
        }
        if verdict.class().is_failure() {
            let body_hint = notes.failure.as_ref().and_then(|failure| failure.hint);
            verdict = verdict.with_hint(self.header_hint.or(body_hint).or(self.reset_hint));
            if let Some(should_retry) = self.should_retry {
                verdict = verdict.with_should_retry(should_retry);
            }
        }
        verdict
    }

    /// The class and all that belongs to it.
    fn outcome(&self) -> Verdict {
        if let Some(failure) = &self.notes.failure {
            let mut verdict =
                self.failed(failure.class(self.status), failure.evidence(self.status));
            if let Some(code) = &failure.code {
                verdict = verdict.with_code(code.clone());
            }
            if self.status.is_success() && !failure.is_finish {
                verdict = verdict.with_effective_status(self.status_of(failure));
            }
            return match &failure.message {
                Some(message) => verdict.with_message(message),
                None => verdict,
            };
        }
        if let Some(lack) = self.lack {
            return self
                .failed(lack.class(), lack.evidence())
                .with_effective_status(StatusCode::BAD_GATEWAY)
                .with_message(&lack.message(self.route, self.status));
        }
        let by_status = status::class_of(self.status);
        if by_status.is_failure() {
            return self.failed(by_status, Evidence::Status);
        }
        let reason = self.notes.choices.failure().or_else(|| {
            let only_declined = self.notes.declined && !self.notes.spoke;
            only_declined.then_some((Class::ContentRefused, "refusal"))
        });
        match reason {
            None => Verdict::new(Class::Success).with_evidence(Evidence::Status),
            // The model itself declined, in an answer that is whole: not a failure of the call.
            Some((Class::ContentRefused, reason)) if self.mode == Mode::Agnostic => {
                Verdict::new(Class::Success).with_evidence(Evidence::FinishReason).with_code(reason)
            }
            Some((class, reason)) => self.failed(class, Evidence::FinishReason).with_code(reason),
        }
    }

    /// A failure that the provider's own words call `told`.
    fn failed(&self, told: Class, evidence: Evidence) -> Verdict {
        match self.mode {
            Mode::Provider => Verdict::new(told).with_evidence(evidence),
            Mode::Agnostic => {
                // A wrong configuration, which no repeat and no other model mends: a class that is
                // returned.
                let class = match self.status.as_u16() {
                    401 | 403 | 404 | 405 => Class::InvalidRequest,
                    _ => Class::Transient,
                };
                let evidence = match evidence {
                    Evidence::Transport => Evidence::Transport,
                    _ if self.status.is_success() => Evidence::Grammar,
                    _ => Evidence::Status,
                };
                Verdict::new(class).with_evidence(evidence)
            }
        }
    }
}

impl fmt::Debug for Judge {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Judge")
            .field("mode", &self.mode)
            .field("route", &self.route)
            .field("framing", &self.framing)
            .field("so_far", &self.verdict_so_far())
            .finish_non_exhaustive()
    }
}

/// How much of an answer's own words count.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Mode {
    /// Whether an attempt failed is decided from transport, status and the grammar of the answer
    /// alone, never from the text or the code of an error, and every failure is
    /// [`Class::Transient`] but for the statuses of a wrong configuration (401, 403, 404, 405), which
    /// are [`Class::InvalidRequest`]. A whole answer in which the model declines is a success.
    Agnostic,
    /// The structured codes of the dialect decide.
    #[default]
    Provider,
}

/// What was found in some bytes of a stream, from the least significant to the most.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum Seen {
    /// No event: a comment, a part of an event, or what follows the end.
    Nothing,
    /// An event without content: a role, a ping, a usage count, a finish reason.
    Preamble,
    /// The first or a further piece of text, reasoning, refusal or tool call.
    Content,
    /// The stream reported an error. More may follow, but no good end: [`Judge::finish`] may be
    /// asked at once.
    Failed,
    /// The stream's own end.
    End,
}

/// How the bytes of an answer ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum BodyEnd {
    /// With an error of the transport, or because we gave up.
    Broken,
    /// Cleanly.
    Eof,
    /// They were not read: an encoding that we cannot undo, or more than may be held.
    Unread,
}

impl Route {
    /// In what an answer with this head is wrapped. One whose status is not 2xx is a document.
    #[must_use]
    pub fn framing(self, status: StatusCode, headers: &HeaderMap) -> Framing {
        self.framing_of(status, headers.get(CONTENT_TYPE))
    }

    fn framing_of(self, status: StatusCode, content_type: Option<&HeaderValue>) -> Framing {
        if !status.is_success() {
            return Framing::Document;
        }
        if is_type(content_type, "text/event-stream") {
            Framing::Sse
        } else if self.endpoint() == Endpoint::StreamArray
            && (content_type.is_none_or(HeaderValue::is_empty)
                || is_type(content_type, "application/json"))
        {
            Framing::JsonArray
        } else {
            Framing::Document
        }
    }
}

fn reader(framing: Framing, max_event: usize) -> Reader {
    match framing {
        Framing::Document => Reader::None,
        Framing::JsonArray => Reader::Array(ArrayReader::new(max_event)),
        Framing::Sse => Reader::Sse(SseReader::new(max_event)),
    }
}

/// Whether a content type is `name`, whatever its parameters.
fn is_type(content_type: Option<&HeaderValue>, name: &str) -> bool {
    let value = content_type.map_or(&[][..], |value| value.as_bytes().trim_ascii_start());
    value.split_at_checked(name.len()).is_some_and(|(essence, parameters)| {
        essence.eq_ignore_ascii_case(name.as_bytes())
            && matches!(parameters.trim_ascii_start(), [] | [b';', ..])
    })
}

/// Headers that name a request at a provider that is not known.
static REQUEST_IDS: [&HeaderName; 2] = [&X_REQUEST_ID, &REQUEST_ID];
/// IDs are far shorter.
const MAX_ID: usize = 256;
/// Whole answers come in one event (`response.completed`), and pictures do.
const MAX_EVENT: usize = 4 * 1_024 * 1_024;
