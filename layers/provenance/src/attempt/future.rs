use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use backstop_core::CallContext;
use backstop_core::error::{BoxError, Error};
use bytes::Bytes;
use http::{Request, Response};
use http_body::Body;
use pin_project_lite::pin_project;
use tokio::time::Instant;
use tower_service::Service;

use crate::attempt::body::AttemptBody;
use crate::attempt::config::Config;
use crate::attempt::open::{Numbered, Open};
use crate::attempt::span;
use crate::keep::Start;
use crate::ledger::Ledger;

pin_project! {
    /// The future of an [`AttemptService`](crate::AttemptService) call. Dropping it cancels the attempt at
    /// once, and its record says so.
    pub struct ResponseFuture<S, B, L>
    where
        S: Service<Request<B>>,
        L: Ledger,
    {
        #[pin]
        state: State<S, B, S::Future, L::Starting>,
        // `None` where nobody learns anything of the attempt.
        open: Option<Open<L>>,
    }
}

pin_project! {
    #[project = StateProjection]
    enum State<S, B, F, T> {
        /// The ledger is to keep the start of the record.
        Starting { #[pin] start: Start<T>, unsent: Option<(S, Request<B>)> },
        /// The attempt is in flight.
        Calling { #[pin] call: F },
        /// Nothing is sent.
        Refused { error: Option<Error> },
        /// The answer, or the error, was handed on.
        Done,
    }
}

impl<S, B, L> ResponseFuture<S, B, L>
where
    L: Ledger,
    S: Service<Request<B>> + Clone,
    B: Body + 'static,
{
    /// An attempt on the service `ready`, which was polled ready.
    #[inline]
    pub(crate) fn new(ready: &mut S, config: &Arc<Config<L>>, request: Request<B>) -> Self {
        let context = CallContext::of(&request);
        if let Some(error) = context.and_then(refusal) {
            // What was reserved is dropped, so that others can use the place.
            *ready = ready.clone();
            return Self { state: State::Refused { error: Some(error) }, open: None };
        }
        let numbered = Numbered::next(context);
        let span = span::open(context, &numbered, &request);
        if !L::KEEPS && span.is_disabled() {
            // Nobody learns anything of it; it counts all the same.
            if let Some(context) = context {
                context.count_attempt();
            }
            let call = ready.call(request);
            return Self { state: State::Calling { call }, open: None };
        }
        let mut open = Open::begin(config, context, span, numbered.number);
        if !L::KEEPS {
            open.leave();
            let call = open.span.in_scope(|| ready.call(request));
            return Self { state: State::Calling { call }, open: Some(open) };
        }
        let start = open.start(&request, &numbered);
        // The service that was polled ready is the one that is called, when the ledger has kept the
        // start. The clone, which has reserved nothing, stays behind and is polled ready itself before
        // it is called. The other way round, a concurrency limit or a buffer below would be called
        // without its reservation.
        let clone = ready.clone();
        let unsent = Some((std::mem::replace(ready, clone), request));
        Self { state: State::Starting { start, unsent }, open: Some(open) }
    }
}

impl<S, B, RB, L> Future for ResponseFuture<S, B, L>
where
    L: Ledger,
    S: Service<Request<B>, Response = Response<RB>>,
    S::Error: Into<BoxError>,
    RB: Body<Data = Bytes>,
    RB::Error: Into<BoxError>,
{
    type Output = Result<Response<AttemptBody<RB, L>>, Error>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let mut this = self.project();
        loop {
            match this.state.as_mut().project() {
                StateProjection::Calling { call } => {
                    let result = match this.open.as_ref() {
                        Some(open) => {
                            let _inside = open.span.enter();
                            ready!(call.poll(cx))
                        }
                        None => ready!(call.poll(cx)),
                    };
                    this.state.set(State::Done);
                    let result = result.map_err(Error::from_inner);
                    return Poll::Ready(handed_on(result, this.open.take()));
                }
                StateProjection::Starting { start, unsent } => {
                    let Some(open) = this.open.as_mut() else { return Poll::Pending };
                    let kept = ready!(start.poll_kept(&open.config.keeper, cx));
                    let Some((mut service, request)) = unsent.take() else { return Poll::Pending };
                    match kept {
                        Ok(slot) => open.slot = slot,
                        Err(error) => {
                            open.forget();
                            this.state.set(State::Done);
                            return Poll::Ready(Err(error));
                        }
                    }
                    open.leave();
                    let call = open.span.in_scope(|| service.call(request));
                    this.state.set(State::Calling { call });
                }
                StateProjection::Refused { error } => {
                    let error = error.take();
                    this.state.set(State::Done);
                    return error.map_or(Poll::Pending, |error| Poll::Ready(Err(error)));
                }
                StateProjection::Done => return Poll::Pending,
            }
        }
    }
}

/// The answer as the layer above gets it.
fn handed_on<RB, L>(
    result: Result<Response<RB>, Error>,
    mut open: Option<Open<L>>,
) -> Result<Response<AttemptBody<RB, L>>, Error>
where
    L: Ledger,
    RB: Body<Data = Bytes>,
{
    if let Some(open) = &mut open {
        match &result {
            Ok(response) => {
                open.answer(response);
                if response.body().is_end_stream() {
                    // Nobody reads a body that says that there is nothing in it.
                    open.end();
                }
            }
            Err(error) => open.fail(error),
        }
    }
    result.map(|response| response.map(|body| AttemptBody::new(body, open)))
}

/// Why an attempt must not leave: it is a fallback, which its call forbids.
fn refusal(context: &CallContext) -> Option<Error> {
    let rung = context.rung();
    if rung == 0 || !context.options().forbids_fallback() {
        return None;
    }
    let what = format!("an attempt on rung {rung} was refused: the call forbids fallback");
    context.note(Instant::now().into_std(), what);
    Some(Error::refused("the call forbids fallback, and a rung other than the primary was asked"))
}

impl<S, B, L> fmt::Debug for ResponseFuture<S, B, L>
where
    S: Service<Request<B>>,
    L: Ledger,
{
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let state = match &self.state {
            State::Starting { .. } => "Starting",
            State::Calling { .. } => "Calling",
            State::Refused { .. } => "Refused",
            State::Done => "Done",
        };
        f.debug_struct("ResponseFuture").field("state", &state).finish_non_exhaustive()
    }
}
