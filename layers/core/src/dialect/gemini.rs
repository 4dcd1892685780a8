//! Google: the Gemini API.

use http::StatusCode;

use super::content::{is_filled, is_list};
use super::facts::{Endpoint, Facts, ModelPlace};
use super::notes::{Notes, Payload, Tokens};
use super::route::model_and_method;
use super::{ReasoningPlace, Seen, error_body, google};
use crate::Class;
use crate::json::Value;

pub(super) static FACTS: Facts = Facts {
    name: "gemini",
    model: ModelPlace::Path,
    // googleapis/python-genai google/genai/_api_client.py.
    credential: "x-goog-api-key",
    scheme: None,
    endpoint,
    // googleapis/python-genai google/genai/types.py, ThinkingConfig.thinking_level and ThinkingLevel.
    reasoning: |endpoint| {
        const PLACE: ReasoningPlace =
            ReasoningPlace::new(&["generationConfig", "thinkingConfig", "thinkingLevel"]);
        matches!(
            endpoint,
            Endpoint::GenerateContent | Endpoint::StreamGenerateContent | Endpoint::StreamArray
        )
        .then_some(PLACE)
    },
    state: &[],
    // No header was seen; the ID is the body's `responseId`.
    request_ids: &[],
    resets: &[],
    strong: STRONG,
    weak: WEAK,
    refine,
    document,
    event,
    // There is no end marker; the last chunk has the finish reason.
    whole: |notes| notes.choices.all_finished(),
    status: Class::status,
    error: |status, kind, message| error_body::google(status, status_word(status), kind, message),
    lacks: "no candidates",
};

/// `ErrorInfo.reason`: more exact than the status.
const STRONG: &[(&str, Class)] = &[
    // doc: Gemini API errors (sample body).
    ("API_KEY_INVALID", Class::Auth),
    // google-gemini/gemini-cli packages/core/src/utils/googleQuotaErrors.ts.
    ("MODEL_CAPACITY_EXHAUSTED", Class::Overloaded),
    ("MODEL_CAPACITY_EXCEEDED", Class::Overloaded),
];

/// `error.status`, should the numeric code be missing (doc: Gemini API errors).
const WEAK: &[(&str, Class)] = &[
    ("INVALID_ARGUMENT", Class::InvalidRequest),
    ("FAILED_PRECONDITION", Class::InvalidRequest),
    ("UNAUTHENTICATED", Class::Auth),
    ("PERMISSION_DENIED", Class::Auth),
    ("NOT_FOUND", Class::NotFound),
    ("RESOURCE_EXHAUSTED", Class::RateLimited),
    ("CANCELLED", Class::Transient),
    ("INTERNAL", Class::Transient),
    ("UNAVAILABLE", Class::Overloaded),
    ("DEADLINE_EXCEEDED", Class::Timeout),
];

/// Finish reasons that are no normal end (googleapis/python-genai google/genai/types.py,
/// FinishReason; google-gemini/gemini-cli packages/core/src/core/geminiChat.ts).
const FINISH: &[(&str, Class)] = &[
    ("SAFETY", Class::ContentRefused),
    ("RECITATION", Class::ContentRefused),
    ("BLOCKLIST", Class::ContentRefused),
    ("PROHIBITED_CONTENT", Class::ContentRefused),
    ("SPII", Class::ContentRefused),
    ("IMAGE_SAFETY", Class::ContentRefused),
    ("IMAGE_PROHIBITED_CONTENT", Class::ContentRefused),
    ("IMAGE_RECITATION", Class::ContentRefused),
    ("MODEL_ARMOR", Class::ContentRefused),
    ("ESCALATION", Class::ContentRefused),
    ("LANGUAGE", Class::ContentRefused),
    ("PUP_LIMITED_DISABLED", Class::ContentRefused),
    ("MALFORMED_FUNCTION_CALL", Class::Transient),
    ("UNEXPECTED_TOOL_CALL", Class::Transient),
    ("MALFORMED_RESPONSE", Class::Transient),
    ("MISSING_THOUGHT_SIGNATURE", Class::InvalidRequest),
];

/// Finish reasons that are a fault only of an answer without text or picture.
const EMPTY_FINISH: &[&str] = &["OTHER", "NO_IMAGE", "IMAGE_OTHER"];

/// A daily quota is terminal, whatever `RetryInfo` offers
/// (google-gemini/gemini-cli packages/core/src/utils/googleQuotaErrors.ts).
fn refine(error: Value<'_>, status: StatusCode) -> Option<Class> {
    let daily = status == StatusCode::TOO_MANY_REQUESTS
        && error.get("details").is_some_and(|details| google::Details::read(details).daily);
    daily.then_some(Class::QuotaExhausted)
}

/// The word that goes with a status (doc: Gemini API errors).
const fn status_word(status: StatusCode) -> &'static str {
    match status.as_u16() {
        401 => "UNAUTHENTICATED",
        403 => "PERMISSION_DENIED",
        404 | 410 => "NOT_FOUND",
        402 | 429 => "RESOURCE_EXHAUSTED",
        408 | 504 => "DEADLINE_EXCEEDED",
        409 => "ABORTED",
        499 => "CANCELLED",
        501 => "UNIMPLEMENTED",
        502 | 503 => "UNAVAILABLE",
        400..=499 => "INVALID_ARGUMENT",
        _ => "INTERNAL",
    }
}

/// googleapis/python-genai google/genai/models.py; Portkey-AI/gateway src/providers/google/api.ts.
fn endpoint(path: &str, query: &str) -> Option<Endpoint> {
    let (_, method) = model_and_method(path)?;
    Some(match method {
        "generateContent" => Endpoint::GenerateContent,
        "streamGenerateContent" => {
            let sse =
                query.split('&').any(|pair| matches!(pair, "alt=sse" | "$alt=sse" | "%24alt=sse"));
            if sse { Endpoint::StreamGenerateContent } else { Endpoint::StreamArray }
        }
        "embedContent" | "batchEmbedContents" => Endpoint::Embeddings,
        "countTokens" => Endpoint::CountTokens,
        _ => return None,
    })
}

fn document(answer: Value<'_>, endpoint: Endpoint, notes: &mut Notes) {
    match endpoint {
        Endpoint::Embeddings => {
            let [embedding, embeddings] = answer.get_many(["embedding", "embeddings"]);
            notes.answered = is_filled(embedding) || is_filled(embeddings);
            tokens(answer.get("usageMetadata"), notes);
        }
        Endpoint::CountTokens => {
            notes.answered =
                answer.get("totalTokens").is_some_and(|count| count.as_u64().is_some());
        }
        // The array of a stream, sent in one piece.
        _ if is_list(answer) => {
            for chunk in answer.elements() {
                self::chunk(chunk, notes);
            }
        }
        _ => {
            chunk(answer, notes);
        }
    }
}

fn event(_name: &str, payload: Payload<'_>, notes: &mut Notes) -> Seen {
    match payload {
        Payload::Done => Seen::Nothing,
        Payload::Json(event) => chunk(event, notes),
        // A picture, and perhaps the finish reason behind it.
        Payload::Oversized(_) => {
            notes.blind = true;
            notes.choices.speak_unread();
            notes.note_speech();
            Seen::Content
        }
    }
}

/// A whole answer, or one chunk of it: the two have the same form
/// (googleapis/python-genai google/genai/types.py, GenerateContentResponse; vercel/ai
/// packages/google/src/__fixtures__).
fn chunk(answer: Value<'_>, notes: &mut Notes) -> Seen {
    let [candidates, feedback, usage, model, id] = answer.get_many([
        "candidates",
        "promptFeedback",
        "usageMetadata",
        "modelVersion",
        "responseId",
    ]);
    notes.note_model(0, model);
    notes.note_request_id(id);
    tokens(usage, notes);
    let mut seen = Seen::Preamble;
    let mut any = false;
    let list = candidates.into_iter().flat_map(|list| list.elements());
    for (place, candidate) in (0..).zip(list).filter(|(_, candidate)| candidate.is_object()) {
        any = true;
        let [index, content, reason] = candidate.get_many(["index", "content", "finishReason"]);
        let index = index.and_then(|index| index.as_u64()).unwrap_or(place);
        notes.choices.see(index);
        notes.blind = false;
        let parts = content.and_then(|content| content.get("parts"));
        for part in parts.into_iter().flat_map(|list| list.elements()) {
            if self::part(part, index, notes) {
                seen = Seen::Content;
            }
        }
        if let Some(reason) = reason.and_then(|reason| reason.as_str()) {
            finished(index, &reason, notes);
        }
    }
    if !any
        && let Some(reason) = feedback.and_then(|feedback| feedback.get("blockReason"))
        && let Some(reason) = reason.as_str()
    {
        notes.choices.finish(0, Class::ContentRefused, &reason);
    }
    seen
}

fn finished(index: u64, reason: &str, notes: &mut Notes) {
    match super::facts::look_up(FINISH, reason) {
        Some(class) => notes.choices.finish(index, class, reason),
        None if reason.is_empty() || reason == "FINISH_REASON_UNSPECIFIED" => {}
        None if EMPTY_FINISH.contains(&reason) => {
            notes.choices.finish_if_silent(index, Class::Transient, reason);
        }
        None => notes.choices.finish(index, Class::Success, reason),
    }
}

/// Whether a part of the content holds anything: text, a call, data; not a signature alone.
fn part(part: Value<'_>, index: u64, notes: &mut Notes) -> bool {
    let [text, thought] = part.get_many(["text", "thought"]);
    let reasoning = thought.and_then(|thought| thought.as_bool()) == Some(true);
    if is_filled(text) && reasoning {
        notes.note_reasoning();
        return true;
    }
    let calls =
        part.get_many(["functionCall", "inlineData", "fileData", "executableCode", "toolCall"]);
    let results = part.get_many(["codeExecutionResult", "functionResponse", "toolResponse"]);
    let any = std::iter::once(text).chain(calls).chain(results).any(is_filled);
    if any {
        notes.choices.speak(index);
        notes.note_speech();
    }
    any
}

/// `thoughtsTokenCount` is generated, and not a part of `candidatesTokenCount`; in streams the
/// counts are cumulative and the last one holds.
fn tokens(usage: Option<Value<'_>>, notes: &mut Notes) {
    let Some(usage) = usage else { return };
    let [prompt, candidates, thoughts] =
        usage.get_many(["promptTokenCount", "candidatesTokenCount", "thoughtsTokenCount"]);
    Tokens::note(&mut notes.tokens.input, prompt);
    Tokens::note(&mut notes.tokens.output, candidates);
    Tokens::note(&mut notes.tokens.reasoning, thoughts);
}
