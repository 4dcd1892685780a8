//! What a call of a scripted service comes to.

use std::{io, time::Duration};

use http::{HeaderName, HeaderValue, Response, StatusCode, header::CONTENT_TYPE, response};

use super::{
    body::{Plan, ScriptedBody},
    error::{BoxError, Fault},
};

/// What one call of a [`ScriptedService`](super::ScriptedService) comes to.
#[derive(Debug, Clone)]
#[must_use]
pub struct Outcome {
    pub(super) kind: Kind,
    pub(super) after: Option<Duration>,
    pub(super) before_body: bool,
}

#[derive(Debug, Clone)]
pub(super) enum Kind {
    Response(Box<response::Parts>, Plan),
    Error(Fault),
    Never,
}

impl Outcome {
    /// A response with this status and nothing else.
    ///
    /// # Panics
    /// If `status` is not a valid status code (100 to 999).
    pub fn status(status: u16) -> Self {
        let mut response = Response::new(ScriptedBody::empty());
        *response.status_mut() = StatusCode::from_u16(status).expect("a status from 100 to 999");
        Self::response(response)
    }

    /// This response; its body goes through its steps anew each time the outcome is used.
    pub fn response(response: Response<impl Into<ScriptedBody>>) -> Self {
        let (parts, body) = response.into_parts();
        Self::of(Kind::Response(Box::new(parts), body.into().into_plan()))
    }

    /// The call fails with a [`ScriptedError`](super::ScriptedError) of this text.
    pub fn error(message: impl Into<String>) -> Self {
        Self::of(Kind::Error(Fault::message(message)))
    }

    /// The call fails with the error that `make` makes; for errors of other types.
    pub fn error_with(make: impl Fn() -> BoxError + Send + Sync + 'static) -> Self {
        Self::of(Kind::Error(Fault::from_fn(make)))
    }

    /// The call fails with an [`io::Error`] of this kind, as one on a broken socket would.
    pub fn io_error(kind: io::ErrorKind) -> Self {
        Self::of(Kind::Error(Fault::io(kind)))
    }

    /// The call never comes to anything; its future stays pending until it is dropped.
    pub fn never() -> Self {
        Self::of(Kind::Never)
    }

    /// Waits this long, on tokio's clock and from the end of the request body, before the outcome. Default: not at all.
    pub fn after(mut self, delay: Duration) -> Self {
        self.after = Some(delay);
        self
    }

    /// Comes without the request body having been read; it is dropped. No effect on an outcome chosen by
    /// [`ScriptedService::from_fn`](super::ScriptedService::from_fn), which sees the body.
    pub fn before_body(mut self) -> Self {
        self.before_body = true;
        self
    }

    /// Adds a header. No effect on an outcome that is not a response.
    ///
    /// # Panics
    /// If name or value is not valid in HTTP.
    pub fn header(mut self, name: &str, value: &str) -> Self {
        if let Kind::Response(parts, _) = &mut self.kind {
            let name = HeaderName::from_bytes(name.as_bytes()).expect("a valid header name");
            let value = HeaderValue::from_str(value).expect("a valid header value");
            parts.headers.append(name, value);
        }
        self
    }

    /// Sets the body. No effect on an outcome that is not a response.
    pub fn body(mut self, body: impl Into<ScriptedBody>) -> Self {
        if let Kind::Response(_, plan) = &mut self.kind {
            *plan = body.into().into_plan();
        }
        self
    }

    /// Sets the body and `content-type: application/json`. No effect on an outcome that is not a response.
    pub fn json(mut self, body: impl Into<ScriptedBody>) -> Self {
        if let Kind::Response(parts, _) = &mut self.kind {
            parts.headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        }
        self.body(body)
    }

    fn of(kind: Kind) -> Self {
        Self { kind, after: None, before_body: false }
    }

    pub(super) fn exhausted(index: usize) -> Self {
        // A test whose script is too short is to end, not to be retried for a minute.
        Self::status(500).header("x-should-retry", "false").json(format!(
            r#"{{"error":{{"type":"script_exhausted","message":"no scripted outcome for call {index}"}}}}"#
        ))
    }
}
