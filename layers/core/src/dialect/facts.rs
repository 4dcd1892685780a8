//! What a dialect is made of.

use http::{HeaderName, StatusCode};

use super::notes::{Notes, Payload};
use super::{ReasoningPlace, Seen};
use crate::Class;
use crate::json::Value;

/// Everything that sets one provider's API apart from the others.
///
/// One `static` of this per dialect, in the dialect's own file. The functions only say what an
/// answer contains; what follows from it is decided in one place for all dialects.
pub(super) struct Facts {
    /// The word in configs and records.
    pub(super) name: &'static str,
    /// Where the model stands in a request.
    pub(super) model: ModelPlace,
    /// The header that carries the credential, in lower case.
    pub(super) credential: &'static str,
    /// What stands before the key in that header.
    pub(super) scheme: Option<&'static str>,
    /// Which part of the API a path names; `None` if it is not this API's.
    pub(super) endpoint: fn(path: &str, query: &str) -> Option<Endpoint>,
    /// Where the reasoning effort stands in a request to an endpoint.
    pub(super) reasoning: fn(Endpoint) -> Option<ReasoningPlace>,
    /// Top-level keys of a request that continue state at the server.
    pub(super) state: &'static [State],
    /// Headers of an answer that name the request, in order of preference.
    pub(super) request_ids: &'static [&'static HeaderName],
    /// Buckets of rate limits, for hints; see [`super::resets`].
    pub(super) resets: &'static [Bucket],
    /// Codes that say more than the status does.
    pub(super) strong: &'static [(&'static str, Class)],
    /// Codes that only repeat a status: they decide where no status does, inside a 2xx.
    pub(super) weak: &'static [(&'static str, Class)],
    /// Reads an error object further than its code, given the status it stands for.
    pub(super) refine: fn(error: Value<'_>, status: StatusCode) -> Option<Class>,
    /// Reads a whole answer.
    pub(super) document: fn(Value<'_>, Endpoint, &mut Notes),
    /// Reads one event of a stream.
    pub(super) event: fn(name: &str, Payload<'_>, &mut Notes) -> Seen,
    /// Whether a stream that ends here has ended well, although no end marker was seen.
    pub(super) whole: fn(&Notes) -> bool,
    /// The status that stands for a class inside a 2xx.
    pub(super) status: fn(Class) -> StatusCode,
    /// Writes an error of ours: status, kind, message.
    pub(super) error: fn(StatusCode, &str, &str) -> String,
    /// What an answer that has no answer in it lacks, for people.
    pub(super) lacks: &'static str,
}

// Names that were looked at once, when this was compiled.
pub(super) static REQUEST_ID: HeaderName = HeaderName::from_static("request-id");
pub(super) static X_OAI_REQUEST_ID: HeaderName = HeaderName::from_static("x-oai-request-id");
pub(super) static X_REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");

/// A top-level key that makes a request continue state at the server.
#[derive(Clone, Copy)]
pub(super) enum State {
    /// If its value is anything but null.
    Present(&'static str),
    /// If its value is true.
    True(&'static str),
}

/// The headers of one bucket of a rate limit.
#[derive(Clone, Copy)]
pub(super) struct Bucket {
    /// What is left in it.
    pub(super) remaining: &'static str,
    /// When it is full again.
    pub(super) reset: &'static str,
    /// How that is written.
    pub(super) form: ResetForm,
}

/// The ways in which providers write a reset. One value means different things at different
/// providers, so it is never read without knowing whose it is.
#[derive(Clone, Copy)]
pub(super) enum ResetForm {
    /// `6m0s`, `120ms` (OpenAI; doc: OpenAI rate limits guide).
    GoDuration,
    /// `2026-01-01T00:00:42Z` (Anthropic; doc: Rate limits).
    Rfc3339,
}

/// Where the model stands in a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ModelPlace {
    /// The top-level key `model` of the body.
    Body,
    /// A segment of the path: `/models/{model}:generateContent`.
    Path,
}

/// Which part of an API a request is for, as far as it matters to the answer's meaning.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Endpoint {
    /// OpenAI `/chat/completions`.
    ChatCompletions,
    /// OpenAI's older `/completions`.
    Completions,
    /// Token counting: Anthropic `/messages/count_tokens`, Gemini `:countTokens`.
    CountTokens,
    /// OpenAI `/embeddings`, Gemini `:embedContent` and `:batchEmbedContents`.
    Embeddings,
    /// Gemini `:generateContent`.
    GenerateContent,
    /// Anthropic `/messages`.
    Messages,
    /// Anything else: judged by status and error objects alone.
    #[default]
    Other,
    /// OpenAI `/responses`.
    Responses,
    /// Gemini `:streamGenerateContent` without `alt=sse`: a JSON array in pieces.
    StreamArray,
    /// Gemini `:streamGenerateContent` with `alt=sse`.
    StreamGenerateContent,
}

/// In what an answer is wrapped.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Framing {
    /// One document, judged when it is whole. Every answer whose status is not 2xx is one.
    Document,
    /// The elements of one JSON array, sent one by one (Gemini without `alt=sse`).
    JsonArray,
    /// Server-sent events.
    Sse,
}

/// The endpoint whose path ends with one of `suffixes`, each of which begins with a slash.
pub(super) fn by_suffix(path: &str, suffixes: &[(&str, Endpoint)]) -> Option<Endpoint> {
    let path = path.trim_end_matches('/');
    suffixes.iter().find(|(suffix, _)| path.ends_with(suffix)).map(|(_, endpoint)| *endpoint)
}

/// What `table` says of `word`.
pub(super) fn look_up(table: &[(&str, Class)], word: &str) -> Option<Class> {
    table.iter().find(|(code, _)| *code == word).map(|(_, class)| *class)
}
