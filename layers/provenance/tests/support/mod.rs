//! A ledger that does as it is told, bodies that are told frame by frame, and what else the tests share.
#![allow(dead_code, reason = "each test binary uses a part of it")]

use std::collections::VecDeque;
use std::convert::Infallible;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::{Duration, SystemTime};

use backstop_core::dialect::Dialect;
use backstop_core::{CallContext, Chain, Profile, RequestBody, Rung, WallClock};
use backstop_provenance::{
    AttemptFinished, AttemptStarted, CallFinished, CallStarted, Finished, Ledger, Slot, Started,
};
use bytes::Bytes;
use http::{Request, Response};
use http_body::{Body, Frame};
use http_body_util::BodyExt;
use tokio::sync::watch;
use tower::Service;

pub(crate) const ASK: &str = r#"{"model":"alias-x","messages":[{"role":"user","content":"hi"}]}"#;
pub(crate) const CHAT: &str = "https://me:secret@provider.test/v1/chat/completions?key=hidden";
pub(crate) const MESSAGES: &str = "https://provider.test/v1/messages";

pub(crate) fn ask(url: &str) -> Request<RequestBody> {
    Request::post(url)
        .header("content-type", "application/json")
        .body(RequestBody::from(ASK))
        .unwrap()
}

pub(crate) const fn secs(secs: u64) -> Duration {
    Duration::from_secs(secs)
}

pub(crate) const fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

/// 2026-01-01T00:00:00Z at this moment.
pub(crate) fn clock() -> WallClock {
    WallClock::new(new_year(), tokio::time::Instant::now().into_std())
}

pub(crate) fn new_year() -> SystemTime {
    SystemTime::UNIX_EPOCH + secs(1_767_225_600)
}

/// `sol` once or more often, then `gpt`.
pub(crate) fn chain(primary: u32) -> Chain {
    let rung = |id: &str, model: &str, attempts| {
        Rung::new(Profile::new(id, model, "p", Dialect::OPENAI).unwrap(), attempts).unwrap()
    };
    Chain::new([rung("sol", "model-a", primary), rung("gpt", "model-b", 1)]).unwrap()
}

// === answers ===

/// OpenAI's.
pub(crate) mod chat {
    pub(crate) const DELTA: &str = "data: {\"model\":\"model-a-1\",\"choices\":[{\"index\":0,\
                                    \"delta\":{\"content\":\"x\"}}]}\n\n";
    pub(crate) const STOP: &str = "data: {\"model\":\"model-a-1\",\"choices\":[{\"index\":0,\
                                   \"delta\":{},\"finish_reason\":\"stop\"}],\
                                   \"usage\":{\"prompt_tokens\":9,\"completion_tokens\":4}}\n\n";
    pub(crate) const DONE: &str = "data: [DONE]\n\n";
    pub(crate) const WHOLE: &str = "{\"model\":\"model-a-1\",\"choices\":[{\"index\":0,\"message\":\
                                    {\"role\":\"assistant\",\"content\":\"x\"},\"finish_reason\":\"stop\"}],\
                                    \"usage\":{\"prompt_tokens\":9,\"completion_tokens\":4}}";
}

/// Anthropic's.
pub(crate) mod messages {
    pub(crate) const BEGIN: &str = "event: message_start\ndata: {\"type\":\"message_start\",\
                                    \"message\":{\"id\":\"m\",\"model\":\"claude-x\",\
                                    \"usage\":{\"input_tokens\":9,\"output_tokens\":1}}}\n\n";
    pub(crate) const EVENT: &str = "event: content_block_delta\ndata: {\"type\":\"content_block_delta\",\
                                    \"index\":0,\"delta\":{\"type\":\"text_delta\",\"text\":\"x\"}}\n\n";
    pub(crate) const DELTA: &str = "event: message_delta\ndata: {\"type\":\"message_delta\",\
                                    \"delta\":{\"stop_reason\":\"end_turn\"},\
                                    \"usage\":{\"output_tokens\":4}}\n\n";
    pub(crate) const STOP: &str = "event: message_stop\ndata: {\"type\":\"message_stop\"}\n\n";
}

// === the ledger ===

/// What a ledger does with a start.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Start {
    Keep,
    KeepAfter(Duration),
    Fail,
    Hang,
}

/// Writes down what it is told, in order; does with each start what its script says, and keeps the rest.
#[derive(Clone)]
pub(crate) struct Book {
    entries: Arc<watch::Sender<Vec<Entry>>>,
    script: Arc<watch::Sender<VecDeque<Start>>>,
}

#[derive(Clone, Debug)]
pub(crate) enum Entry {
    Started(Started),
    Finished(Finished),
}

impl Book {
    pub(crate) fn new() -> Self {
        Self::scripted([])
    }

    pub(crate) fn scripted(script: impl IntoIterator<Item = Start>) -> Self {
        let script = script.into_iter().collect();
        Self {
            entries: Arc::new(watch::Sender::new(Vec::new())),
            script: Arc::new(watch::Sender::new(script)),
        }
    }

    pub(crate) fn entries(&self) -> Vec<Entry> {
        self.entries.borrow().clone()
    }

    pub(crate) fn calls_started(&self) -> Vec<CallStarted> {
        let of = |entry| match entry {
            Entry::Started(Started::Call(call)) => Some(*call),
            _ => None,
        };
        self.entries().into_iter().filter_map(of).collect()
    }

    pub(crate) fn calls(&self) -> Vec<CallFinished> {
        let of = |entry| match entry {
            Entry::Finished(Finished::Call(call)) => Some(*call),
            _ => None,
        };
        self.entries().into_iter().filter_map(of).collect()
    }

    pub(crate) fn attempts_started(&self) -> Vec<AttemptStarted> {
        let of = |entry| match entry {
            Entry::Started(Started::Attempt(attempt)) => Some(*attempt),
            _ => None,
        };
        self.entries().into_iter().filter_map(of).collect()
    }

    pub(crate) fn attempts(&self) -> Vec<AttemptFinished> {
        let of = |entry| match entry {
            Entry::Finished(Finished::Attempt(attempt)) => Some(*attempt),
            _ => None,
        };
        self.entries().into_iter().filter_map(of).collect()
    }

    /// The only call, which was started once and finished once.
    pub(crate) fn call(&self) -> CallFinished {
        assert_eq!(self.calls_started().len(), 1, "{:?}", self.entries());
        let calls = self.calls();
        assert_eq!(calls.len(), 1, "{:?}", self.entries());
        calls[0].clone()
    }

    /// The only attempt, which was started once and finished once.
    pub(crate) fn attempt(&self) -> AttemptFinished {
        assert_eq!(self.attempts_started().len(), 1, "{:?}", self.entries());
        let attempts = self.attempts();
        assert_eq!(attempts.len(), 1, "{:?}", self.entries());
        attempts[0].clone()
    }

    pub(crate) fn classes(&self) -> Vec<&'static str> {
        self.attempts().iter().map(|attempt| attempt.class).collect()
    }

    fn write(&self, entry: Entry) {
        self.entries.send_modify(|entries| entries.push(entry));
    }
}

pub(crate) struct Place(Book);

impl Slot for Place {
    fn finish(self, finished: Finished) {
        self.0.write(Entry::Finished(finished));
    }
}

impl Ledger for Book {
    type Slot = Place;
    type Error = &'static str;
    type Starting = Pin<Box<dyn Future<Output = Result<Place, &'static str>> + Send>>;

    fn started(&self, started: Started) -> Self::Starting {
        let book = self.clone();
        Box::pin(async move {
            let mut next = Start::Keep;
            book.script.send_modify(|script| next = script.pop_front().unwrap_or(Start::Keep));
            match next {
                Start::Keep => {}
                Start::KeepAfter(time) => tokio::time::sleep(time).await,
                Start::Fail => return Err("no space left on the device"),
                Start::Hang => std::future::pending().await,
            }
            book.write(Entry::Started(started));
            Ok(Place(book))
        })
    }
}

// === bodies ===

/// What a body does next; at its end it says that there is nothing more.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Piece {
    Data(&'static str),
    /// Knows that it is the last.
    Last(&'static str),
    Error,
    Hang,
    /// Not there yet, but at once.
    Later,
}

#[derive(Clone, Debug)]
pub(crate) struct Pieces(VecDeque<Piece>);

impl Pieces {
    pub(crate) fn new(pieces: impl IntoIterator<Item = Piece>) -> Self {
        Self(pieces.into_iter().collect())
    }
}

impl Body for Pieces {
    type Data = Bytes;
    type Error = std::io::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, std::io::Error>>> {
        let data = |data: &'static str| Some(Ok(Frame::data(Bytes::from_static(data.as_bytes()))));
        Poll::Ready(match self.0.pop_front() {
            Some(Piece::Data(text)) => data(text),
            Some(Piece::Last(text)) => {
                self.0.push_front(Piece::Last(""));
                data(text)
            }
            Some(Piece::Error) => Some(Err(std::io::ErrorKind::ConnectionReset.into())),
            Some(Piece::Hang) => {
                self.0.push_front(Piece::Hang);
                return Poll::Pending;
            }
            Some(Piece::Later) => {
                cx.waker().wake_by_ref();
                return Poll::Pending;
            }
            None => None,
        })
    }

    fn is_end_stream(&self) -> bool {
        matches!(self.0.front(), Some(Piece::Last("")))
    }
}

pub(crate) fn answer(status: u16, pieces: impl IntoIterator<Item = Piece>) -> Response<Pieces> {
    Response::builder()
        .status(status)
        .header("content-type", "application/json")
        .body(Pieces::new(pieces))
        .unwrap()
}

pub(crate) fn stream(pieces: impl IntoIterator<Item = Piece>) -> Response<Pieces> {
    Response::builder()
        .header("content-type", "text/event-stream")
        .body(Pieces::new(pieces))
        .unwrap()
}

/// What a poll of `future` gives now.
pub(crate) fn poll_once<F: Future + Unpin>(future: &mut F) -> Poll<F::Output> {
    Pin::new(future).poll(&mut Context::from_waker(std::task::Waker::noop()))
}

/// Reads up to `frames` frames; whether the body ended with an error.
pub(crate) async fn read<B>(body: B, frames: usize) -> bool
where
    B: Body<Data = Bytes>,
{
    let mut body = std::pin::pin!(body);
    for _ in 0..frames {
        match body.frame().await {
            Some(Ok(_)) => {}
            Some(Err(_)) => return true,
            None => return false,
        }
    }
    false
}

// === services ===

type Answering<T> = Pin<Box<dyn Future<Output = Result<T, &'static str>> + Send>>;

/// A router that does as it is told: plans the chain, and asks the rungs one after another until one
/// answers with a 2xx.
#[derive(Clone)]
pub(crate) struct Router<S> {
    pub(crate) inner: S,
    pub(crate) chain: Chain,
}

impl<S, RB> Service<Request<RequestBody>> for Router<S>
where
    S: Service<Request<RequestBody>, Response = Response<RB>> + Clone + Send + 'static,
    S::Future: Send + 'static,
    S::Error: Send,
    RB: Send + 'static,
{
    type Response = Response<RB>;
    type Error = S::Error;
    type Future = Pin<Box<dyn Future<Output = Result<Response<RB>, S::Error>> + Send>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.inner.poll_ready(cx)
    }

    fn call(&mut self, request: Request<RequestBody>) -> Self::Future {
        let clone = self.inner.clone();
        let mut service = std::mem::replace(&mut self.inner, clone);
        let chain = self.chain.clone();
        Box::pin(async move {
            let context = CallContext::of(&request).expect("there is a layer above").clone();
            context.plan(chain.clone());
            context.begin_first();
            let mut rung = 0;
            loop {
                context.set_rung(rung);
                let result = service.call(request.clone()).await;
                let is_good = result.as_ref().is_ok_and(|answer| answer.status().is_success());
                rung += 1;
                if is_good || rung as usize == chain.rungs().len() {
                    return result;
                }
                context.begin_next(Duration::ZERO, backstop_core::WaitReason::NextRung);
                std::future::poll_fn(|cx| service.poll_ready(cx)).await?;
            }
        })
    }
}

/// Answers as its script says, one after another; then no more.
#[derive(Clone)]
pub(crate) struct Provider {
    script: Arc<watch::Sender<VecDeque<Response<Pieces>>>>,
    pub(crate) calls: Arc<watch::Sender<usize>>,
}

impl Provider {
    pub(crate) fn new(script: impl IntoIterator<Item = Response<Pieces>>) -> Self {
        let script = script.into_iter().collect();
        Self {
            script: Arc::new(watch::Sender::new(script)),
            calls: Arc::new(watch::Sender::new(0)),
        }
    }

    pub(crate) fn calls(&self) -> usize {
        *self.calls.borrow()
    }
}

impl<B> Service<Request<B>> for Provider {
    type Response = Response<Pieces>;
    type Error = &'static str;
    type Future = Answering<Response<Pieces>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), &'static str>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, _: Request<B>) -> Self::Future {
        self.calls.send_modify(|calls| *calls += 1);
        let mut next = None;
        self.script.send_modify(|script| next = script.pop_front());
        Box::pin(async move {
            match next {
                Some(answer) => Ok(answer),
                None => std::future::pending().await,
            }
        })
    }
}

/// Answers at once with nothing to allocate.
#[derive(Clone, Debug)]
pub(crate) struct Plain;

impl<B> Service<Request<B>> for Plain {
    type Response = Response<RequestBody>;
    type Error = Infallible;
    type Future = std::future::Ready<Result<Self::Response, Infallible>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        drop(std::hint::black_box(request));
        std::future::ready(Ok(Response::new(RequestBody::from("{}"))))
    }
}
