//! An answer and a timer that are ready in the same poll: the answer wins.

use std::future::poll_fn;
use std::pin::Pin;
use std::task::Poll;

use backstop::classify::Timeouts;
use backstop::testing::{Outcome, Readiness, ReadinessProbe, ScriptedBody, ScriptedService, Step};
use backstop::{CallOptions, ClassifyLayer};
use tower::{Layer, ServiceBuilder, ServiceExt};

use super::{backoff, good};
use crate::support::{CHAT, exact_backoff, post, read, secs};

/// Advances the clock past everything before anybody is polled again, so that all is ready in one poll.
async fn polled_late<T>(call: impl Future<Output = T>) -> T {
    let mut call = Box::pin(call);
    assert!(poll_once(&mut call).await.is_none(), "it is under way");
    tokio::time::advance(secs(100)).await;
    poll_once(&mut call).await.expect("all is ready")
}

/// One poll.
async fn poll_once<F: Future + Unpin>(call: &mut F) -> Option<F::Output> {
    poll_fn(|cx| {
        Poll::Ready(match Pin::new(&mut *call).poll(cx) {
            Poll::Ready(done) => Some(done),
            Poll::Pending => None,
        })
    })
    .await
}

fn late_answer() -> ScriptedService {
    ScriptedService::new([good().after(secs(10))])
}

#[tokio::test(start_paused = true)]
async fn an_answer_that_is_there_beats_the_deadline_of_the_backoff() {
    let stack = exact_backoff().deadline(secs(10)).build().unwrap().layer(late_answer());
    let response = polled_late(stack.oneshot(post(CHAT))).await.unwrap();
    assert_eq!(response.status(), 200);
}

#[tokio::test(start_paused = true)]
async fn an_answer_that_is_there_beats_the_timeouts_of_the_classifier() {
    for timeouts in [
        Timeouts::none().head(Some(secs(10))),
        Timeouts::none().attempt(Some(secs(10))),
        Timeouts::none().head(Some(secs(5))).first_content(Some(secs(5))),
    ] {
        let stack =
            ClassifyLayer::builder().timeouts(timeouts).build().unwrap().layer(late_answer());
        let response = polled_late(stack.oneshot(post(CHAT))).await.unwrap();
        assert_eq!(response.status(), 200);
    }
}

#[tokio::test(start_paused = true)]
async fn an_answer_that_is_there_beats_the_deadline_in_both_layers() {
    let stack = backoff(ClassifyLayer::new().layer(late_answer()));
    let mut request = post(CHAT);
    request.extensions_mut().insert(CallOptions::new().deadline(secs(10)));
    let response = polled_late(stack.oneshot(request)).await.unwrap();
    assert_eq!(response.status(), 200);
}

#[tokio::test(start_paused = true)]
async fn bytes_that_are_there_beat_the_idle_timeout() {
    let steps = [
        Step::data("data: {\"choices\":[{\"index\":0,\"delta\":{\"content\":\"a\"}}]}\n\n"),
        Step::pause(secs(10)),
        Step::data("data: [DONE]\n\n"),
    ];
    let answer = Outcome::status(200)
        .header("content-type", "text/event-stream")
        .body(ScriptedBody::new(steps).unknown_size());
    let timeouts = Timeouts::none().idle(Some(secs(10))).idle_content(Some(secs(10)));
    let layer = ClassifyLayer::builder().timeouts(timeouts).build().unwrap();
    let stack = ServiceBuilder::new().layer(layer).service(ScriptedService::new([answer]));
    let body = stack.oneshot(post(CHAT)).await.unwrap().into_body();
    let body = polled_late(read(body)).await;
    assert!(body.end.is_ok(), "{:?}", body.end);
}

#[tokio::test(start_paused = true)]
async fn a_readiness_that_is_there_beats_the_deadline() {
    let provider = ScriptedService::new([Outcome::status(503), good()]);
    let service =
        ReadinessProbe::new(provider).readiness([Readiness::now(), Readiness::pause(secs(9))]);
    // It begins to get ready at 1 s, so that readiness and deadline come at 10 s both.
    let stack = exact_backoff().deadline(secs(10)).build().unwrap().layer(service);
    let mut call = Box::pin(stack.oneshot(post(CHAT)));
    assert!(poll_once(&mut call).await.is_none());
    tokio::time::advance(secs(1)).await;
    assert!(poll_once(&mut call).await.is_none(), "it gets ready");
    tokio::time::advance(secs(100)).await;
    let response = poll_once(&mut call).await.expect("all is ready").unwrap();
    assert_eq!(response.status(), 200);
}
