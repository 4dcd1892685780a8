//! What a scripted body does when it is polled.

use std::{io, time::Duration};

use bytes::Bytes;
use http::HeaderMap;

use crate::testing::error::{BoxError, Fault};

/// One thing that a [`ScriptedBody`](super::ScriptedBody) does when it is polled.
#[derive(Debug, Clone)]
#[must_use]
pub struct Step(pub(super) Kind);

#[derive(Debug, Clone)]
pub(super) enum Kind {
    Data(Bytes),
    End,
    Error(Fault),
    Forever,
    Pause(Duration),
    Pending,
    Trailers(HeaderMap),
}

impl Step {
    /// Yields one data frame. An empty one is yielded too, as an empty frame.
    pub fn data(bytes: impl Into<Bytes>) -> Self {
        Self(Kind::Data(bytes.into()))
    }

    /// Ends the body here, whatever the script has after it.
    pub fn end() -> Self {
        Self(Kind::End)
    }

    /// Fails with a [`ScriptedError`](crate::testing::ScriptedError) of this text; the body has ended.
    pub fn error(message: impl Into<String>) -> Self {
        Self(Kind::Error(Fault::message(message)))
    }

    /// Fails with the error that `make` makes; for errors of other types.
    pub fn error_with(make: impl Fn() -> BoxError + Send + Sync + 'static) -> Self {
        Self(Kind::Error(Fault::from_fn(make)))
    }

    /// Is `Pending` from here on, and never wakes anybody: a peer that went silent.
    pub fn forever() -> Self {
        Self(Kind::Forever)
    }

    /// Fails with an [`io::Error`] of this kind, as a broken socket would; the body has ended.
    pub fn io_error(kind: io::ErrorKind) -> Self {
        Self(Kind::Error(Fault::io(kind)))
    }

    /// Is `Pending` until `duration` of tokio's time has gone by, counted from the first poll of this step.
    pub fn pause(duration: Duration) -> Self {
        Self(Kind::Pause(duration))
    }

    /// Is `Pending` once, having woken the task: the next poll goes on.
    pub fn pending() -> Self {
        Self(Kind::Pending)
    }

    /// Yields one frame of trailers.
    pub fn trailers(trailers: HeaderMap) -> Self {
        Self(Kind::Trailers(trailers))
    }
}
