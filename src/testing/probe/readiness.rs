//! How scripted readiness goes.

use std::{
    future::Future,
    pin::Pin,
    task::{Context, Poll, ready},
    time::Duration,
};

use tokio::time::Sleep;
use tower_service::Service;

use crate::testing::error::{BoxError, Fault};

#[derive(Debug)]
pub(super) enum Progress {
    Pending(usize),
    Pause(Pin<Box<Sleep>>),
    Fail(Fault),
    Never,
    Inner,
}

/// How one reservation goes: what an instance answers from its first `poll_ready` after a call up to `Ready`.
#[derive(Debug, Clone)]
#[must_use]
pub struct Readiness(Kind);

#[derive(Debug, Clone)]
enum Kind {
    Now,
    Pending(usize),
    Pause(Duration),
    Fail(Fault),
    Never,
}

impl Readiness {
    /// As ready as the service itself.
    pub fn now() -> Self {
        Self(Kind::Now)
    }

    /// `Pending` for `polls` polls, each of which wakes the task; then as ready as the service itself.
    pub fn pending(polls: usize) -> Self {
        Self(Kind::Pending(polls))
    }

    /// `Pending` for `duration` of tokio's time from the first poll; then as ready as the service itself.
    pub fn pause(duration: Duration) -> Self {
        Self(Kind::Pause(duration))
    }

    /// Fails with a [`ScriptedError`](crate::testing::ScriptedError) of this text.
    pub fn error(message: impl Into<String>) -> Self {
        Self(Kind::Fail(Fault::message(message)))
    }

    /// Fails with the error that `make` makes; for errors of other types.
    pub fn error_with(make: impl Fn() -> BoxError + Send + Sync + 'static) -> Self {
        Self(Kind::Fail(Fault::from_fn(make)))
    }

    /// `Pending` for ever; nobody is woken.
    pub fn never() -> Self {
        Self(Kind::Never)
    }
}

impl Readiness {
    pub(super) fn into_progress(self) -> Progress {
        match self.0 {
            Kind::Now => Progress::Inner,
            Kind::Pending(polls) => Progress::Pending(polls),
            Kind::Pause(duration) => Progress::Pause(Box::pin(tokio::time::sleep(duration))),
            Kind::Fail(fault) => Progress::Fail(fault),
            Kind::Never => Progress::Never,
        }
    }
}

impl Progress {
    pub(super) fn poll<S, R>(
        &mut self,
        inner: &mut S,
        cx: &mut Context<'_>,
    ) -> Poll<Result<(), BoxError>>
    where
        S: Service<R>,
        S::Error: Into<BoxError>,
    {
        match self {
            Self::Pending(0) | Self::Inner => {}
            Self::Pending(left) => {
                *left -= 1;
                cx.waker().wake_by_ref();
                return Poll::Pending;
            }
            Self::Pause(sleep) => ready!(sleep.as_mut().poll(cx)),
            Self::Fail(fault) => return Poll::Ready(Err(fault.make())),
            Self::Never => return Poll::Pending,
        }
        *self = Self::Inner;
        inner.poll_ready(cx).map_err(Into::into)
    }
}
