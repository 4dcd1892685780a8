//! The span of a call: one, whatever the retries, with the names of OpenTelemetry's conventions for
//! generative AI.

use backstop_core::dialect::{Dialect, Endpoint, Route};
use backstop_core::{CallContext, CallId, Verdict};
use tracing::Span;
use tracing::field::Empty;

use crate::provenance::handle::Told;
use crate::record::Outcome;

/// The span of the call that `context` tells of. Where nobody wants it, it costs a look at a flag.
pub(crate) fn open(context: &CallContext, id: CallId) -> Span {
    let labels = context.labels();
    tracing::info_span!(
        target: "backstop",
        "llm call",
        otel.kind = "client",
        gen_ai.operation.name = Empty,
        gen_ai.provider.name = Empty,
        gen_ai.request.model = Empty,
        gen_ai.response.model = Empty,
        gen_ai.usage.input_tokens = Empty,
        gen_ai.usage.output_tokens = Empty,
        http.response.status_code = Empty,
        error.type = Empty,
        backstop.call.id = %id,
        backstop.run = labels.run.as_deref(),
        backstop.node = labels.node.as_deref(),
        backstop.lane = labels.lane.as_deref(),
        backstop.profile = Empty,
        backstop.attempts = Empty,
        backstop.waited_ms = Empty,
        backstop.fallback = Empty,
        backstop.outcome = Empty,
    )
}

/// What the request is.
pub(crate) fn tell_request(span: &Span, route: Route, model: Option<&str>) {
    if span.is_disabled() {
        return;
    }
    span.record("gen_ai.operation.name", operation(route.endpoint()));
    if let Some(dialect) = route.dialect() {
        span.record("gen_ai.provider.name", provider(dialect));
    }
    if let Some(model) = model {
        span.record("gen_ai.request.model", model);
    }
}

/// How the call ended; `failure` is a word for what failed.
pub(crate) fn tell_end(span: &Span, told: &Told, outcome: Outcome, failure: Option<&str>) {
    let attempts = told.context.attempts();
    let waited = told.context.waited_through().as_millis();
    let waited_ms = u64::try_from(waited).unwrap_or(u64::MAX);
    if !span.is_disabled() {
        let verdict = told.answer.get().and_then(|answer| answer.verdict());
        tell_verdict(span, verdict);
        if let Some(profile) = told.profile() {
            span.record("gen_ai.provider.name", provider(profile.dialect()));
            span.record("backstop.profile", profile.id());
        }
        if let Some(failure) = failure {
            span.record("error.type", failure);
        }
        span.record("backstop.attempts", attempts);
        span.record("backstop.waited_ms", waited_ms);
        span.record("backstop.fallback", told.rung() != 0);
        span.record("backstop.outcome", outcome.as_str());
    }
    let outcome_word = outcome.as_str();
    if outcome == Outcome::Incomplete {
        tracing::warn!(
            target: "backstop", parent: span,
            outcome = outcome_word, failure, attempts, waited_ms, "the call is over"
        );
    } else {
        tracing::info!(
            target: "backstop", parent: span,
            outcome = outcome_word, failure, attempts, waited_ms, "the call is over"
        );
    }
}

fn tell_verdict(span: &Span, verdict: Option<&Verdict>) {
    let Some(verdict) = verdict else { return };
    if let Some(model) = verdict.model() {
        span.record("gen_ai.response.model", model);
    }
    if let Some(usage) = verdict.usage() {
        span.record("gen_ai.usage.input_tokens", usage.input_tokens);
        span.record("gen_ai.usage.output_tokens", usage.output_tokens);
    }
}

/// OpenTelemetry's well-known values of `gen_ai.operation.name`, and words of our own for the rest.
fn operation(endpoint: Endpoint) -> &'static str {
    match endpoint {
        Endpoint::ChatCompletions | Endpoint::Messages | Endpoint::Responses => "chat",
        Endpoint::Completions => "text_completion",
        Endpoint::CountTokens => "count_tokens",
        Endpoint::Embeddings => "embeddings",
        Endpoint::GenerateContent | Endpoint::StreamArray | Endpoint::StreamGenerateContent => {
            "generate_content"
        }
        _ => "other",
    }
}

/// OpenTelemetry's well-known values of `gen_ai.provider.name`.
fn provider(dialect: Dialect) -> &'static str {
    if dialect == Dialect::GEMINI { "gcp.gemini" } else { dialect.name() }
}
