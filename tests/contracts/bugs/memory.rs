//! What is held in memory: B044.

use std::convert::Infallible;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll, ready};

use allocation_counter::{AllocationInfo, measure};
use backstop::testing::script::openai;
use backstop::testing::{Answer, Outcome, ScriptedBody, ScriptedProvider, ScriptedService, Step};
use backstop::{ClassifyLayer, Error};
use bytes::Bytes;
use http::Request;
use http_body::{Body, Frame, SizeHint};
use http_body_util::BodyExt;
use tokio::time::{Sleep, sleep, timeout};
use tower::{Layer, ServiceExt};

use crate::rig::{ASK, CHAT, client, doubling, ms, post, rig, secs};

const LIMIT: u64 = 64 * 1024;
const MIB: u64 = 1024 * 1024;

/// A request body that costs no memory itself, and counts what was taken of it.
struct Upload {
    left: u64,
    piece: usize,
    announced: bool,
    /// Where it stops for a second.
    pause: Option<(u64, Pin<Box<Sleep>>)>,
    taken: Arc<AtomicU64>,
}

static ZEROS: [u8; 256 * 1024] = [0; 256 * 1024];

impl Upload {
    fn new(len: u64, piece: usize) -> (Self, Arc<AtomicU64>) {
        let taken = Arc::new(AtomicU64::new(0));
        let (announced, pause) = (false, None);
        (Self { left: len, piece, announced, pause, taken: Arc::clone(&taken) }, taken)
    }
}

impl Body for Upload {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        let taken = self.taken.load(Ordering::Relaxed);
        if let Some((at, sleep)) = &mut self.pause
            && taken >= *at
        {
            ready!(sleep.as_mut().poll(cx));
            self.pause = None;
        }
        let len = self.left.min(self.piece as u64);
        self.left -= len;
        self.taken.fetch_add(len, Ordering::Relaxed);
        let piece = Bytes::from_static(&ZEROS[..usize::try_from(len).unwrap()]);
        Poll::Ready((len > 0).then(|| Ok(Frame::data(piece))))
    }

    fn is_end_stream(&self) -> bool {
        self.left == 0
    }

    fn size_hint(&self) -> SizeHint {
        if self.announced { SizeHint::with_exact(self.left) } else { SizeHint::default() }
    }
}

/// What `run` allocates, on a runtime that is there before.
fn allocated<F: Future<Output = ()>>(run: impl FnOnce() -> F) -> AllocationInfo {
    let runtime =
        tokio::runtime::Builder::new_current_thread().enable_all().start_paused(true).build();
    let runtime = runtime.unwrap();
    measure(|| runtime.block_on(run()))
}

fn too_large<T: std::fmt::Debug>(result: Result<T, Error>) {
    let error = result.unwrap_err();
    assert!(matches!(error, Error::TooLarge { limit: LIMIT, .. }), "{error}");
    assert_eq!(error.status(), 413);
    assert!(error.to_string().contains("65536"), "{error}");
}

#[test]
fn b044_a_body_over_the_limit_is_refused_when_the_limit_is_passed_and_not_held_past_it() {
    let pieces = [1, 1_024, 64 * 1_024, 256 * 1_024];
    for (piece, len) in
        pieces.into_iter().flat_map(|piece| [(piece, LIMIT + 1), (piece, 200 * MIB)])
    {
        let service = ScriptedService::new([openai::chat("model-a", "hello")]);
        let (upload, taken) = Upload::new(len, piece);
        let held = allocated(|| async {
            let backoff = doubling(ms(100)).body_limit(LIMIT);
            let rig = rig(backoff, ClassifyLayer::builder(), service.clone());
            too_large(rig.send(Request::post(CHAT).body(upload).unwrap()).await);
        });
        assert_eq!(service.calls(), 0, "nothing is sent");
        let taken = taken.load(Ordering::Relaxed);
        assert!(taken <= LIMIT + piece as u64, "{taken} of pieces of {piece}");
        // While pieces are joined anew, the old buffer is there beside the new one.
        assert!(held.bytes_max <= 2 * LIMIT + 64 * 1_024, "{held:?} of pieces of {piece}");
    }
}

#[test]
fn b044_a_body_that_announces_too_much_is_refused_unread() {
    let service = ScriptedService::new([openai::chat("model-a", "hello")]);
    let (mut upload, taken) = Upload::new(200 * MIB, 1_024);
    upload.announced = true;
    let held = allocated(|| async {
        let alone = doubling(ms(100)).body_limit(LIMIT).build().unwrap().layer(service.clone());
        too_large(alone.oneshot(Request::post(CHAT).body(upload).unwrap()).await);
    });
    assert_eq!((service.calls(), taken.load(Ordering::Relaxed)), (0, 0));
    assert!(held.bytes_max <= 64 * 1_024, "{held:?}");
}

#[test]
fn b044_fifty_bodies_over_the_limit_at_once_stay_within_fifty_limits() {
    let service = ScriptedService::new([openai::chat("model-a", "hello")]);
    let held = allocated(|| async {
        let backoff = doubling(ms(100)).body_limit(LIMIT);
        let rig = rig(backoff, ClassifyLayer::builder(), service.clone());
        let mut calls = tokio::task::JoinSet::new();
        let mut uploads = Vec::new();
        for _ in 0..50 {
            let rig = rig.clone();
            let (mut body, taken) = Upload::new(20 * MIB, 2_048);
            // All are at the same place: each stops where it has nearly come to the limit.
            body.pause = Some((60 * 1_024, Box::pin(sleep(secs(1)))));
            uploads.push(taken);
            calls.spawn(async move {
                too_large(rig.send(Request::post(CHAT).body(body).unwrap()).await);
            });
        }
        sleep(ms(500)).await;
        assert!(uploads.iter().all(|taken| taken.load(Ordering::Relaxed) == 60 * 1_024));
        calls.join_all().await;
        assert!(uploads.iter().all(|taken| taken.load(Ordering::Relaxed) <= LIMIT + 2_048));
    });
    assert_eq!(service.calls(), 0);
    let bound = 50 * (2 * LIMIT + 64 * 1_024);
    assert!(held.bytes_max <= bound, "{held:?}");
}

/// An answer of a hundred MiB in events of 16 KiB with content, which are all the same bytes.
const EVENTS: usize = 100 * 64;

fn event() -> Bytes {
    let content = "x".repeat(16 * 1_024 - 56);
    let event = format!(
        "data: {{\"choices\":[{{\"index\":0,\"delta\":{{\"content\":\"{content}\"}}}}]}}\n\n"
    );
    event.into()
}

#[test]
fn b044_a_stream_is_taken_as_fast_as_it_is_read_and_not_held() {
    let steps = vec![Step::data(event()); EVENTS];
    let body = ScriptedBody::new(steps.into_iter().chain([Step::data("data: [DONE]\n\n")]));
    let (body, total) = (body.unknown_size(), EVENTS as u64 * event().len() as u64 + 14);
    assert!(total > 99 * MIB);
    let probe = body.probe();
    let answer = Outcome::status(200).header("content-type", "text/event-stream").body(body);
    let service = ScriptedService::new([answer]);
    let held = allocated(|| async {
        let rig = rig(doubling(ms(100)), ClassifyLayer::builder(), service);
        let response = rig.stack.oneshot(post(CHAT, ASK)).await.unwrap();
        assert_eq!(probe.polls(), 1, "content came with the first event");
        let mut body = std::pin::pin!(response.into_body());
        let mut read = 0;
        let mut frames = 0;
        while let Some(frame) = body.frame().await {
            read += frame.unwrap().into_data().unwrap().len() as u64;
            frames += 1;
            assert!(probe.polls() <= frames.max(1), "never ahead of its reader");
            if frames % 1_000 == 0 {
                sleep(secs(10)).await;
                assert!(probe.polls() <= frames);
            }
        }
        assert_eq!(read, total);
    });
    assert!(held.bytes_max <= 256 * 1_024, "{held:?}");
}

#[tokio::test]
async fn b044_a_provider_whose_stream_is_not_read_is_held_back() {
    let answer = (0..EVENTS).fold(Answer::sse(), |answer, _| answer.event_bytes(event()));
    let answer = answer.event("[DONE]");
    let provider = ScriptedProvider::start([answer]).await.unwrap();
    let rig = rig(doubling(ms(10)), ClassifyLayer::builder(), client());
    let url = format!("{}/v1/chat/completions", provider.url());
    let response = rig.stack.oneshot(post(url, ASK)).await.unwrap();
    let mut body = std::pin::pin!(response.into_body());
    let mut read = body.frame().await.unwrap().unwrap().into_data().unwrap().len();

    // Nobody reads: soon nothing more is written, and far from all was.
    let written = || provider.log()[0].written;
    let stalled = async {
        let mut before = written();
        loop {
            sleep(ms(300)).await;
            let now = written();
            if now == before {
                break now;
            }
            before = now;
        }
    };
    let stalled = timeout(secs(30), stalled).await.unwrap();
    assert!(stalled < 50 * MIB, "{stalled} bytes were taken of a stream that nobody reads");

    while let Some(frame) = body.frame().await {
        read += frame.unwrap().into_data().unwrap().len();
    }
    assert_eq!(read, EVENTS * event().len() + "data: [DONE]\n\n".len());
}
