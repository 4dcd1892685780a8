//! The span of an attempt, under a target of its own: who does not ask for it sees calls alone.

use backstop_core::{CallContext, without_query};
use http::{Request, StatusCode};
use tracing::Span;
use tracing::field::{Empty, display};

use crate::attempt::open::Numbered;
use crate::record::AttemptFinished;

/// The span of an attempt that is about to leave.
pub(crate) fn open<B>(
    context: Option<&CallContext>,
    numbered: &Numbered,
    request: &Request<B>,
) -> Span {
    let span = tracing::debug_span!(
        target: "backstop::attempt",
        "llm attempt",
        otel.kind = "client",
        http.request.method = %request.method(),
        http.request.resend_count = numbered.number.saturating_sub(1),
        http.response.status_code = Empty,
        url.full = Empty,
        gen_ai.request.model = Empty,
        gen_ai.response.model = Empty,
        error.type = Empty,
        backstop.call.id = Empty,
        backstop.attempt = numbered.number,
        backstop.rung = numbered.rung,
        backstop.profile = Empty,
        backstop.wait_ms = Empty,
        backstop.wait_reason = Empty,
        backstop.class = Empty,
    );
    if span.is_disabled() {
        return span;
    }
    span.record("url.full", &*without_query(request.uri()));
    if let Some(id) = context.and_then(CallContext::id) {
        span.record("backstop.call.id", display(id));
    }
    if let Some(profile) = context.and_then(CallContext::profile) {
        span.record("backstop.profile", profile.id());
        span.record("gen_ai.request.model", profile.model());
    }
    if let Some((wait, reason)) = numbered.wait {
        span.record("backstop.wait_ms", u64::try_from(wait.as_millis()).unwrap_or(u64::MAX));
        span.record("backstop.wait_reason", reason.as_str());
    }
    span
}

/// The answer's head is there.
pub(crate) fn tell_status(span: &Span, status: StatusCode) {
    if !span.is_disabled() {
        span.record("http.response.status_code", status.as_u16());
    }
}

/// The attempt is over.
pub(crate) fn tell_end(span: &Span, finished: &AttemptFinished) {
    if span.is_disabled() {
        return;
    }
    span.record("backstop.class", finished.class);
    if finished.class != "success" {
        span.record("error.type", finished.class);
    }
    if let Some(model) = &finished.reported_model {
        span.record("gen_ai.response.model", &**model);
    }
}
