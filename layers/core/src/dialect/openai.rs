//! OpenAI: Chat Completions, Responses, Embeddings; and servers that speak the same.

use http::StatusCode;

use super::content::is_filled;
use super::facts::{
    Bucket, Endpoint, Facts, ModelPlace, ResetForm, State, X_OAI_REQUEST_ID, X_REQUEST_ID,
    by_suffix,
};
use super::failure::{self, Failure};
use super::notes::{Notes, Payload, Tokens};
use super::scan::text_in_prefix;
use super::{ReasoningPlace, Seen, error_body};
use crate::Class;
use crate::json::Value;

pub(super) static FACTS: Facts = Facts {
    name: "openai",
    model: ModelPlace::Body,
    // openai/openai-openapi openapi.json.
    credential: "authorization",
    scheme: Some("Bearer"),
    endpoint,
    reasoning,
    // openai/openai-openapi openapi.json, CreateResponse.
    state: &[
        State::Present("previous_response_id"),
        State::Present("conversation"),
        State::True("background"),
    ],
    // openai/codex codex-rs/codex-api/src/api_bridge.rs.
    request_ids: &[&X_REQUEST_ID, &X_OAI_REQUEST_ID],
    // doc: OpenAI rate limits guide.
    resets: &[
        Bucket {
            remaining: "x-ratelimit-remaining-requests",
            reset: "x-ratelimit-reset-requests",
            form: ResetForm::GoDuration,
        },
        Bucket {
            remaining: "x-ratelimit-remaining-tokens",
            reset: "x-ratelimit-reset-tokens",
            form: ResetForm::GoDuration,
        },
    ],
    strong: STRONG,
    weak: WEAK,
    refine: |_, _| None,
    document,
    event,
    whole,
    status: Class::status,
    error: |status, kind, message| error_body::openai(error_type(status), kind, message),
    lacks: "no choices",
};

/// `error.code`, else `error.type`: more exact than the status.
const STRONG: &[(&str, Class)] = &[
    // openai/codex codex-rs/codex-api/src/sse/responses.rs, api_bridge.rs.
    ("context_length_exceeded", Class::ContextWindowExceeded),
    ("cyber_policy", Class::ContentRefused),
    ("server_is_overloaded", Class::Overloaded),
    ("usage_limit_reached", Class::QuotaExhausted),
    ("usage_not_included", Class::QuotaExhausted),
    // openai/openai-openapi openapi.json, ResponseErrorCode; openai/openai-python
    // src/openai/types/responses/response_error.py.
    ("bio_policy", Class::ContentRefused),
    ("image_content_policy_violation", Class::ContentRefused),
    ("misalignment_policy_violation", Class::ContentRefused),
    ("image_too_large", Class::TooLarge),
    ("image_file_too_large", Class::TooLarge),
    ("vector_store_timeout", Class::Timeout),
    // The code of Azure's refusals, and of OpenAI's own (issue openai/openai-dotnet#55).
    ("content_filter", Class::ContentRefused),
    // doc: OpenAI error codes guide.
    ("invalid_api_key", Class::Auth),
    ("unsupported_country_region_territory", Class::Auth),
    ("model_not_found", Class::NotFound),
    // doc: Microsoft Dev Proxy, Test OpenAI rate limit handling; doc: OpenAI API error 429
    // credit_balance_exhausted.
    ("insufficient_quota", Class::QuotaExhausted),
    ("credit_balance_exhausted", Class::QuotaExhausted),
    ("organization_spend_limit_exceeded", Class::QuotaExhausted),
    ("project_spend_limit_exceeded", Class::QuotaExhausted),
    ("organization_usage_limit_exceeded", Class::QuotaExhausted),
];

/// Codes inside a 2xx, where no status decides.
const WEAK: &[(&str, Class)] = &[
    ("server_error", Class::Transient),
    ("rate_limit_exceeded", Class::RateLimited),
    ("rate_limit_error", Class::RateLimited),
    ("service_unavailable_error", Class::Overloaded),
    // codex counts it as overload; at 429 and 503 the status decides.
    ("slow_down", Class::Overloaded),
    ("timeout", Class::Timeout),
    ("invalid_prompt", Class::InvalidRequest),
    ("invalid_request_error", Class::InvalidRequest),
    // openai/openai-openapi openapi.json, ResponseErrorCode.
    ("data_residency_mismatch", Class::InvalidRequest),
    ("invalid_image", Class::InvalidRequest),
    ("invalid_image_format", Class::InvalidRequest),
    ("invalid_image_mode", Class::InvalidRequest),
    ("invalid_image_url", Class::InvalidRequest),
    ("invalid_base64_image", Class::InvalidRequest),
    ("image_too_small", Class::InvalidRequest),
    ("unsupported_image_media_type", Class::InvalidRequest),
    ("image_parse_error", Class::InvalidRequest),
    ("empty_image_file", Class::InvalidRequest),
    ("failed_to_download_image", Class::InvalidRequest),
    ("image_file_not_found", Class::InvalidRequest),
];

/// The `error.type` of an error of ours. The SDKs choose their exception by the status alone
/// (openai/openai-python src/openai/_client.py).
pub(super) const fn error_type(status: StatusCode) -> &'static str {
    match status.as_u16() {
        401 | 407 => "authentication_error",
        403 => "permission_error",
        404 | 410 => "not_found_error",
        402 => "insufficient_quota",
        429 => "rate_limit_error",
        400..=499 => "invalid_request_error",
        503 | 529 => "service_unavailable_error",
        _ => "server_error",
    }
}

/// openai/openai-openapi openapi.json, paths.
fn endpoint(path: &str, _query: &str) -> Option<Endpoint> {
    by_suffix(
        path,
        &[
            ("/chat/completions", Endpoint::ChatCompletions),
            ("/responses", Endpoint::Responses),
            ("/embeddings", Endpoint::Embeddings),
            ("/completions", Endpoint::Completions),
        ],
    )
}

/// openai/openai-openapi openapi.json: CreateChatCompletionRequest `reasoning_effort`,
/// CreateResponse `reasoning.effort`.
fn reasoning(endpoint: Endpoint) -> Option<ReasoningPlace> {
    match endpoint {
        Endpoint::ChatCompletions => Some(ReasoningPlace::new(&["reasoning_effort"])),
        Endpoint::Responses => Some(ReasoningPlace::new(&["reasoning", "effort"])),
        _ => None,
    }
}

fn document(answer: Value<'_>, endpoint: Endpoint, notes: &mut Notes) {
    match endpoint {
        Endpoint::Responses => response(answer, notes),
        Endpoint::Embeddings => {
            let [model, usage, data] = answer.get_many(["model", "usage", "data"]);
            notes.note_model(0, model);
            tokens(usage, notes);
            notes.answered = data.is_some_and(|data| data.elements().any(is_embedding));
        }
        _ => {
            chat(answer, notes);
        }
    }
}

/// One vector, or whatever a server gives in its place: several (`embeddings`) or a sparse one
/// (`sparse_embedding`).
fn is_embedding(item: Value<'_>) -> bool {
    item.members().any(|(key, value)| key.as_str().contains("embedding") && is_filled(Some(value)))
}

/// A chat completion, or one chunk of it.
///
/// Sources: openai/openai-openapi openapi.json, CreateChatCompletionResponse and
/// CreateChatCompletionStreamResponse; vercel/ai packages/{groq,deepseek,openai-compatible}/src for
/// the names of reasoning.
fn chat(answer: Value<'_>, notes: &mut Notes) -> Seen {
    let [model, usage, choices] = answer.get_many(["model", "usage", "choices"]);
    notes.note_model(0, model);
    tokens(usage, notes);
    let mut seen = Seen::Preamble;
    let list = choices.into_iter().flat_map(|list| list.elements());
    for (place, choice) in (0..).zip(list).filter(|(_, choice)| choice.is_object()) {
        let [index, delta, message, text, reason] =
            choice.get_many(["index", "delta", "message", "text", "finish_reason"]);
        let index = index.and_then(|index| index.as_u64()).unwrap_or(place);
        notes.choices.see(index);
        notes.blind = false;
        if is_filled(text) {
            notes.note_speech();
            seen = seen.max(Seen::Content);
        }
        for message in [delta, message].into_iter().flatten() {
            if spoken(message, notes) {
                seen = seen.max(Seen::Content);
            }
        }
        if let Some(reason) = reason.and_then(|reason| reason.as_str()).filter(|r| !r.is_empty()) {
            match &*reason {
                "content_filter" => notes.choices.finish(index, Class::ContentRefused, &reason),
                // Mistral, and OpenRouter beside an error object (mistralai/client-python
                // src/mistralai/client/models/chatcompletionchoice.py).
                "error" => notes.choices.finish(index, Class::Transient, &reason),
                _ => notes.choices.finish(index, Class::Success, &reason),
            }
        }
    }
    seen
}

/// Whether a message, or a delta of one, says anything: speech, a refusal, reasoning.
fn spoken(message: Value<'_>, notes: &mut Notes) -> bool {
    let [content, tool_calls, function_call, audio, images, refusal, thoughts @ ..] = message
        .get_many([
            "content",
            "tool_calls",
            "function_call",
            "audio",
            "images",
            "refusal",
            "reasoning",
            "reasoning_content",
            "reasoning_details",
        ]);
    let speaks = [content, tool_calls, function_call, audio, images].into_iter().any(is_filled);
    let declines = is_filled(refusal);
    let reasons = thoughts.into_iter().any(is_filled);
    if speaks {
        notes.note_speech();
    }
    if declines {
        notes.note_refusal();
    }
    if reasons {
        notes.note_reasoning();
    }
    speaks || declines || reasons
}

/// A response of the Responses API, as a document or in an event.
///
/// Source: openai/openai-openapi openapi.json, Response.
fn response(answer: Value<'_>, notes: &mut Notes) {
    let [model, usage, status, details, output] =
        answer.get_many(["model", "usage", "status", "incomplete_details", "output"]);
    notes.note_model(0, model);
    tokens(usage, notes);
    for item in output.into_iter().flat_map(|list| list.elements()) {
        let [kind, content] = item.get_many(["type", "content"]);
        let kind = kind.and_then(|kind| kind.as_str()).unwrap_or_default();
        match &*kind {
            "reasoning" => notes.answered = true,
            "message" => {
                notes.answered = true;
                for part in content.into_iter().flat_map(|list| list.elements()) {
                    let [text, refusal] = part.get_many(["text", "refusal"]);
                    if is_filled(refusal) {
                        notes.note_refusal();
                    } else if is_filled(text) {
                        notes.note_speech();
                    }
                }
            }
            "" => {}
            _ => notes.note_speech(),
        }
    }
    let status = status.and_then(|status| status.as_str());
    match status.as_deref() {
        // A response that is made in the background.
        Some("in_progress" | "queued") => notes.answered = true,
        Some("failed") => notes.note_failure(Failure::default()),
        Some("cancelled") => notes.note_failure(Failure::of_finish(Class::Transient, "cancelled")),
        Some("incomplete") => {
            let reason = details.and_then(|details| failure::text(details, "reason"));
            match reason.as_deref() {
                Some(reason @ "content_filter") => {
                    notes.choices.finish(0, Class::ContentRefused, reason);
                }
                _ => notes.choices.finish(0, Class::Success, "incomplete"),
            }
        }
        Some("completed") => notes.choices.finish(0, Class::Success, "completed"),
        _ => {}
    }
}

fn event(name: &str, payload: Payload<'_>, notes: &mut Notes) -> Seen {
    match payload {
        // The Responses API has no `[DONE]`; a front that adds one does not make it whole.
        Payload::Done if notes.typed => Seen::Nothing,
        Payload::Done => Seen::End,
        Payload::Json(event) => {
            let kind = event.get("type").and_then(|kind| kind.as_str());
            match kind {
                Some(kind) if kind.starts_with("response.") => typed_event(&kind, event, notes),
                // A keep-alive, or something that is new: what has no choices is no chat chunk.
                Some(_) if event.get("choices").is_none() => Seen::Preamble,
                _ => chat(event, notes),
            }
        }
        Payload::Oversized(prefix) => {
            let kind = text_in_prefix(prefix, "type").unwrap_or(name);
            oversized(kind, notes)
        }
    }
}

/// An event of the Responses API, whose end is a terminal event.
///
/// Sources: openai/openai-openapi openapi.json, ResponseStreamEvent; openai/codex
/// codex-rs/codex-api/src/sse/responses.rs; vercel/ai
/// packages/openai/src/responses/__fixtures__/openai-error.1.chunks.txt.
fn typed_event(kind: &str, event: Value<'_>, notes: &mut Notes) -> Seen {
    notes.typed = true;
    if let Some(answer) = event.get("response") {
        match kind {
            // What these hold is the request's echo, not an answer.
            "response.created" | "response.in_progress" | "response.queued" => {
                notes.note_model(0, answer.get("model"));
            }
            _ => response(answer, notes),
        }
    }
    match kind {
        "response.completed" | "response.incomplete" => {
            // It says of the response what its `status` should.
            notes.answered |= event.get("response").is_some_and(|answer| answer.is_object());
            Seen::End
        }
        // An error may still follow (Azure: issue earendil-works/pi#7983), so this is not the end.
        "response.failed" => {
            notes.note_failure(Failure::default());
            Seen::Preamble
        }
        _ if kind.ends_with(".delta") => {
            if !is_filled(event.get("delta")) {
                return Seen::Preamble;
            }
            if kind.contains("reasoning") {
                notes.note_reasoning();
            } else if kind.contains("refusal") {
                notes.note_refusal();
            } else {
                notes.note_speech();
            }
            Seen::Content
        }
        // A whole item, for which there need not have been a delta.
        "response.output_item.done" => {
            let kind = event.get("item").and_then(|item| item.get("type"));
            if kind.is_none_or(|kind| kind.str_is("reasoning") || kind.str_is("message")) {
                return Seen::Preamble;
            }
            notes.note_speech();
            Seen::Content
        }
        "response.image_generation_call.partial_image" => {
            notes.note_speech();
            Seen::Content
        }
        _ => Seen::Preamble,
    }
}

/// An event too large to be read: pictures and whole answers are.
fn oversized(kind: &str, notes: &mut Notes) -> Seen {
    notes.typed |= kind.starts_with("response.");
    match kind {
        "response.completed" | "response.incomplete" => {
            notes.note_speech();
            Seen::End
        }
        "response.created" | "response.in_progress" | "response.queued" => Seen::Preamble,
        "response.failed" => {
            notes.note_failure(Failure::default());
            Seen::Failed
        }
        _ => {
            notes.blind |= !notes.typed;
            notes.note_speech();
            Seen::Content
        }
    }
}

/// Chat and embeddings: `prompt_tokens`, `completion_tokens`; Responses: `input_tokens`,
/// `output_tokens`. Embeddings generate nothing, so their output is 0.
fn tokens(usage: Option<Value<'_>>, notes: &mut Notes) {
    let Some(usage) = usage else { return };
    let [prompt, completion, input, output] =
        usage.get_many(["prompt_tokens", "completion_tokens", "input_tokens", "output_tokens"]);
    Tokens::note(&mut notes.tokens.input, input);
    Tokens::note(&mut notes.tokens.input, prompt);
    Tokens::note(&mut notes.tokens.output, output);
    Tokens::note(&mut notes.tokens.output, completion);
}

/// A chat stream that lacks `[DONE]` is whole once every choice has its finish reason: the SDK ends
/// quietly there.
const fn whole(notes: &Notes) -> bool {
    !notes.typed && notes.choices.all_finished()
}
