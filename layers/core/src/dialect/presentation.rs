use std::fmt;

use bytes::Bytes;
use http::StatusCode;

use super::error_body::{self, quote};
use super::{Dialect, Endpoint, Route};
use crate::json::{Kind, Value};
use crate::{Class, Evidence};

/// How a failed answer is shown to a caller when nothing more is tried.
///
/// Its `Debug` leaves out the provider's words.
#[derive(Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Presentation {
    /// As the provider sent it: its status says that it failed, or it is whole and its own finish
    /// reason says so, or it did not fail.
    AsSent,
    /// As an error. Its status was 2xx, and an SDK takes a 2xx for an answer.
    Error {
        /// The status that the answer deserved.
        status: StatusCode,
        /// The provider's own error object in the dialect's non-streaming form; or, if there is
        /// none, an error of ours that says what came in place of an answer.
        body: Bytes,
    },
}

impl fmt::Debug for Presentation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::AsSent => f.write_str("AsSent"),
            Self::Error { status, body } => f
                .debug_struct("Error")
                .field("status", &status.as_u16())
                .field("body", &format_args!("{} bytes", body.len()))
                .finish(),
        }
    }
}

/// What is wrong with an answer that neither its status nor an error object condemns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Lack {
    /// The bytes ended with an error of the transport.
    Broken,
    /// The JSON text ended early.
    Cut,
    /// There was nothing.
    Empty,
    /// The stream said that it failed, and no more.
    ErrorEvent,
    /// A page for people.
    Html,
    /// The answer holds no choice, no candidate, no message.
    NoAnswer,
    /// No JSON text.
    NotJson,
    /// The stream ended, cleanly or not, before its end marker.
    Truncated,
}

impl Lack {
    pub(super) const fn class(self) -> Class {
        match self {
            Self::Html => Class::Upstream,
            _ => Class::Transient,
        }
    }

    pub(super) const fn evidence(self) -> Evidence {
        match self {
            Self::Broken => Evidence::Transport,
            _ => Evidence::Grammar,
        }
    }

    const fn kind(self) -> &'static str {
        match self {
            Self::Broken => "connection_broken",
            Self::Cut => "cut_json",
            Self::Empty => "empty_body",
            Self::ErrorEvent => "error_event",
            Self::Html => "html_page",
            Self::NoAnswer => "no_answer",
            Self::NotJson => "not_json",
            Self::Truncated => "truncated_stream",
        }
    }

    /// What came, in words for people.
    pub(super) fn message(self, route: Route, status: StatusCode) -> String {
        let status = status.as_u16();
        let answered = format!("the provider answered {status} with");
        match self {
            Self::Broken => {
                format!("the provider answered {status} and broke off before the answer's end")
            }
            Self::Cut => format!("{answered} a JSON text that ends in its middle"),
            Self::Empty => format!("{answered} an empty body"),
            Self::ErrorEvent => {
                format!("{answered} a stream that reported an error and did not say which")
            }
            Self::Html => format!("{answered} an HTML page"),
            Self::NoAnswer => {
                let lacks = match (route.endpoint(), route.dialect()) {
                    (Endpoint::Embeddings, _) => "no embeddings",
                    (Endpoint::CountTokens, _) => "no count",
                    (_, Some(dialect)) => dialect.facts().lacks,
                    (_, None) => "nothing in it",
                };
                format!("{answered} an answer that has {lacks}")
            }
            Self::NotJson => format!("{answered} a body that is not JSON"),
            Self::Truncated => format!("{answered} a stream that ended before its end marker"),
        }
    }

    /// 502, with an error of ours.
    pub(super) fn presentation(self, route: Route, status: StatusCode) -> Presentation {
        let message = self.message(route, status);
        let body = error_body::of(route.dialect(), StatusCode::BAD_GATEWAY, self.kind(), &message);
        Presentation::Error { status: StatusCode::BAD_GATEWAY, body }
    }
}

/// The provider's error in the form of an error document: `error` as it stands in `around`, its
/// bytes unchanged. `None` if it is larger than any error has a reason to be, or neither object nor
/// text.
pub(super) fn error_document(
    dialect: Option<Dialect>,
    in_stream: bool,
    around: Value<'_>,
    error: Value<'_>,
    request_id: Option<&str>,
) -> Option<Bytes> {
    let is_anthropic = dialect == Some(Dialect::ANTHROPIC);
    let stands_on_top = around.get("error").is_some_and(|top| std::ptr::eq(top.raw(), error.raw()));
    let has_the_form = stands_on_top
        && if is_anthropic {
            error.is_object() && around.get("type").is_some_and(|kind| kind.str_is("error"))
        } else {
            // A stream's event holds more than the error: pieces of the answer.
            !in_stream || around.members().count() == 1
        };
    if has_the_form && around.raw().len() <= MAX_DOCUMENT {
        return Some(Bytes::copy_from_slice(around.raw()));
    }
    let is_error = matches!(error.kind(), Kind::Object | Kind::String);
    if !is_error || error.raw().len() > MAX_DOCUMENT {
        return None;
    }
    // Bytes, not text: a provider's string need not be UTF-8.
    let mut json = Vec::with_capacity(error.raw().len() + 64);
    let mut push = |part: &str| json.extend_from_slice(part.as_bytes());
    push(if is_anthropic { r#"{"type":"error","error":"# } else { r#"{"error":"# });
    match (error.is_object(), is_anthropic) {
        (true, _) => {}
        (false, true) => push(r#"{"type":"api_error","message":"#),
        (false, false) => push(r#"{"message":"#),
    }
    json.extend_from_slice(error.raw());
    if !error.is_object() {
        json.push(b'}');
    }
    if is_anthropic && let Some(id) = request_id {
        let mut quoted = String::from(r#","request_id":"#);
        quote(&mut quoted, id);
        json.extend_from_slice(quoted.as_bytes());
    }
    json.push(b'}');
    Some(json.into())
}

/// Google's errors with all details are a few KiB.
const MAX_DOCUMENT: usize = 64 * 1_024;
