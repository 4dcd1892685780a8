//! What records say in words.

use std::any::Any;

use backstop_core::dialect::Route;
use backstop_core::error::Error;
use backstop_core::{RequestBody, Verdict, scrub};
use http::Request;

use crate::keep::MAX_TEXT;

/// The model that a request asks for. A body of another type than ours is not read.
pub(crate) fn model_of<B: 'static>(route: Route, request: &Request<B>) -> Option<Box<str>> {
    let dialect = route.dialect()?;
    let body = (request.body() as &dyn Any).downcast_ref::<RequestBody>();
    let body = body.map(RequestBody::to_bytes).unwrap_or_default();
    dialect.requested_model(request.uri(), &body).map(|model| scrub(&model, MAX_MODEL).into())
}

/// What an error says, and the one that it stands for.
pub(crate) fn of_error(error: &Error) -> Box<str> {
    let text = match error {
        Error::Ledger(source) | Error::RequestBody(source) => format!("{error}: {source}"),
        error => error.to_string(),
    };
    scrub(&text, MAX_TEXT).into()
}

/// What a verdict says, in the words of the provider if it has some.
pub(crate) fn of_verdict(verdict: &Verdict) -> Box<str> {
    let mut text = verdict.class().to_string();
    if let Some(status) = verdict.status() {
        text.push_str(&format!(", status {}", status.as_u16()));
    }
    if let Some(code) = verdict.code() {
        text.push_str(&format!(", code {code}"));
    }
    if let Some(message) = verdict.message() {
        text.push_str(": ");
        text.push_str(message);
    }
    scrub(&text, MAX_TEXT).into()
}

/// As much as a verdict keeps of a model that an answer names.
const MAX_MODEL: usize = 256;
