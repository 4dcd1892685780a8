//! Anthropic: the Messages API.

use http::StatusCode;

use super::content::{is_filled, is_list};
use super::facts::{Bucket, Endpoint, Facts, ModelPlace, REQUEST_ID, ResetForm, by_suffix};
use super::notes::{Notes, Payload, Tokens};
use super::scan::text_in_prefix;
use super::{ReasoningPlace, Seen, error_body};
use crate::Class;
use crate::json::Value;

pub(super) static FACTS: Facts = Facts {
    name: "anthropic",
    model: ModelPlace::Body,
    // anthropics/anthropic-sdk-python src/anthropic/_client.py.
    credential: "x-api-key",
    scheme: None,
    endpoint,
    // doc: Effort (platform.claude.com/docs/en/build-with-claude/effort): `output_config.effort`, on
    // every platform, without a beta header; `thinking` only says whether, and of old how many
    // tokens.
    reasoning: |endpoint| {
        (endpoint == Endpoint::Messages)
            .then_some(ReasoningPlace::new(&["output_config", "effort"]))
    },
    state: &[],
    request_ids: &[&REQUEST_ID],
    // doc: Rate limits - Claude Platform on AWS.
    resets: &[
        Bucket {
            remaining: "anthropic-ratelimit-requests-remaining",
            reset: "anthropic-ratelimit-requests-reset",
            form: ResetForm::Rfc3339,
        },
        Bucket {
            remaining: "anthropic-ratelimit-tokens-remaining",
            reset: "anthropic-ratelimit-tokens-reset",
            form: ResetForm::Rfc3339,
        },
        Bucket {
            remaining: "anthropic-ratelimit-input-tokens-remaining",
            reset: "anthropic-ratelimit-input-tokens-reset",
            form: ResetForm::Rfc3339,
        },
        Bucket {
            remaining: "anthropic-ratelimit-output-tokens-remaining",
            reset: "anthropic-ratelimit-output-tokens-reset",
            form: ResetForm::Rfc3339,
        },
    ],
    strong: STRONG,
    weak: WEAK,
    refine: |_, _| None,
    document,
    event,
    // `message_stop` is the end, and nothing else is.
    whole: |_| false,
    status,
    error: |status, kind, message| error_body::anthropic(error_type(status), kind, message),
    lacks: "no message",
};

/// `error.details.error_code`, then `error.type`: more exact than the status.
///
/// An `error_code` that is not in here leaves the word to `error.type`, as the SDK advises
/// (anthropics/anthropic-sdk-python src/anthropic/_exceptions.py).
const STRONG: &[(&str, Class)] = &[
    // doc: Anthropic API error 429 enforced_spend_limit_reached.
    ("enforced_spend_limit_reached", Class::QuotaExhausted),
    // anthropics/anthropic-sdk-python src/anthropic/types/shared/*_error.py.
    ("contract_spend_limit_reached", Class::QuotaExhausted),
    ("linked_organization_spend_limit_reached", Class::QuotaExhausted),
    ("linked_organization_billing_unavailable", Class::QuotaExhausted),
    ("ramp_limit_exceeded", Class::RateLimited),
    ("organization_on_hold", Class::Auth),
    ("user_profile_not_billable", Class::Auth),
    ("user_profile_billing_not_authorized", Class::Auth),
    ("sandbox_egress_restricted", Class::Auth),
    ("request_body_too_large_after_decoding", Class::TooLarge),
    ("cmek_context_unavailable", Class::Overloaded),
    ("cmek_key_unreachable", Class::Overloaded),
    ("compaction_unavailable", Class::Overloaded),
    // doc: Claude API errors; anthropics/anthropic-sdk-python src/anthropic/types/shared/error_type.py.
    ("authentication_error", Class::Auth),
    ("permission_error", Class::Auth),
    ("not_found_error", Class::NotFound),
    ("billing_error", Class::QuotaExhausted),
    ("request_too_large", Class::TooLarge),
    ("rate_limit_error", Class::RateLimited),
    ("timeout_error", Class::Timeout),
    ("overloaded_error", Class::Overloaded),
];

/// Types inside a 2xx, where no status decides; beside another status they are too broad to beat it.
const WEAK: &[(&str, Class)] = &[
    ("invalid_request_error", Class::InvalidRequest),
    ("conflict_error", Class::Transient),
    ("api_error", Class::Transient),
];

/// The status under which the API would have sent an error (doc: Claude API errors).
const fn status(class: Class) -> StatusCode {
    match class {
        Class::Overloaded => OVERLOADED,
        Class::Auth => StatusCode::UNAUTHORIZED,
        class => class.status(),
    }
}

/// The `error.type` that goes with a status (doc: Claude API errors).
const fn error_type(status: StatusCode) -> &'static str {
    match status.as_u16() {
        401 | 407 => "authentication_error",
        402 => "billing_error",
        403 => "permission_error",
        404 | 410 => "not_found_error",
        409 => "conflict_error",
        413 => "request_too_large",
        429 => "rate_limit_error",
        503 | 529 => "overloaded_error",
        408 | 504 => "timeout_error",
        400..=499 => "invalid_request_error",
        _ => "api_error",
    }
}

const OVERLOADED: StatusCode = match StatusCode::from_u16(529) {
    Ok(status) => status,
    Err(_) => StatusCode::SERVICE_UNAVAILABLE,
};

/// anthropics/anthropic-sdk-python src/anthropic/resources/messages/messages.py. OpenAI's threads
/// have messages too.
fn endpoint(path: &str, _query: &str) -> Option<Endpoint> {
    let endpoint = by_suffix(
        path,
        &[("/messages", Endpoint::Messages), ("/messages/count_tokens", Endpoint::CountTokens)],
    )?;
    (!path.contains("/threads/")).then_some(endpoint)
}

fn document(answer: Value<'_>, endpoint: Endpoint, notes: &mut Notes) {
    if endpoint == Endpoint::CountTokens {
        notes.answered = answer.get("input_tokens").is_some_and(|count| count.as_u64().is_some());
    } else {
        message(answer, notes);
    }
}

/// A message, whole or as `message_start` holds it.
///
/// Sources: anthropics/anthropic-sdk-python src/anthropic/types/message.py,
/// types/beta/beta_fallback_block.py.
fn message(message: Value<'_>, notes: &mut Notes) {
    let [model, usage, content, stop] =
        message.get_many(["model", "usage", "content", "stop_reason"]);
    notes.note_model(RANK_MESSAGE, model);
    tokens(usage, notes);
    for block in content.into_iter().flat_map(|list| list.elements()) {
        notes.answered |= block.is_object();
        self::block(block, notes);
    }
    // A message may be silent if it says why it stopped; the SDKs cannot read one without a list.
    let is_refusal = stop.is_some_and(|stop| stop.str_is("refusal"));
    if is_refusal || content.is_some_and(is_list) {
        stopped(stop, notes);
    }
}

/// A block of content, as it stands when it begins: whether it holds anything yet.
fn block(block: Value<'_>, notes: &mut Notes) -> Seen {
    let [kind, text, thinking, data, to] =
        block.get_many(["type", "text", "thinking", "data", "to"]);
    let kind = kind.and_then(|kind| kind.as_str()).unwrap_or_default();
    match &*kind {
        "text" if is_filled(text) => notes.note_speech(),
        "thinking" if is_filled(thinking) => notes.note_reasoning(),
        "redacted_thinking" if is_filled(data) => notes.note_reasoning(),
        // A call is named where it begins.
        "tool_use" | "server_tool_use" | "mcp_tool_use" => notes.note_speech(),
        _ if kind.ends_with("_tool_result") => notes.note_speech(),
        "fallback" => {
            notes.note_model(RANK_FALLBACK, to.and_then(|to| to.get("model")));
            return Seen::Preamble;
        }
        _ => return Seen::Preamble,
    }
    Seen::Content
}

/// Why the message stopped. All reasons but one are normal ends
/// (anthropics/anthropic-sdk-python src/anthropic/types/stop_reason.py).
fn stopped(reason: Option<Value<'_>>, notes: &mut Notes) {
    if let Some(reason) = reason.and_then(|reason| reason.as_str()) {
        let class = if reason == "refusal" { Class::ContentRefused } else { Class::Success };
        notes.choices.finish(0, class, &reason);
    }
}

/// Sources: anthropics/anthropic-sdk-python src/anthropic/_streaming.py; vercel/ai
/// packages/anthropic/src/anthropic-language-model.ts. Unknown events are to be ignored; the JSON
/// `type` suffices where a proxy dropped the `event:` lines.
fn event(name: &str, payload: Payload<'_>, notes: &mut Notes) -> Seen {
    match payload {
        Payload::Done => Seen::Nothing,
        Payload::Json(event) => {
            let kind = event.get("type").and_then(|kind| kind.as_str());
            typed_event(kind.as_deref().unwrap_or(name), event, notes)
        }
        Payload::Oversized(prefix) => {
            if text_in_prefix(prefix, "type").unwrap_or(name) == "content_block_delta" {
                notes.note_speech();
                return Seen::Content;
            }
            Seen::Preamble
        }
    }
}

fn typed_event(kind: &str, event: Value<'_>, notes: &mut Notes) -> Seen {
    match kind {
        "message_start" => {
            // Proxies splice a second one into a running message (vercel/ai
            // packages/anthropic/src/__fixtures__/spliced-message-start.chunks.txt).
            if !notes.typed
                && let Some(message) = event.get("message")
            {
                self::message(message, notes);
            }
            notes.typed = true;
            Seen::Preamble
        }
        "content_block_start" => {
            event.get("content_block").map_or(Seen::Preamble, |block| self::block(block, notes))
        }
        "content_block_delta" => {
            let Some(delta) = event.get("delta") else { return Seen::Preamble };
            let [text, json, thinking] = delta.get_many(["text", "partial_json", "thinking"]);
            if is_filled(text) || is_filled(json) {
                notes.note_speech();
            } else if is_filled(thinking) {
                notes.note_reasoning();
            } else {
                return Seen::Preamble;
            }
            Seen::Content
        }
        "message_delta" => {
            let [delta, usage] = event.get_many(["delta", "usage"]);
            tokens(usage, notes);
            stopped(delta.and_then(|delta| delta.get("stop_reason")), notes);
            Seen::Preamble
        }
        "message_stop" => Seen::End,
        _ => Seen::Preamble,
    }
}

/// Input is what was sent, what was written to the cache, and what was read from it; streams send
/// the counts in `message_start` and, cumulative, in `message_delta`. After a server-side fallback
/// the iterations name the model that really served
/// (vercel/ai packages/anthropic/src/__fixtures__/anthropic-fallback.chunks.txt).
fn tokens(usage: Option<Value<'_>>, notes: &mut Notes) {
    let Some(usage) = usage else { return };
    let [input, creation, read, output, iterations] = usage.get_many([
        "input_tokens",
        "cache_creation_input_tokens",
        "cache_read_input_tokens",
        "output_tokens",
        "iterations",
    ]);
    Tokens::note(&mut notes.tokens.input, input);
    Tokens::note(&mut notes.tokens.cache_creation, creation);
    Tokens::note(&mut notes.tokens.cache_read, read);
    Tokens::note(&mut notes.tokens.output, output);
    for iteration in iterations.into_iter().flat_map(|list| list.elements()) {
        let [kind, model] = iteration.get_many(["type", "model"]);
        if kind.is_some_and(|kind| kind.str_is("fallback_message")) {
            notes.note_model(RANK_ITERATION, model);
        }
    }
}

const RANK_MESSAGE: u8 = 0;
const RANK_FALLBACK: u8 = 1;
const RANK_ITERATION: u8 = 2;
