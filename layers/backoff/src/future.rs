use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker, ready};
use std::time::Duration;

use backstop_core::error::{BoxError, Error, TimedOut};
use backstop_core::{Class, Collect, Evidence, RequestBody, Verdict};
use bytes::Bytes;
use http::{Request, Response};
use http_body::Body;
use pin_project_lite::pin_project;
use tokio::time::{Instant, Sleep, sleep_until};
use tower_service::Service;

use crate::call::{Call, Own, Step, begin_first, hand_back, is_good};
use crate::config::Config;
use crate::drain::Drain;

pin_project! {
    /// The future of a [`Backoff`](crate::Backoff) call. Dropping it cancels the attempt in flight, or
    /// the wait, at once.
    pub struct ResponseFuture<S, B, RB>
    where
        S: Service<Request<RequestBody>>,
    {
        #[pin]
        state: State<B, S::Future, RB>,
        #[pin]
        timer: Option<Sleep>,
        // `None` in the state `Once`, which has nothing to decide.
        call: Option<Call<S>>,
    }
}

pin_project! {
    #[project = StateProjection]
    enum State<B, F, RB> {
        /// Reads the rest of the caller's body.
        Collecting { collect: Collect<B> },
        /// The call met an error before its first attempt.
        Met { error: Option<Error> },
        /// The only attempt is in flight: whatever comes of it is handed back.
        Once { #[pin] attempt: F },
        /// An attempt is in flight.
        Calling { #[pin] attempt: F },
        /// Lets the failed answer go, and waits.
        Waiting { #[pin] drain: Drain<RB>, drain_until: Instant, until: Instant },
        /// The inner service is not ready for the next attempt yet.
        Readying,
        /// The call is over.
        Done,
    }
}

impl<S, B, RB> ResponseFuture<S, B, RB>
where
    S: Service<Request<RequestBody>> + Clone,
    S::Error: Into<BoxError>,
    B: Body<Data = Bytes> + Unpin,
    B::Error: Into<BoxError>,
{
    // Written for the call that succeeds at once: a request has 256 bytes, and what is not inlined or
    // built in place copies them once more.
    #[inline(always)]
    pub(crate) fn new(
        ready: &mut S,
        config: &Arc<Config>,
        mut request: Request<B>,
        unready: Option<Error>,
    ) -> Self {
        let own = Own::of(config, request.extensions_mut());
        let keeps_request = own.as_ref().map_or(config.keeps_request, |own| own.keeps_request());
        let (head, body) = request.into_parts();
        let mut collect =
            Collect::new(body, config.body_limit).within(config.buffer_limit.as_ref());
        // Most bodies are there already: then the service that is ready is called right here. Whoever
        // polls later brings a waker that wakes.
        let body = Pin::new(&mut collect).poll_collect(&mut Context::from_waker(Waker::noop()));
        let unready = match &own {
            Some(own) if own.is_late() => Some(past_deadline()),
            _ => unready,
        };
        match (body, unready) {
            (Poll::Ready(Ok(body)), None) => {
                let request = Request::from_parts(head, body);
                if own.is_some() {
                    begin_first(&request);
                } else if !keeps_request {
                    let attempt = ready.call(request);
                    return Self { state: State::Once { attempt }, timer: None, call: None };
                }
                let kept = if keeps_request { Some(request.clone()) } else { None };
                // The service that was polled ready is the one that is called. The clone, which has
                // reserved nothing, goes along and is polled ready itself before it is called. The
                // other way round, a concurrency limit or a buffer below would be called without
                // its reservation.
                let attempt = ready.call(request);
                let service = if keeps_request { Some(ready.clone()) } else { None };
                let place = Pin::new(&mut collect).take_place().filter(|_| keeps_request);
                Self {
                    state: State::Calling { attempt },
                    timer: None,
                    call: Some(Call::new(
                        service,
                        Arc::clone(config),
                        own,
                        kept,
                        keeps_request,
                        place,
                    )),
                }
            }
            (body, unready) => {
                // Nothing is sent yet: what was reserved for it is dropped, so that others can use the
                // place while a slow caller sends its body.
                *ready = ready.clone();
                let service = Some(ready.clone());
                let request = Some(Request::from_parts(head, RequestBody::empty()));
                let config = Arc::clone(config);
                let mut call = Call::new(service, config, own, request, keeps_request, None);
                let state = match body {
                    Poll::Pending => {
                        call.remember(unready);
                        State::Collecting { collect }
                    }
                    Poll::Ready(Err(error)) => State::Met { error: Some(error) },
                    Poll::Ready(Ok(body)) => {
                        call.take_body(body, Pin::new(&mut collect).take_place());
                        State::Met { error: unready }
                    }
                };
                Self { state, timer: None, call: Some(call) }
            }
        }
    }
}

impl<S, B, RB> Future for ResponseFuture<S, B, RB>
where
    S: Service<Request<RequestBody>, Response = Response<RB>> + Clone,
    S::Error: Into<BoxError>,
    B: Body<Data = Bytes> + Unpin,
    B::Error: Into<BoxError>,
    RB: Body,
{
    type Output = Result<Response<RB>, Error>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let mut this = self.project();
        if let StateProjection::Once { attempt } = this.state.as_mut().project() {
            let result = ready!(attempt.poll(cx)).map_err(Error::from_inner);
            this.state.set(State::Done);
            return Poll::Ready(hand_back(result));
        }
        let Some(call) = this.call else { return Poll::Pending };
        loop {
            let mut was_sent = false;
            let result = match this.state.as_mut().project() {
                StateProjection::Collecting { collect } => {
                    match Pin::new(&mut *collect).poll_collect(cx) {
                        Poll::Ready(Ok(body)) => {
                            let error = call.take_body(body, Pin::new(collect).take_place());
                            this.state.set(match error {
                                Some(_) => State::Met { error },
                                None => State::Readying,
                            });
                            continue;
                        }
                        Poll::Ready(Err(error)) => Err(error),
                        Poll::Pending => {
                            ready!(poll_deadline(this.timer.as_mut(), call.deadline(), cx));
                            Err(past_deadline())
                        }
                    }
                }
                StateProjection::Met { error } => match error.take() {
                    Some(error) => Err(error),
                    None => return Poll::Pending,
                },
                StateProjection::Readying => match call.poll_ready(cx) {
                    Poll::Ready(Ok(attempt)) => {
                        this.state.set(State::Calling { attempt });
                        continue;
                    }
                    Poll::Ready(Err(error)) => Err(error),
                    Poll::Pending => {
                        ready!(poll_deadline(this.timer.as_mut(), call.deadline(), cx));
                        Err(past_deadline())
                    }
                },
                // The answer is asked before the timer: where both are ready, it wins.
                StateProjection::Calling { attempt } => match attempt.poll(cx) {
                    Poll::Ready(Ok(response)) => {
                        was_sent = true;
                        if is_good(&response) {
                            this.state.set(State::Done);
                            call.end();
                            return Poll::Ready(Ok(response));
                        }
                        Ok(response)
                    }
                    Poll::Ready(Err(error)) => {
                        was_sent = true;
                        Err(Error::from_inner(error))
                    }
                    Poll::Pending => {
                        ready!(poll_deadline(this.timer.as_mut(), call.deadline(), cx));
                        was_sent = true;
                        Err(past_deadline())
                    }
                },
                StateProjection::Waiting { mut drain, drain_until, until } => {
                    if drain.as_mut().poll_drain(cx).is_pending() {
                        ready!(poll_until(this.timer.as_mut(), *drain_until, cx));
                        drain.drop_body();
                    }
                    ready!(poll_until(this.timer.as_mut(), *until, cx));
                    this.state.set(State::Readying);
                    continue;
                }
                StateProjection::Once { .. } | StateProjection::Done => return Poll::Pending,
            };
            match call.settle(result, was_sent) {
                Step::Done(result) => {
                    this.state.set(State::Done);
                    call.end();
                    return Poll::Ready(result);
                }
                Step::Again { answer: _, wait: Duration::ZERO } => this.state.set(State::Readying),
                Step::Again { answer, wait } => {
                    let now = Instant::now();
                    let until = far(now, wait);
                    this.state.set(State::Waiting {
                        drain: Drain::new(answer),
                        drain_until: until.min(far(now, DRAIN_TIME)),
                        until,
                    });
                }
            }
        }
    }
}

impl<S, B, RB> std::fmt::Debug for ResponseFuture<S, B, RB>
where
    S: Service<Request<RequestBody>>,
{
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { state, timer: _, call } = self;
        let state = match state {
            State::Collecting { .. } => "Collecting",
            State::Met { .. } => "Met",
            State::Once { .. } => "Once",
            State::Calling { .. } => "Calling",
            State::Waiting { .. } => "Waiting",
            State::Readying => "Readying",
            State::Done => "Done",
        };
        f.debug_struct("ResponseFuture")
            .field("state", &state)
            .field("retries", &call.as_ref().map_or(0, Call::retries))
            .finish_non_exhaustive()
    }
}

fn poll_deadline(
    timer: Pin<&mut Option<Sleep>>,
    deadline: Option<std::time::Instant>,
    cx: &mut Context<'_>,
) -> Poll<()> {
    match deadline {
        Some(deadline) => poll_until(timer, Instant::from_std(deadline), cx),
        None => Poll::Pending,
    }
}

/// One timer serves the call: it is set anew where it stands at another instant.
fn poll_until(mut timer: Pin<&mut Option<Sleep>>, at: Instant, cx: &mut Context<'_>) -> Poll<()> {
    match timer.as_mut().as_pin_mut() {
        Some(sleep) if sleep.deadline() == at => {}
        Some(sleep) => sleep.reset(at),
        None => timer.set(Some(sleep_until(at))),
    }
    match timer.as_pin_mut() {
        Some(sleep) => sleep.poll(cx),
        None => Poll::Pending,
    }
}

fn far(now: Instant, wait: Duration) -> Instant {
    now + wait.min(FOR_EVER)
}

fn past_deadline() -> Error {
    let verdict = Verdict::new(Class::Timeout).with_evidence(Evidence::Local);
    Error::attempt(verdict, TimedOut::Deadline)
}

/// A round trip within a continent: what is not there by then would delay the retry's own time.
const DRAIN_TIME: Duration = Duration::from_millis(50);
/// Thirty years stand for any longer wait, which no timer could serve.
const FOR_EVER: Duration = Duration::from_secs(60 * 60 * 24 * 365 * 30);
