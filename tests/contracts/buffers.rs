//! The limit on what all calls together hold.

use backstop::testing::{Outcome, ScriptedBody, ScriptedService, Step, script};
use backstop::{BackoffLayer, BufferLimit, Class, ClassifyLayer, Error, Hold, Verdict};
use bytes::Bytes;
use http::Request;
use http_body_util::Full;
use tower::{Layer, ServiceExt};

use crate::support::{CHAT, exact_backoff, frames, post_body, read, secs, sse};

/// Ten bytes.
const TEN: &str = "{\"a\":\"bc\"}";

#[tokio::test(start_paused = true)]
async fn a_request_without_a_place_is_refused_and_nothing_is_sent() {
    let limit = BufferLimit::new(19);
    let service = ScriptedService::from_fn(|_| Outcome::status(503));
    let stack = exact_backoff().buffer_limit(limit.clone()).build().unwrap().layer(service.clone());
    let first = tokio::spawn(stack.clone().oneshot(post_body(CHAT, TEN)));
    tokio::time::sleep(secs(1)).await;
    assert_eq!(limit.used(), 10, "it is kept while it waits for its next attempt");
    let sent = service.calls();
    let error = stack.clone().oneshot(post_body(CHAT, TEN)).await.unwrap_err();
    assert!(matches!(error, Error::Full { limit: 19, .. }), "{error}");
    assert_eq!((error.status().as_u16(), error.kind()), (503, "buffer_full"));
    assert_eq!((service.calls(), limit.used()), (sent, 10));
    first.await.unwrap().unwrap();
    assert_eq!(limit.used(), 0, "the call is over");
    stack.oneshot(post_body(CHAT, TEN)).await.unwrap();
    assert_eq!(limit.used(), 0);
}

#[tokio::test(start_paused = true)]
async fn a_body_takes_its_place_as_it_comes_and_leaves_it_when_its_call_is_dropped() {
    let limit = BufferLimit::new(1_000);
    let layer = BackoffLayer::builder().buffer_limit(limit.clone()).build().unwrap();
    let slow = ScriptedBody::new([Step::data("0123456789"), Step::pause(secs(9)), Step::data("x")]);
    let request = Request::post(CHAT).body(slow).unwrap();
    let call = layer.layer(ScriptedService::from_fn(|_| Outcome::never())).oneshot(request);
    let mut call = Box::pin(call);
    assert!(tokio::time::timeout(secs(1), &mut call).await.is_err());
    assert_eq!(limit.used(), 10);
    assert!(tokio::time::timeout(secs(9), &mut call).await.is_err());
    assert_eq!(limit.used(), 11, "an attempt is in flight");
    drop(call);
    assert_eq!(limit.used(), 0);
}

#[tokio::test(start_paused = true)]
async fn a_request_that_is_sent_once_keeps_no_place() {
    let limit = BufferLimit::new(10);
    let layer = BackoffLayer::builder().max_retries(0).buffer_limit(limit.clone()).build().unwrap();
    let service = layer.layer(ScriptedService::from_fn(|_| Outcome::never()));
    let mut calls = Vec::new();
    for _ in 0..3 {
        let mut call = Box::pin(service.clone().oneshot(post_body(CHAT, TEN)));
        assert!(tokio::time::timeout(secs(1), &mut call).await.is_err());
        calls.push(call);
    }
    assert_eq!(limit.used(), 0);
}

#[tokio::test(start_paused = true)]
async fn an_answer_without_a_place_is_one_that_is_too_long_to_be_held() {
    let document = script::openai::chat("m", "an answer");
    for hold in [Hold::FirstContent, Hold::Complete] {
        let limit = BufferLimit::new(20);
        let service = ScriptedService::new([Outcome::from(document.clone())]);
        let classify =
            ClassifyLayer::builder().hold(hold).buffer_limit(limit.clone()).build().unwrap();
        let response = classify.layer(service).oneshot(post_body(CHAT, TEN)).await.unwrap();
        assert_eq!(Verdict::of(&response).map(Verdict::class), Some(Class::Success));
        let body = read(response.into_body()).await;
        assert!(
            body.end.is_ok() && body.text().contains("an answer"),
            "handed on, whole: {body:?}"
        );
        assert_eq!(limit.used(), 0);
    }
    let limit = BufferLimit::new(20);
    let stream =
        sse(ScriptedBody::new(frames(["data: {\"choices\":[", "]}\n\n", "data: [DONE]\n\n"])));
    let classify =
        ClassifyLayer::builder().hold(Hold::Complete).buffer_limit(limit.clone()).build().unwrap();
    let response = classify
        .layer(ScriptedService::new([stream]))
        .oneshot(Request::post(CHAT).body(Full::new(Bytes::new())).unwrap())
        .await
        .unwrap();
    assert_eq!(Verdict::of(&response).map(Verdict::class), Some(Class::TooLarge), "never in part");
    assert!(limit.used() > 0, "what is held takes its place until it is read or dropped");
    drop(response);
    assert_eq!(limit.used(), 0);
}
