//! A provider in memory: a `tower` service whose nth call has the nth scripted outcome.

use std::{
    fmt,
    future::Future,
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    task::{Context, Poll, ready},
};

use bytes::{Buf, BufMut, Bytes, BytesMut};
use http::{Request, Response, request};
use http_body::Body;
use pin_project_lite::pin_project;
use tokio::{
    sync::watch,
    time::{Instant, Sleep},
};
use tower_service::Service;

use super::{
    body::ScriptedBody,
    error::BoxError,
    outcome::{Kind, Outcome},
    script::Script,
};

/// An in-memory stand-in for an HTTP client and the provider behind it.
///
/// It reads the whole request body, waits as told, answers as told, and keeps a log. Clones share script and log. Time
/// is tokio's, so tests can run under a paused clock, which real sockets cannot.
///
/// It is always ready; put a [`ReadinessProbe`](super::ReadinessProbe) around it to test how a layer treats readiness.
///
/// ```
/// # #[tokio::main(flavor = "current_thread", start_paused = true)]
/// # async fn main() -> Result<(), backstop::testing::BoxError> {
/// use std::time::Duration;
/// use backstop::testing::{Outcome, ScriptedBody, ScriptedService};
/// use tower_service::Service;
///
/// let mut service = ScriptedService::new([
///     Outcome::status(429).header("retry-after", "3"),
///     Outcome::status(200).json(r#"{"ok":true}"#).after(Duration::from_secs(20)),
/// ]);
/// for expected in [429, 200] {
///     let request = http::Request::post("/v1/chat/completions").body(ScriptedBody::full("{}"))?;
///     assert_eq!(service.call(request).await?.status(), expected);
/// }
/// let log = service.log();
/// assert_eq!(log[1].body, "{}");
/// assert_eq!(log[1].ended_at().map(|end| end - log[0].at), Some(Duration::from_secs(20)));
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone)]
#[must_use]
pub struct ScriptedService {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    source: Source,
    exhausted: AtomicUsize,
    log: watch::Sender<Vec<SeenCall>>,
}

enum Source {
    Script(Script<Outcome>),
    Function(Box<dyn Fn(&SeenCall) -> Outcome + Send + Sync>),
}

/// One call that a [`ScriptedService`] has seen.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct SeenCall {
    /// Its place in the order of calls, from 0.
    pub index: usize,
    /// The head as it came, extensions included.
    pub head: request::Parts,
    /// As much of the body as was read.
    pub body: Bytes,
    /// Whether the body was read to its end.
    pub body_complete: bool,
    /// When `call` was called, on tokio's clock.
    pub at: Instant,
    /// How the call ended; `None` while its future is alive and has no answer.
    pub end: Option<CallEnd>,
}

/// How a call of a [`ScriptedService`] ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum CallEnd {
    /// The scripted response or error was handed over at this instant.
    Answered(Instant),
    /// The future was dropped at this instant, before its answer.
    Dropped(Instant),
    /// The request's own body failed at this instant, and its error became the call's.
    BodyFailed(Instant),
}

pin_project! {
    /// The future of a [`ScriptedService`].
    #[must_use = "futures do nothing unless polled"]
    pub struct ScriptedFuture<B> {
        #[pin]
        body: Option<B>,
        collected: BytesMut,
        outcome: Option<Outcome>,
        sleep: Option<Pin<Box<Sleep>>>,
        entry: Entry,
    }
}

/// The call's line in the log; closes it when the future is dropped first.
#[derive(Debug)]
struct Entry {
    shared: Arc<Shared>,
    index: usize,
}

// === impl ScriptedService ===

impl ScriptedService {
    /// A service whose nth call has the nth outcome. A call past the end of the script gets a 500 that says so, and
    /// counts in [`exhausted`](Self::exhausted).
    pub fn new(script: impl Into<Script<Outcome>>) -> Self {
        Self::of(Source::Script(script.into()))
    }

    /// A service that asks `choose` for each outcome, once the request body has been read.
    pub fn from_fn(choose: impl Fn(&SeenCall) -> Outcome + Send + Sync + 'static) -> Self {
        Self::of(Source::Function(Box::new(choose)))
    }

    /// What was seen so far, in the order of the calls.
    #[must_use]
    pub fn log(&self) -> Vec<SeenCall> {
        self.shared.log.borrow().clone()
    }

    /// How many calls were made.
    #[must_use]
    pub fn calls(&self) -> usize {
        self.shared.log.borrow().len()
    }

    /// How many calls came after the end of the script.
    #[must_use]
    pub fn exhausted(&self) -> usize {
        self.shared.exhausted.load(Ordering::Relaxed)
    }

    /// Waits until at least `n` calls were made.
    pub async fn wait_for_calls(&self, n: usize) {
        // The sender lives in `self`, so the channel cannot close under this wait.
        let _ = self.shared.log.subscribe().wait_for(|log| log.len() >= n).await;
    }

    fn of(source: Source) -> Self {
        let shared =
            Shared { source, exhausted: AtomicUsize::new(0), log: watch::Sender::new(Vec::new()) };
        Self { shared: Arc::new(shared) }
    }
}

impl<B> Service<Request<B>> for ScriptedService
where
    B: Body,
    B::Error: Into<BoxError>,
{
    type Response = Response<ScriptedBody>;
    type Error = BoxError;
    type Future = ScriptedFuture<B>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<B>) -> ScriptedFuture<B> {
        let (head, body) = request.into_parts();
        let (entry, outcome) = Entry::open(Arc::clone(&self.shared), head);
        let body = if outcome.as_ref().is_some_and(|outcome| outcome.before_body) {
            None
        } else {
            Some(body)
        };
        ScriptedFuture { body, collected: BytesMut::new(), outcome, sleep: None, entry }
    }
}

impl Shared {
    /// The scripted outcome of call `index`; `None` where it is chosen only once the body has been read.
    fn scripted(&self, index: usize) -> Option<Outcome> {
        let Source::Script(script) = &self.source else {
            return None;
        };
        Some(script.take().unwrap_or_else(|| {
            self.exhausted.fetch_add(1, Ordering::Relaxed);
            Outcome::exhausted(index)
        }))
    }
}

impl fmt::Debug for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Script(script) => script.fmt(f),
            Self::Function(_) => f.write_str("from_fn"),
        }
    }
}

// === impl ScriptedFuture ===

impl<B> Future for ScriptedFuture<B>
where
    B: Body,
    B::Error: Into<BoxError>,
{
    type Output = Result<Response<ScriptedBody>, BoxError>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let mut this = self.project();
        while let Some(body) = this.body.as_mut().as_pin_mut() {
            match ready!(body.poll_frame(cx)) {
                Some(Ok(frame)) => {
                    if let Ok(data) = frame.into_data() {
                        this.collected.reserve(data.remaining());
                        this.collected.put(data);
                    }
                }
                Some(Err(error)) => {
                    this.body.set(None);
                    this.entry.body(this.collected.split().freeze(), false);
                    this.entry.close(CallEnd::BodyFailed);
                    return Poll::Ready(Err(error.into()));
                }
                None => {
                    this.body.set(None);
                    this.entry.body(this.collected.split().freeze(), true);
                }
            }
        }
        let entry = &*this.entry;
        let outcome = this.outcome.get_or_insert_with(|| entry.choose());
        if let Some(delay) = outcome.after {
            let sleep = this.sleep.get_or_insert_with(|| Box::pin(tokio::time::sleep(delay)));
            ready!(sleep.as_mut().poll(cx));
            outcome.after = None;
        }
        let result = match &outcome.kind {
            Kind::Response(parts, plan) => {
                Ok(Response::from_parts((**parts).clone(), ScriptedBody::from_plan(plan.clone())))
            }
            Kind::Error(fault) => Err(fault.make()),
            Kind::Never => return Poll::Pending,
        };
        entry.close(CallEnd::Answered);
        Poll::Ready(result)
    }
}

impl<B> fmt::Debug for ScriptedFuture<B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ScriptedFuture").field("outcome", &self.outcome).finish_non_exhaustive()
    }
}

// === impl Entry ===

impl Entry {
    fn open(shared: Arc<Shared>, head: request::Parts) -> (Self, Option<Outcome>) {
        let (mut index, mut outcome) = (0, None);
        // The outcome is taken while the log is held, so that the nth line and the nth outcome belong together.
        shared.log.send_modify(|log| {
            index = log.len();
            outcome = shared.scripted(index);
            log.push(SeenCall {
                index,
                head,
                body: Bytes::new(),
                body_complete: false,
                at: Instant::now(),
                end: None,
            });
        });
        (Self { shared, index }, outcome)
    }

    fn body(&self, body: Bytes, complete: bool) {
        self.shared.log.send_modify(|log| {
            log[self.index].body = body;
            log[self.index].body_complete = complete;
        });
    }

    fn choose(&self) -> Outcome {
        match &self.shared.source {
            Source::Script(_) => Outcome::exhausted(self.index),
            Source::Function(choose) => {
                let seen = self.shared.log.borrow()[self.index].clone();
                choose(&seen)
            }
        }
    }

    /// Writes the end down, unless one stands already.
    fn close(&self, end: impl FnOnce(Instant) -> CallEnd) {
        self.shared.log.send_if_modified(|log| {
            let open = log[self.index].end.is_none();
            if open {
                log[self.index].end = Some(end(Instant::now()));
            }
            open
        });
    }
}

impl Drop for Entry {
    fn drop(&mut self) {
        self.close(CallEnd::Dropped);
    }
}

// === impl SeenCall ===

impl SeenCall {
    /// When the call ended, however it did; `None` while it runs.
    #[must_use]
    pub fn ended_at(&self) -> Option<Instant> {
        self.end.map(|end| end.at())
    }

    /// The value of a header, where it is there and is text; the first one of several.
    #[must_use]
    pub fn header(&self, name: &str) -> Option<&str> {
        self.head.headers.get(name)?.to_str().ok()
    }
}

impl CallEnd {
    /// When it ended.
    #[must_use]
    pub fn at(self) -> Instant {
        match self {
            Self::Answered(at) | Self::Dropped(at) | Self::BodyFailed(at) => at,
        }
    }
}
