use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker, ready};

use backstop_core::error::{BoxError, Error};
use backstop_core::{Collect, RequestBody};
use bytes::Bytes;
use http::{Request, Response};
use http_body::Body;
use pin_project_lite::pin_project;
use tower_service::Service;

use crate::keep::Start;
use crate::ledger::Ledger;
use crate::provenance::body::ProvenanceBody;
use crate::provenance::config::Config;
use crate::provenance::headers;
use crate::provenance::open::{End, Open};

pin_project! {
    /// The future of a [`ProvenanceService`](crate::ProvenanceService) call. Dropping it cancels the call
    /// at once, and its record says so.
    pub struct ResponseFuture<S, B, L>
    where
        S: Service<Request<RequestBody>>,
        L: Ledger,
    {
        // Dropped before the record is: an attempt in flight is recorded before its call.
        #[pin]
        state: State<S, S::Future, B, L::Starting>,
        open: Option<Open<L>>,
    }
}

pin_project! {
    #[project = StateProjection]
    enum State<S, F, B, T> {
        /// Reads the rest of the caller's body.
        Collecting { collect: Collect<B>, unsent: Option<Unsent<S>> },
        /// The ledger is to keep the start of the record.
        Starting { #[pin] start: Start<T>, unsent: Option<Unsent<S>> },
        /// The call may go down.
        Readying { unsent: Option<Unsent<S>> },
        /// The call is on its way.
        Calling { #[pin] call: F },
        /// The call is over, or its answer was handed on.
        Done,
    }
}

/// A request that did not go down yet, and the service that it goes to.
struct Unsent<S> {
    service: S,
    request: Request<RequestBody>,
    readiness: Readiness,
}

/// Whether the service can be called.
enum Readiness {
    /// It never will: the call met this before it went down.
    Failed(Error),
    /// It has to be polled ready.
    Needed,
    /// It was polled ready.
    Reserved,
}

impl<S, B, L> ResponseFuture<S, B, L>
where
    L: Ledger,
    S: Service<Request<RequestBody>> + Clone,
    B: Body<Data = Bytes> + Unpin + 'static,
    B::Error: Into<BoxError>,
{
    /// A call of the service `ready`, which was polled ready.
    #[inline]
    pub(crate) fn new(
        ready: &mut S,
        config: &Arc<Config<L>>,
        request: Request<B>,
        unready: &mut Option<Error>,
    ) -> Self {
        let (mut head, body) = request.into_parts();
        let mut open = Open::begin(config, &mut head.extensions);
        let mut collect =
            Collect::new(body, config.body_limit).within(config.buffer_limit.as_ref());
        // Most bodies are there already. Whoever polls later brings a waker that wakes.
        let body = Pin::new(&mut collect).poll_collect(&mut Context::from_waker(Waker::noop()));
        let body = match body {
            // Nothing to wait for: the service that is ready is called right here.
            Poll::Ready(Ok(body)) if !L::KEEPS && unready.is_none() => {
                open.place = Pin::new(&mut collect).take_place();
                let request = Request::from_parts(head, body);
                open.read(&request);
                let call = open.span.in_scope(|| ready.call(request));
                return Self { state: State::Calling { call }, open: Some(open) };
            }
            body => body,
        };
        let request = Request::from_parts(head, RequestBody::empty());
        Self::unsent(ready, open, request, collect, body, unready.take())
    }

    /// A call that cannot go down yet, or met an error before it.
    fn unsent(
        ready: &mut S,
        mut open: Open<L>,
        mut request: Request<RequestBody>,
        mut collect: Collect<B>,
        body: Poll<Result<RequestBody, Error>>,
        unready: Option<Error>,
    ) -> Self {
        let mut readiness = unready.map_or(Readiness::Reserved, Readiness::Failed);
        let is_late = body.is_pending();
        match body {
            Poll::Ready(Ok(body)) => {
                open.place = Pin::new(&mut collect).take_place();
                *request.body_mut() = body;
            }
            Poll::Ready(Err(error)) => readiness = Readiness::Failed(error),
            Poll::Pending => {
                if matches!(readiness, Readiness::Reserved) {
                    readiness = Readiness::Needed;
                }
            }
        }
        // The service that was polled ready is the one that is called. The clone, which has reserved
        // nothing, stays behind and is polled ready itself before it is called. The other way round, a
        // concurrency limit or a buffer below would be called without its reservation.
        let clone = ready.clone();
        let mut service = std::mem::replace(ready, clone);
        if !matches!(readiness, Readiness::Reserved) {
            // What was reserved is dropped, so that others can use the place while a slow caller sends
            // its body.
            service = ready.clone();
        }
        let unsent = Unsent { service, request, readiness };
        let state = if is_late {
            State::Collecting { collect, unsent: Some(unsent) }
        } else {
            State::start(&open, unsent)
        };
        Self { state, open: Some(open) }
    }
}

impl<S, F, B, T> State<S, F, B, T> {
    /// Starts the record of a call whose request is there.
    fn start<L: Ledger<Starting = T>>(open: &Open<L>, unsent: Unsent<S>) -> Self {
        open.read(&unsent.request);
        let start = if L::KEEPS { open.start(&unsent.request) } else { None };
        let unsent = Some(unsent);
        match start {
            Some(start) => Self::Starting { start, unsent },
            None => Self::Readying { unsent },
        }
    }
}

impl<S, B, RB, L> Future for ResponseFuture<S, B, L>
where
    L: Ledger,
    S: Service<Request<RequestBody>, Response = Response<RB>> + Clone,
    S::Error: Into<BoxError>,
    B: Body<Data = Bytes> + Unpin + 'static,
    B::Error: Into<BoxError>,
    RB: Body<Data = Bytes>,
    RB::Error: Into<BoxError>,
{
    type Output = Result<Response<ProvenanceBody<RB, L>>, Error>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let mut this = self.project();
        let Some(open) = this.open.as_mut() else { return Poll::Pending };
        let result = ready!(poll_answer(this.state.as_mut(), open, cx));
        this.state.set(State::Done);
        let Some(mut open) = this.open.take() else { return Poll::Pending };
        // Thrown away where it must not be handed on.
        let result = result.and_then(|response| open.answer(&response).map(|()| response));
        Poll::Ready(match result {
            Ok(response) => Ok(handed_on(response, open)),
            Err(error) => {
                open.fail(&error);
                Err(error)
            }
        })
    }
}

fn poll_answer<S, B, RB, L>(
    mut state: Pin<&mut State<S, S::Future, B, L::Starting>>,
    open: &mut Open<L>,
    cx: &mut Context<'_>,
) -> Poll<Result<Response<RB>, Error>>
where
    L: Ledger,
    S: Service<Request<RequestBody>, Response = Response<RB>>,
    S::Error: Into<BoxError>,
    B: Body<Data = Bytes> + Unpin + 'static,
    B::Error: Into<BoxError>,
{
    loop {
        let next = match state.as_mut().project() {
            StateProjection::Calling { call } => {
                let _inside = open.span.enter();
                return call.poll(cx).map_err(Error::from_inner);
            }
            StateProjection::Collecting { collect, unsent } => {
                let body = ready!(Pin::new(&mut *collect).poll_collect(cx));
                let Some(mut unsent) = unsent.take() else { return Poll::Pending };
                match body {
                    Ok(body) => {
                        open.place = Pin::new(collect).take_place();
                        *unsent.request.body_mut() = body;
                    }
                    Err(error) => unsent.readiness = Readiness::Failed(error),
                }
                State::start(open, unsent)
            }
            StateProjection::Starting { start, unsent } => {
                let kept = {
                    let _inside = open.span.enter();
                    ready!(start.poll_kept(&open.config.keeper, cx))
                };
                let Some(mut unsent) = unsent.take() else { return Poll::Pending };
                match kept {
                    Ok(slot) => open.slot = slot,
                    // What the call met before tells more.
                    Err(_) if matches!(unsent.readiness, Readiness::Failed(_)) => {}
                    Err(error) => unsent.readiness = Readiness::Failed(error),
                }
                State::Readying { unsent: Some(unsent) }
            }
            StateProjection::Readying { unsent: place } => {
                let Some(unsent) = place else { return Poll::Pending };
                if matches!(unsent.readiness, Readiness::Needed) {
                    let _inside = open.span.enter();
                    unsent.readiness = match ready!(unsent.service.poll_ready(cx)) {
                        Ok(()) => Readiness::Reserved,
                        Err(error) => Readiness::Failed(Error::from_inner(error)),
                    };
                }
                let Some(unsent) = place.take() else { return Poll::Pending };
                let Unsent { mut service, request, readiness } = unsent;
                if let Readiness::Failed(error) = readiness {
                    return Poll::Ready(Err(error));
                }
                State::Calling { call: open.span.in_scope(|| service.call(request)) }
            }
            StateProjection::Done => return Poll::Pending,
        };
        state.set(next);
    }
}

/// The answer as the caller gets it.
fn handed_on<RB, L>(response: Response<RB>, mut open: Open<L>) -> Response<ProvenanceBody<RB, L>>
where
    L: Ledger,
    RB: Body<Data = Bytes>,
{
    let (mut head, body) = response.into_parts();
    if body.is_end_stream() {
        // Nobody reads a body that says that there is nothing in it.
        open.end(End::Whole);
    }
    if open.config.answer_headers {
        headers::set(&mut head.headers, open.provenance(), open.word_at_head());
    }
    head.extensions.insert(open.provenance().clone());
    Response::from_parts(head, ProvenanceBody::new(body, open))
}

impl<S, B, L> fmt::Debug for ResponseFuture<S, B, L>
where
    S: Service<Request<RequestBody>>,
    L: Ledger,
{
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let state = match &self.state {
            State::Collecting { .. } => "Collecting",
            State::Starting { .. } => "Starting",
            State::Readying { .. } => "Readying",
            State::Calling { .. } => "Calling",
            State::Done => "Done",
        };
        f.debug_struct("ResponseFuture")
            .field("state", &state)
            .field("provenance", &self.open.as_ref().map(Open::provenance))
            .finish()
    }
}
