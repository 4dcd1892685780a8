use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker, ready};
use std::time::Duration;

use backstop_core::error::{BoxError, Error};
use backstop_core::{Collect, Drain, RequestBody, Verdict};
use bytes::Bytes;
use http::{Request, Response};
use http_body::Body;
use pin_project_lite::pin_project;
use tokio::time::{Instant, Sleep, sleep_until};
use tower_service::Service;

use crate::call::{Call, Kept, Step, begin_first, present_failure};
use crate::config::Config;
use crate::terms::Terms;

pin_project! {
    /// The future of a [`Backoff`](crate::Backoff) call. Dropping it cancels the attempt in flight, or
    /// the wait, at once.
    pub struct ResponseFuture<S, B, RB>
    where
        S: Service<Request<RequestBody>>,
    {
        #[pin]
        kind: Kind<S, B, RB>,
    }
}

pin_project! {
    #[project = KindProjection]
    enum Kind<S, B, RB>
    where
        S: Service<Request<RequestBody>>,
    {
        /// The only attempt is in flight: there is nothing to decide, and whatever comes of it is
        /// handed back.
        Once { #[pin] attempt: S::Future },
        /// What comes of an attempt decides whether another one follows.
        Deciding { #[pin] state: State<B, S::Future, RB>, timer: Timer, call: Call<S> },
        /// The call is over.
        Done,
    }
}

pin_project! {
    #[project = StateProjection]
    enum State<B, F, RB> {
        /// Reads the rest of the caller's body.
        Collecting { collect: Collect<B> },
        /// The call met an error before its first attempt.
        Met { error: Option<Error> },
        /// An attempt is in flight.
        Calling { #[pin] attempt: F },
        /// Lets the failed answer go, and waits.
        Waiting { #[pin] drain: Drain<RB>, drain_until: Instant, until: Instant },
        /// The inner service is not ready for the next attempt yet.
        Readying,
    }
}

impl<S, B, RB> ResponseFuture<S, B, RB>
where
    S: Service<Request<RequestBody>> + Clone,
    S::Error: Into<BoxError>,
    B: Body<Data = Bytes> + Unpin + 'static,
    B::Error: Into<BoxError>,
{
    /// A call of the service `ready`, which was polled ready.
    // Written for the call that succeeds at once: a request has 256 bytes, and what is not inlined or
    // built in place copies them once more.
    #[inline(always)]
    pub(crate) fn new(
        ready: &mut S,
        config: &Arc<Config>,
        mut request: Request<B>,
        unready: &mut Option<Error>,
    ) -> Self {
        let terms = Terms::of(config, request.extensions_mut());
        let keeps_request = terms.keep_request(config);
        let (head, body) = request.into_parts();
        let mut collect = Collect::new(body, config.body_limit);
        if keeps_request {
            collect = collect.within(config.buffer_limit.as_ref());
        }
        // Most bodies are there already: then the service that is ready is called right here. Whoever
        // polls later brings a waker that wakes.
        let body = Pin::new(&mut collect).poll_collect(&mut Context::from_waker(Waker::noop()));
        let is_late = terms.are_late();
        let body = match body {
            Poll::Ready(Ok(body)) if unready.is_none() && !is_late => body,
            body => {
                let unready = if is_late { Some(Error::past_deadline()) } else { unready.take() };
                let request = Request::from_parts(head, RequestBody::empty());
                return Self::unsent(ready, config, terms, request, collect, body, unready);
            }
        };
        if !head.extensions.is_empty() {
            begin_first(&head.extensions);
        }
        if !keeps_request && terms.deadline.is_none() {
            let attempt = ready.call(Request::from_parts(head, body));
            return Self { kind: Kind::Once { attempt } };
        }
        let place = Pin::new(&mut collect).take_place();
        let request = Request::from_parts(head, body);
        let kept = if keeps_request { Some(Kept::of(&request)) } else { None };
        // The service that was polled ready is the one that is called. The clone, which has reserved
        // nothing, goes along and is polled ready itself before it is called. The other way round, a
        // concurrency limit or a buffer below would be called without its reservation.
        let attempt = ready.call(request);
        let service = if keeps_request { Some(ready.clone()) } else { None };
        let config = Arc::clone(config);
        let call = Call::new(service, config, terms, kept, keeps_request, place);
        Self { kind: Kind::Deciding { state: State::Calling { attempt }, timer: None, call } }
    }

    /// A call whose first attempt cannot be sent yet, or met an error before it.
    #[cold]
    fn unsent(
        ready: &mut S,
        config: &Arc<Config>,
        terms: Terms,
        request: Request<RequestBody>,
        mut collect: Collect<B>,
        body: Poll<Result<RequestBody, Error>>,
        unready: Option<Error>,
    ) -> Self {
        let keeps_request = terms.keep_request(config);
        // What was reserved is dropped, so that others can use the place while a slow caller sends its
        // body.
        *ready = ready.clone();
        let service = Some(ready.clone());
        let mut call = Call::new(
            service,
            Arc::clone(config),
            terms,
            Some(Kept::Own(request)),
            keeps_request,
            None,
        );
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
        Self { kind: Kind::Deciding { state, timer: None, call } }
    }
}

impl<S, B, RB> Future for ResponseFuture<S, B, RB>
where
    S: Service<Request<RequestBody>, Response = Response<RB>> + Clone,
    S::Error: Into<BoxError>,
    B: Body<Data = Bytes> + Unpin + 'static,
    B::Error: Into<BoxError>,
    RB: Body,
{
    type Output = Result<Response<RB>, Error>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let mut kind = self.project().kind;
        match kind.as_mut().project() {
            KindProjection::Once { attempt } => {
                let mut result = ready!(attempt.poll(cx)).map_err(Error::from_inner);
                kind.set(Kind::Done);
                present_failure(&mut result);
                Poll::Ready(result)
            }
            KindProjection::Deciding { state, timer, call } => {
                let result = ready!(poll_deciding(state, timer, call, cx));
                kind.set(Kind::Done);
                Poll::Ready(result)
            }
            KindProjection::Done => Poll::Pending,
        }
    }
}

// Apart, so that a call with nothing to decide is spared the frame of this.
#[inline(never)]
fn poll_deciding<S, B, RB>(
    mut state: Pin<&mut State<B, S::Future, RB>>,
    timer: &mut Timer,
    call: &mut Call<S>,
    cx: &mut Context<'_>,
) -> Poll<Result<Response<RB>, Error>>
where
    S: Service<Request<RequestBody>, Response = Response<RB>>,
    S::Error: Into<BoxError>,
    B: Body<Data = Bytes> + Unpin + 'static,
    B::Error: Into<BoxError>,
    RB: Body,
{
    loop {
        let mut was_sent = false;
        let result = match state.as_mut().project() {
            StateProjection::Collecting { collect } => {
                match Pin::new(&mut *collect).poll_collect(cx) {
                    Poll::Ready(Ok(body)) => {
                        let error = call.take_body(body, Pin::new(collect).take_place());
                        state.set(match error {
                            Some(_) => State::Met { error },
                            None => State::Readying,
                        });
                        continue;
                    }
                    Poll::Ready(Err(error)) => Err(error),
                    Poll::Pending => {
                        ready!(poll_deadline(timer, call.deadline(), cx));
                        Err(Error::past_deadline())
                    }
                }
            }
            StateProjection::Met { error } => match error.take() {
                Some(error) => Err(error),
                None => return Poll::Pending,
            },
            StateProjection::Readying => match call.poll_ready(cx) {
                Poll::Ready(Ok(attempt)) => {
                    state.set(State::Calling { attempt });
                    continue;
                }
                Poll::Ready(Err(error)) => Err(error),
                Poll::Pending => {
                    ready!(poll_deadline(timer, call.deadline(), cx));
                    Err(Error::past_deadline())
                }
            },
            // The answer is asked before the timer: where both are ready, it wins.
            StateProjection::Calling { attempt } => match attempt.poll(cx) {
                Poll::Ready(Ok(response)) => {
                    was_sent = true;
                    if Verdict::is_good(&response) {
                        return Poll::Ready(Ok(response));
                    }
                    Ok(response)
                }
                Poll::Ready(Err(error)) => {
                    was_sent = true;
                    Err(Error::from_inner(error))
                }
                Poll::Pending => {
                    ready!(poll_deadline(timer, call.deadline(), cx));
                    was_sent = true;
                    Err(Error::past_deadline())
                }
            },
            StateProjection::Waiting { mut drain, drain_until, until } => {
                if drain.as_mut().poll_drain(cx).is_pending() {
                    ready!(poll_until(timer, *drain_until, cx));
                    drain.drop_body();
                }
                ready!(poll_until(timer, *until, cx));
                state.set(State::Readying);
                continue;
            }
        };
        match call.settle(result, was_sent) {
            Step::Done(result) => return Poll::Ready(result),
            Step::Again { answer: _, wait: Duration::ZERO } => state.set(State::Readying),
            Step::Again { answer, wait } => {
                let now = Instant::now();
                let until = far(now, wait);
                state.set(State::Waiting {
                    drain: Drain::new(answer),
                    drain_until: until.min(far(now, DRAIN_TIME)),
                    until,
                });
            }
        }
    }
}

impl<S, B, RB> std::fmt::Debug for ResponseFuture<S, B, RB>
where
    S: Service<Request<RequestBody>>,
{
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let (state, retries) = match &self.kind {
            Kind::Once { .. } => ("Once", 0),
            Kind::Deciding { state, timer: _, call } => (state.name(), call.retries()),
            Kind::Done => ("Done", 0),
        };
        f.debug_struct("ResponseFuture")
            .field("state", &state)
            .field("retries", &retries)
            .finish_non_exhaustive()
    }
}

impl<B, F, RB> State<B, F, RB> {
    const fn name(&self) -> &'static str {
        match self {
            Self::Collecting { .. } => "Collecting",
            Self::Met { .. } => "Met",
            Self::Calling { .. } => "Calling",
            Self::Waiting { .. } => "Waiting",
            Self::Readying => "Readying",
        }
    }
}

fn poll_deadline(
    timer: &mut Timer,
    deadline: Option<std::time::Instant>,
    cx: &mut Context<'_>,
) -> Poll<()> {
    match deadline {
        Some(deadline) => poll_until(timer, Instant::from_std(deadline), cx),
        None => Poll::Pending,
    }
}

/// One timer serves the call: it is set anew where it stands at another instant.
fn poll_until(timer: &mut Timer, at: Instant, cx: &mut Context<'_>) -> Poll<()> {
    let sleep = timer.get_or_insert_with(|| Box::pin(sleep_until(at)));
    if sleep.deadline() != at {
        sleep.as_mut().reset(at);
    }
    sleep.as_mut().poll(cx)
}

/// Made when something is first waited for. In a box, since it has a hundred bytes, and calls are moved.
type Timer = Option<Pin<Box<Sleep>>>;

fn far(now: Instant, wait: Duration) -> Instant {
    now + wait.min(FOR_EVER)
}

/// A round trip within a continent: what is not there by then would delay the retry's own time.
const DRAIN_TIME: Duration = Duration::from_millis(50);
/// Thirty years stand for any longer wait, which no timer could serve.
const FOR_EVER: Duration = Duration::from_secs(60 * 60 * 24 * 365 * 30);
