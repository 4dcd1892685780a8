use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use backstop_core::dialect::{Dialect, Framing, Judge, Mode, Presentation, Route};
use backstop_core::error::{BoxError, Error};
use backstop_core::{CallContext, CallOptions, Class, Hold, TimedOut, Verdict};
use bytes::Bytes;
use http::response::Parts;
use http::{Extensions, Request, Response, StatusCode};
use http_body::Body;
use pin_project_lite::pin_project;
use tokio::time::Instant;

use crate::body::ClassifyBody;
use crate::classifier::Answer;
use crate::clocks::{Clocks, Timer};
use crate::config::Config;
use crate::peek::Peek;
use crate::watch::late;

pin_project! {
    /// The future of a [`ClassifyService`](crate::ClassifyService) call: ready once the answer was held
    /// as long as it is to be. Dropping it cancels the attempt at once.
    pub struct ResponseFuture<F, RB> {
        #[pin]
        state: State<F, RB>,
        timer: Timer,
        attempt: Attempt,
    }
}

pin_project! {
    #[project = StateProjection]
    enum State<F, RB> {
        /// The head is not there yet.
        Calling { #[pin] call: F },
        /// The answer is held back and read.
        Peeking { peek: Option<Box<Peek<RB>>> },
        /// The answer, or the error, was handed on.
        Done,
    }
}

/// What one attempt is judged by.
pub(crate) struct Attempt {
    pub(crate) config: Config,
    pub(crate) route: Route,
    pub(crate) hold: Hold,
    deadline: Option<Instant>,
    clocks: Option<Clocks>,
}

impl Attempt {
    pub(crate) fn of<B>(request: &Request<B>, config: Config) -> Self {
        let (hold, deadline) = match request.extensions() {
            nothing if nothing.is_empty() => (config.hold, None),
            set => wanted(set, &config),
        };
        let route = match config.dialect {
            Some(dialect) => Route::new(dialect, request.method(), request.uri()),
            None => Route::of_request(request.method(), request.uri(), request.headers()),
        };
        Self { config, route, hold, deadline, clocks: None }
    }

    /// The attempt's clocks, which start when they are first asked for: an attempt that is over at
    /// its first poll never reads the time.
    fn clocks(&mut self) -> &mut Clocks {
        let Self { config, deadline, clocks, .. } = self;
        clocks.get_or_insert_with(|| Clocks::new(config.timeouts, *deadline, Instant::now()))
    }

    /// The built-in judge of an answer with this head.
    pub(crate) fn judge(&self, head: &Parts, now: Instant) -> Judge {
        let wall = self.config.clock.at(now.into_std());
        Judge::new(self.config.mode, self.route, head.status, &head.headers, wall)
    }

    /// Whether there is nothing to do about an answer: not held, no stream whose end could be missed,
    /// nothing that could come too late.
    fn passes(&self, head: &Parts) -> bool {
        self.hold == Hold::Headers
            && head.status.is_success()
            && self.config.classifier.is_none()
            && self.deadline.is_none()
            && self.config.timeouts.are_off_in_bodies()
            && self.route.framing(head.status, &head.headers) == Framing::Document
    }

    /// An error of our own in the dialect of the call; in OpenAI's, which most servers speak, where
    /// that is not known.
    pub(crate) fn error_body(&self, status: StatusCode, kind: &str, message: &str) -> Bytes {
        self.route.dialect().unwrap_or(Dialect::OPENAI).error_body(status, kind, message)
    }

    /// How a 2xx is shown that did not come to its end in time.
    pub(crate) fn show_timeout(&self, timeout: TimedOut) -> Presentation {
        let status = StatusCode::GATEWAY_TIMEOUT;
        let message = format!("the provider began to answer, but {timeout}");
        Presentation::Error { status, body: self.error_body(status, "timeout", &message) }
    }

    pub(crate) fn take_clocks(&mut self, now: Instant) -> Clocks {
        let Self { config, deadline, clocks, .. } = self;
        clocks.take().unwrap_or_else(|| Clocks::new(config.timeouts, *deadline, now))
    }

    /// What the user's own classifier makes of an attempt without an answer.
    fn judge_error(&self, error: Error) -> Error {
        let Error::Attempt(attempt) = error else { return error };
        let (mut verdict, source) = attempt.into_parts();
        if self.config.mode == Mode::Agnostic {
            let evidence = verdict.evidence();
            verdict = verdict.with_class(Class::Transient, evidence);
        }
        let own = self
            .config
            .classifier
            .as_ref()
            .and_then(|own| own.classify(&Answer::of_error(source.as_ref(), &verdict)));
        Error::attempt(own.unwrap_or(verdict), source)
    }

    fn timed_out(&self, timeout: TimedOut) -> Error {
        let verdict = late(Verdict::new(Class::Timeout), self.config.mode, timeout);
        self.judge_error(Error::attempt(verdict, timeout))
    }
}

/// What a layer above, or the caller, wants otherwise than this layer is set.
fn wanted(extensions: &Extensions, config: &Config) -> (Hold, Option<Instant>) {
    let options = CallOptions::of(extensions);
    let deadline = match extensions.get::<CallContext>() {
        Some(context) => context.deadline().map(Instant::from_std),
        None => {
            options.and_then(CallOptions::time).and_then(|time| Instant::now().checked_add(time))
        }
    };
    (options.and_then(CallOptions::held).unwrap_or(config.hold), deadline)
}

impl<F, RB> ResponseFuture<F, RB> {
    pub(crate) const fn new(call: F, attempt: Attempt) -> Self {
        Self { state: State::Calling { call }, timer: None, attempt }
    }
}

impl<F, RB, E> Future for ResponseFuture<F, RB>
where
    F: Future<Output = Result<Response<RB>, E>>,
    E: Into<BoxError>,
    RB: Body<Data = Bytes> + Unpin,
    RB::Error: Into<BoxError>,
{
    type Output = Result<Response<ClassifyBody<RB>>, Error>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let mut this = self.project();
        let attempt = this.attempt;
        loop {
            match this.state.as_mut().project() {
                // The answer is asked before the timer: where both are ready, it wins.
                StateProjection::Calling { call } => match call.poll(cx) {
                    Poll::Ready(Ok(response)) => {
                        let (head, body) = response.into_parts();
                        if attempt.passes(&head) {
                            this.state.set(State::Done);
                            let body = ClassifyBody::passed(body);
                            return Poll::Ready(Ok(Response::from_parts(head, body)));
                        }
                        let peek = Some(Box::new(Peek::new(head, body, attempt)));
                        this.state.set(State::Peeking { peek });
                    }
                    Poll::Ready(Err(error)) => {
                        this.state.set(State::Done);
                        return Poll::Ready(Err(attempt.judge_error(Error::from_inner(error))));
                    }
                    Poll::Pending => {
                        let timeout = ready!(attempt.clocks().poll_due(this.timer, cx));
                        this.state.set(State::Done);
                        return Poll::Ready(Err(attempt.timed_out(timeout)));
                    }
                },
                StateProjection::Peeking { peek } => {
                    let Some(held) = peek else { return Poll::Pending };
                    let held = ready!(held.poll_settled(this.timer, cx));
                    let released = peek.take().map(|peek| peek.release(held, attempt));
                    this.state.set(State::Done);
                    if let Some(response) = released {
                        return Poll::Ready(Ok(response));
                    }
                }
                StateProjection::Done => return Poll::Pending,
            }
        }
    }
}

impl<F, RB> fmt::Debug for ResponseFuture<F, RB> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let state = match self.state {
            State::Calling { .. } => "Calling",
            State::Peeking { .. } => "Peeking",
            State::Done => "Done",
        };
        f.debug_struct("ResponseFuture").field("state", &state).finish_non_exhaustive()
    }
}
