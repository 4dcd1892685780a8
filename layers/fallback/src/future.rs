use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker, ready};
use std::time::Duration;

use backstop_core::error::{BoxError, Error};
use backstop_core::{Collect, Drain, RequestBody, Reservation, Verdict};
use bytes::Bytes;
use http::{Request, Response};
use http_body::Body;
use pin_project_lite::pin_project;
use tokio::time::{Instant, Sleep, sleep_until};
use tower_service::Service;

use crate::config::Config;
use crate::walk::{Step, Walk};

pin_project! {
    /// The future of a [`FallbackRouter`](crate::FallbackRouter) call. Dropping it cancels the attempt in
    /// flight, or the wait, at once.
    pub struct ResponseFuture<S, B, RB>
    where
        S: Service<Request<RequestBody>>,
    {
        #[pin]
        state: State<B, S::Future, RB>,
        timer: Timer,
        call: Option<Call<S>>,
    }
}

/// What a call holds until it is over.
struct Call<S> {
    /// `None` where no other rung can follow.
    service: Option<S>,
    walk: Walk,
    /// The request whose turn is next; its body is empty until the caller's was read.
    request: Option<Box<Request<RequestBody>>>,
    /// An error of the service's readiness, met before the call began.
    unready: Option<Error>,
    /// The place that the request has in the process's buffers.
    place: Option<Reservation>,
}

pin_project! {
    #[project = StateProjection]
    enum State<B, F, RB> {
        /// Reads the rest of the caller's body.
        Collecting { collect: Collect<B> },
        /// The call, or its rung, met an error before anything was sent.
        Met { error: Option<Error> },
        /// A rung is being asked.
        Calling { #[pin] attempt: F },
        /// Lets the failed answer go, and waits.
        Waiting { #[pin] drain: Drain<RB>, drain_until: Instant, until: Instant },
        /// The inner service is not ready for the next rung yet.
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
    #[inline]
    pub(crate) fn new(
        ready: &mut S,
        config: &Arc<Config>,
        request: Request<B>,
        unready: &mut Option<Error>,
    ) -> Self {
        let (mut head, body) = request.into_parts();
        let mut collect =
            Collect::new(body, config.body_limit).within(config.buffer_limit.as_ref());
        // Most bodies are there already: then the service that is ready is called right here. Whoever
        // polls later brings a waker that wakes.
        let polled = Pin::new(&mut collect).poll_collect(&mut Context::from_waker(Waker::noop()));
        let unready = unready.take();
        let body = match polled {
            Poll::Ready(Ok(body)) if unready.is_none() => body,
            polled => {
                let walk = Walk::new(config, &mut head.extensions);
                let request = Request::from_parts(head, RequestBody::empty());
                let request = Some(Box::new(request));
                // What was reserved is dropped, so that others can use the place while a slow caller
                // sends its body.
                *ready = ready.clone();
                let service = Some(ready.clone());
                let call = Call { service, walk, request, unready, place: None };
                return Self::unsent(call, collect, polled);
            }
        };
        let mut request = Request::from_parts(head, body);
        let walk = match Walk::of(config, &mut request) {
            Ok(walk) => walk,
            Err(error) => {
                *ready = ready.clone();
                return Self { state: State::Met { error: Some(error) }, timer: None, call: None };
            }
        };
        // The service that was polled ready is the one that is called. The clone, which has reserved
        // nothing, goes along and is polled ready itself before it is called. The other way round, a
        // concurrency limit or a buffer below would be called without its reservation.
        let attempt = ready.call(request);
        let service = if walk.may_go_on() { Some(ready.clone()) } else { None };
        let place = Pin::new(&mut collect).take_place();
        let call = Call { service, walk, request: None, unready: None, place };
        Self { state: State::Calling { attempt }, timer: None, call: Some(call) }
    }

    /// A call whose first rung cannot be asked yet, or met an error before it was.
    #[cold]
    fn unsent(
        mut call: Call<S>,
        mut collect: Collect<B>,
        polled: Poll<Result<RequestBody, Error>>,
    ) -> Self {
        let state = match polled {
            Poll::Pending => State::Collecting { collect },
            Poll::Ready(Err(error)) => State::Met { error: Some(error) },
            Poll::Ready(Ok(body)) => match call.begin(body, Pin::new(&mut collect).take_place()) {
                Some(error) => State::Met { error: Some(error) },
                None => State::Readying,
            },
        };
        Self { state, timer: None, call: Some(call) }
    }
}

impl<S> Call<S> {
    /// Takes the body, begins the walk, and gives the error that was met before anything was sent.
    fn begin(&mut self, body: RequestBody, place: Option<Reservation>) -> Option<Error> {
        self.place = place;
        let request = self.request.as_mut()?;
        *request.body_mut() = body;
        match self.walk.begin(request) {
            Ok(()) => self.unready.take(),
            Err(error) => Some(error),
        }
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
        let mut this = self.project();
        let result = loop {
            let state = this.state.as_mut().project();
            let Some(call) = this.call.as_mut() else {
                // Refused before it began, or over.
                let StateProjection::Met { error } = state else { return Poll::Pending };
                return error.take().map_or(Poll::Pending, |error| Poll::Ready(Err(error)));
            };
            let result = match state {
                StateProjection::Collecting { collect } => {
                    let met = match Pin::new(&mut *collect).poll_collect(cx) {
                        Poll::Ready(Ok(body)) => call.begin(body, Pin::new(collect).take_place()),
                        Poll::Ready(Err(error)) => Some(error),
                        Poll::Pending => {
                            ready!(poll_deadline(this.timer, call.walk.deadline(), cx));
                            break Err(Error::past_deadline());
                        }
                    };
                    match met {
                        Some(error) => Err(error),
                        None => {
                            this.state.set(State::Readying);
                            continue;
                        }
                    }
                }
                StateProjection::Met { error } => match error.take() {
                    Some(error) => Err(error),
                    None => return Poll::Pending,
                },
                StateProjection::Readying => {
                    let Some(service) = &mut call.service else { return Poll::Pending };
                    match service.poll_ready(cx) {
                        Poll::Ready(Ok(())) => {
                            let Some(request) = call.request.take() else { return Poll::Pending };
                            let attempt = service.call(*request);
                            this.state.set(State::Calling { attempt });
                            continue;
                        }
                        Poll::Ready(Err(error)) => Err(Error::from_inner(error)),
                        Poll::Pending => {
                            ready!(poll_deadline(this.timer, call.walk.deadline(), cx));
                            break Err(Error::past_deadline());
                        }
                    }
                }
                // The answer is asked before the timer: where both are ready, it wins.
                StateProjection::Calling { attempt } => match attempt.poll(cx) {
                    Poll::Ready(Ok(response)) if Verdict::is_good(&response) => break Ok(response),
                    Poll::Ready(result) => result.map_err(Error::from_inner),
                    Poll::Pending => {
                        ready!(poll_deadline(this.timer, call.walk.deadline(), cx));
                        break Err(Error::past_deadline());
                    }
                },
                StateProjection::Waiting { mut drain, drain_until, until } => {
                    if drain.as_mut().poll_drain(cx).is_pending() {
                        ready!(poll_until(this.timer, *drain_until, cx));
                        drain.drop_body();
                    }
                    ready!(poll_until(this.timer, *until, cx));
                    this.state.set(State::Readying);
                    continue;
                }
            };
            match call.walk.settle(result) {
                Step::Done(result) => break result,
                Step::Next { request, answer, wait } => {
                    call.request = Some(request);
                    this.state.set(match wait {
                        Duration::ZERO => State::Readying,
                        wait => {
                            let now = Instant::now();
                            let until = now + wait.min(FOR_EVER);
                            let drain_until = until.min(now + DRAIN_TIME);
                            State::Waiting { drain: Drain::new(answer), drain_until, until }
                        }
                    });
                }
            }
        };
        this.state.set(State::Met { error: None });
        *this.call = None;
        Poll::Ready(result)
    }
}

impl<S, B, RB> fmt::Debug for ResponseFuture<S, B, RB>
where
    S: Service<Request<RequestBody>>,
{
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let state = match self.state {
            State::Collecting { .. } => "Collecting",
            State::Met { .. } => "Met",
            State::Calling { .. } => "Calling",
            State::Waiting { .. } => "Waiting",
            State::Readying => "Readying",
        };
        f.debug_struct("ResponseFuture").field("state", &state).finish_non_exhaustive()
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

/// A round trip within a continent: what is not there by then would delay the next rung's own time.
const DRAIN_TIME: Duration = Duration::from_millis(50);
/// Thirty years stand for any longer wait, which no timer could serve.
const FOR_EVER: Duration = Duration::from_secs(60 * 60 * 24 * 365 * 30);
