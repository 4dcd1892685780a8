//! What the contract tests share: requests, a stack with a recorder in it, and readers of what came out of it.

use std::cell::RefCell;
use std::fmt;
use std::future::Future;
use std::io::Write;
use std::pin::Pin;
use std::sync::{Arc, Once};
use std::task::{Context, Poll};
use std::time::Duration;

use backstop::backoff::{Backoff, BackoffBuilder};
use backstop::classify::{ClassifyBuilder, ClassifyService};
use backstop::testing::ScriptedService;
use backstop::vocabulary::BoxError;
use backstop::{
    AttemptCell, BackoffLayer, CallContext, Class, Error, Exhausted, Jitter, RequestBody, Schedule,
    Verdict,
};
use bytes::Bytes;
use http::{HeaderMap, Request, Response, StatusCode};
use http_body::Body;
use http_body_util::BodyExt;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use tokio::sync::watch;
use tokio::time::timeout;
use tower::{Layer, Service, ServiceExt};
use tracing::field::{Field, Visit};
use tracing::{Event, Level, Metadata, Subscriber, span};

/// A small chat request.
pub(crate) const ASK: &str = r#"{"model":"alias-x","messages":[{"role":"user","content":"hi"}]}"#;
/// Where requests in OpenAI's dialect go that need no socket.
pub(crate) const CHAT: &str = "http://provider.test/v1/chat/completions";
/// The same in Anthropic's.
pub(crate) const MESSAGES: &str = "http://provider.test/v1/messages";
/// The same in Gemini's.
pub(crate) const GENERATE: &str = "http://provider.test/v1beta/models/model-a:generateContent";

/// A POST of `body`, as JSON.
pub(crate) fn post(url: impl AsRef<str>, body: impl Into<RequestBody>) -> Request<RequestBody> {
    Request::post(url.as_ref())
        .header("content-type", "application/json")
        .body(body.into())
        .unwrap()
}

pub(crate) const fn ms(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

pub(crate) const fn secs(secs: u64) -> Duration {
    Duration::from_secs(secs)
}

/// A backoff layer whose waits start at `initial` and double up to a minute, without jitter.
pub(crate) fn doubling(initial: Duration) -> BackoffBuilder {
    let schedule = Schedule::new(initial, secs(60)).with_jitter(Jitter::None);
    BackoffLayer::builder().schedule(schedule)
}

/// `text` as gzip.
pub(crate) fn gzip(text: impl AsRef<[u8]>) -> Bytes {
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::default());
    encoder.write_all(text.as_ref()).unwrap();
    encoder.finish().unwrap().into()
}

/// Longer than any call takes; on a paused clock, where nothing else is to happen, it passes at once.
const FOR_EVER: Duration = secs(60 * 60 * 24 * 365 * 20);

// === a client on real sockets ===

pub(crate) type Client = hyper_util::client::legacy::Client<HttpConnector, RequestBody>;

/// hyper's pooling client, which repeats nothing by itself.
pub(crate) fn client() -> Client {
    hyper_util::client::legacy::Client::builder(TokioExecutor::new())
        .retry_canceled_requests(false)
        .build_http()
}

// === the stack ===

/// Backoff over Classify, and between them a recorder in the place of the AttemptLayer.
#[derive(Clone)]
pub(crate) struct Rig<S> {
    pub(crate) stack: Backoff<Recorder<ClassifyService<S>>>,
    pub(crate) attempts: Attempts,
}

pub(crate) fn rig<S>(backoff: BackoffBuilder, classify: ClassifyBuilder, service: S) -> Rig<S> {
    let attempts = Attempts::default();
    let recorder =
        Recorder { inner: classify.build().unwrap().layer(service), attempts: attempts.clone() };
    Rig { stack: backoff.build().unwrap().layer(recorder), attempts }
}

impl<S, RB> Rig<S>
where
    S: Service<Request<RequestBody>, Response = Response<RB>> + Clone,
    S::Error: Into<BoxError>,
    S::Future: Send + 'static,
    RB: Body<Data = Bytes> + Send + Unpin + 'static,
    RB::Error: Into<BoxError>,
{
    /// Sends `request` and reads the answer to its end, well or not.
    pub(crate) async fn send<B>(&self, request: Request<B>) -> Result<Received<Error>, Error>
    where
        B: Body<Data = Bytes> + Unpin + 'static,
        B::Error: Into<BoxError>,
    {
        let call = async { Ok(receive(self.stack.clone().oneshot(request).await?).await) };
        timeout(FOR_EVER, call).await.expect("the call hangs")
    }
}

/// Writes down what each attempt came to.
#[derive(Clone)]
pub(crate) struct Recorder<S> {
    inner: S,
    attempts: Attempts,
}

/// The attempts of a rig, in the order of their ends.
#[derive(Clone, Debug)]
pub(crate) struct Attempts(Arc<watch::Sender<Vec<Attempt>>>);

#[derive(Clone, Debug)]
pub(crate) struct Attempt {
    /// Its number in its call, as a layer below the backoff sees it.
    pub(crate) number: u32,
    /// What its call had waited when it began.
    pub(crate) waited: Duration,
    pub(crate) verdict: Verdict,
}

impl Attempts {
    pub(crate) fn all(&self) -> Vec<Attempt> {
        self.0.borrow().clone()
    }

    pub(crate) fn verdicts(&self) -> Vec<Verdict> {
        self.all().into_iter().map(|attempt| attempt.verdict).collect()
    }

    pub(crate) fn classes(&self) -> Vec<Class> {
        self.verdicts().iter().map(Verdict::class).collect()
    }

    pub(crate) fn numbers(&self) -> Vec<u32> {
        self.all().iter().map(|attempt| attempt.number).collect()
    }
}

impl Default for Attempts {
    fn default() -> Self {
        Self(Arc::new(watch::Sender::new(Vec::new())))
    }
}

type BoxFuture<T> = Pin<Box<dyn Future<Output = T> + Send>>;

impl<S, B, RB> Service<Request<B>> for Recorder<S>
where
    S: Service<Request<B>, Response = Response<RB>, Error = Error>,
    S::Future: Send + 'static,
{
    type Response = Response<RB>;
    type Error = Error;
    type Future = BoxFuture<Result<Response<RB>, Error>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Error>> {
        self.inner.poll_ready(cx)
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        // A layer that stands alone makes no context for a first attempt.
        let context = CallContext::of(&request);
        let (number, waited) =
            context.map_or((1, Duration::ZERO), |context| (context.attempt(), context.waited()));
        let attempts = self.attempts.clone();
        let call = self.inner.call(request);
        Box::pin(async move {
            let result = call.await;
            let verdict = match &result {
                Ok(response) => Verdict::of(response),
                Err(error) => error.verdict(),
            };
            if let Some(verdict) = verdict.cloned() {
                let attempt = Attempt { number, waited, verdict };
                attempts.0.send_modify(|attempts| attempts.push(attempt));
            }
            result
        })
    }
}

// === what came out ===

/// An answer, read to its end.
#[derive(Debug)]
pub(crate) struct Received<E> {
    pub(crate) status: StatusCode,
    pub(crate) headers: HeaderMap,
    /// The data frames, each as it came.
    pub(crate) frames: Vec<Bytes>,
    /// What ended it, where it did not end well.
    pub(crate) error: Option<E>,
    /// What the classifier left in it.
    pub(crate) cell: Option<AttemptCell>,
}

pub(crate) async fn receive<B>(response: Response<B>) -> Received<B::Error>
where
    B: Body<Data = Bytes>,
{
    let (head, body) = response.into_parts();
    let mut body = std::pin::pin!(body);
    let (mut frames, mut error) = (Vec::new(), None);
    while let Some(frame) = body.frame().await {
        match frame {
            Ok(frame) => frames.extend(frame.into_data()),
            Err(failed) => {
                error = Some(failed);
                break;
            }
        }
    }
    let cell = head.extensions.get().cloned();
    Received { status: head.status, headers: head.headers, frames, error, cell }
}

impl<E: fmt::Debug> Received<E> {
    pub(crate) fn bytes(&self) -> Bytes {
        self.frames.concat().into()
    }

    pub(crate) fn text(&self) -> String {
        String::from_utf8(self.frames.concat()).unwrap()
    }

    /// The value of a header, which must be text.
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name).map(|value| value.to_str().unwrap())
    }

    pub(crate) fn json(&self) -> serde_json::Value {
        serde_json::from_slice(&self.bytes()).unwrap()
    }

    /// The verdict at the end of the answer.
    pub(crate) fn last_verdict(&self) -> Verdict {
        self.cell.as_ref().unwrap().last_verdict().unwrap().clone()
    }
}

/// What a call that was given up says.
pub(crate) fn exhausted<T: fmt::Debug>(result: Result<T, Error>) -> Exhausted {
    match result {
        Err(Error::Exhausted(exhausted)) => *exhausted,
        other => panic!("not exhausted: {other:?}"),
    }
}

/// The times between the end of a call of `service` and the start of the next one.
pub(crate) fn waits(service: &ScriptedService) -> Vec<Duration> {
    let log = service.log();
    log.windows(2).map(|pair| pair[1].at - pair[0].ended_at().unwrap()).collect()
}

// === tracing events ===

/// The tracing events of this thread, from [`listen`] on and for as long as this lives.
///
/// One subscriber serves the process, and each thread hears its own. Subscribers of single threads
/// would lose events: tracing caches what a call site was told by the thread that came first.
#[must_use]
pub(crate) struct Events(());

#[derive(Clone, Debug)]
pub(crate) struct Heard {
    pub(crate) level: Level,
    pub(crate) target: String,
    fields: Vec<(&'static str, String)>,
}

thread_local! {
    static HEARD: RefCell<Option<Vec<Heard>>> = const { RefCell::new(None) };
}

/// Listens to this thread's tracing events. Tests with a runtime of one thread, as is usual, run on it.
pub(crate) fn listen() -> Events {
    static INSTALLED: Once = Once::new();
    INSTALLED.call_once(|| tracing::subscriber::set_global_default(PerThread).unwrap());
    HEARD.set(Some(Vec::new()));
    Events(())
}

impl Events {
    /// Those of one target.
    pub(crate) fn of(&self, target: &str) -> Vec<Heard> {
        HEARD.with_borrow(|heard| {
            heard.iter().flatten().filter(|heard| heard.target == target).cloned().collect()
        })
    }
}

impl Drop for Events {
    fn drop(&mut self) {
        HEARD.set(None);
    }
}

impl Heard {
    /// A field, as text.
    pub(crate) fn field(&self, name: &str) -> Option<&str> {
        let (_, value) = self.fields.iter().find(|(key, _)| *key == name)?;
        Some(value)
    }
}

impl Visit for Heard {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        self.fields.push((field.name(), format!("{value:?}")));
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        self.fields.push((field.name(), value.to_owned()));
    }
}

struct PerThread;

impl Subscriber for PerThread {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.is_event() && metadata.target().starts_with("backstop")
    }

    fn new_span(&self, _: &span::Attributes<'_>) -> span::Id {
        span::Id::from_u64(1)
    }

    fn record(&self, _: &span::Id, _: &span::Record<'_>) {}

    fn record_follows_from(&self, _: &span::Id, _: &span::Id) {}

    fn event(&self, event: &Event<'_>) {
        let metadata = event.metadata();
        let (level, target) = (*metadata.level(), metadata.target().to_owned());
        let mut heard = Heard { level, target, fields: Vec::new() };
        event.record(&mut heard);
        HEARD.with_borrow_mut(|all| all.iter_mut().for_each(|all| all.push(heard.clone())));
    }

    fn enter(&self, _: &span::Id) {}

    fn exit(&self, _: &span::Id) {}
}
