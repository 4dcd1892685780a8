//! With tower's own limits below.

use std::time::Duration;

use backstop::testing::{Outcome, ScriptedBody, ScriptedService, Step};
use backstop::{BackoffLayer, CallOptions, ClassifyLayer, Jitter, Schedule};
use http::Request;
use tokio::time::Instant;
use tower::buffer::Buffer;
use tower::limit::ConcurrencyLimitLayer;
use tower::{Layer, ServiceBuilder, ServiceExt};

use super::{good, third_time_lucky};
use crate::support::{CHAT, exact_backoff, millis, post, secs};

fn long_wait() -> BackoffLayer {
    let schedule = Schedule::new(secs(30), secs(30)).with_jitter(Jitter::None);
    BackoffLayer::builder().schedule(schedule).build().unwrap()
}

/// Lets every task run that can.
async fn settle() {
    tokio::time::sleep(Duration::from_millis(1)).await;
}

#[tokio::test(start_paused = true)]
async fn while_one_call_waits_thirty_seconds_another_is_served_at_once() {
    let provider = ScriptedService::new([Outcome::status(503), good(), good()]);
    let stack = ServiceBuilder::new()
        .layer(long_wait())
        .layer(ClassifyLayer::new())
        .layer(ConcurrencyLimitLayer::new(1))
        .service(provider.clone());
    let start = Instant::now();
    let first = tokio::spawn(stack.clone().oneshot(post(CHAT)));
    settle().await;
    assert_eq!(provider.calls(), 1);
    let second = stack.oneshot(post(CHAT)).await.unwrap();
    assert_eq!((second.status().as_u16(), start.elapsed()), (200, millis(1)));
    assert_eq!(first.await.unwrap().unwrap().status(), 200);
    assert_eq!(start.elapsed(), secs(30));
}

#[tokio::test(start_paused = true)]
async fn while_a_slow_caller_sends_its_body_another_is_served_at_once() {
    let provider = ScriptedService::new([good(), good()]);
    let stack = ServiceBuilder::new()
        .layer(long_wait())
        .layer(ClassifyLayer::new())
        .layer(ConcurrencyLimitLayer::new(1))
        .service(provider.clone())
        .map_request(|request: Request<ScriptedBody>| request);
    let slow = ScriptedBody::new([Step::data("{"), Step::pause(secs(60)), Step::data("}")]);
    let ask = |body| Request::post(CHAT).body(body).unwrap();
    let start = Instant::now();
    let first = tokio::spawn(stack.clone().oneshot(ask(slow)));
    settle().await;
    assert_eq!(provider.calls(), 0);
    stack.oneshot(ask(ScriptedBody::full("{}"))).await.unwrap();
    assert_eq!(start.elapsed(), millis(1));
    first.await.unwrap().unwrap();
    assert_eq!(start.elapsed(), secs(60));
    let bodies: Vec<_> = provider.log().iter().map(|seen| seen.body.clone()).collect();
    assert_eq!(bodies, ["{}", "{}"]);
}

#[tokio::test(start_paused = true)]
async fn a_place_is_free_again_as_soon_as_the_last_attempt_failed() {
    let provider = ScriptedService::new([Outcome::status(503), Outcome::status(400), good()]);
    let stack = ServiceBuilder::new()
        .layer(exact_backoff().max_retries(0).build().unwrap())
        .layer(ClassifyLayer::new())
        .layer(ConcurrencyLimitLayer::new(1))
        .service(provider);
    // The answers are kept: what holds a place is the call, not its answer.
    let mut answers = Vec::new();
    for status in [503, 400, 200] {
        let answer = stack.clone().oneshot(post(CHAT)).await.unwrap();
        assert_eq!(answer.status(), status);
        answers.push(answer);
    }
}

#[tokio::test(start_paused = true)]
async fn a_finished_call_that_is_kept_holds_no_place() {
    let stack = ServiceBuilder::new()
        .layer(exact_backoff().build().unwrap())
        .layer(ClassifyLayer::new())
        .layer(ConcurrencyLimitLayer::new(1))
        .service(ScriptedService::new([good(), good()]));
    let mut first = Box::pin(stack.clone().oneshot(post(CHAT)));
    (&mut first).await.unwrap();
    // `first` is over but not dropped.
    let second = tokio::time::timeout(secs(1), stack.oneshot(post(CHAT))).await;
    assert_eq!(second.unwrap().unwrap().status(), 200);
    drop(first);
}

#[tokio::test(start_paused = true)]
async fn three_attempts_through_a_buffer_each_with_a_place_of_its_own() {
    let provider = third_time_lucky();
    let buffer = Buffer::new(ClassifyLayer::new().layer(provider.clone()), 1);
    let stack = exact_backoff().build().unwrap().layer(buffer);
    let start = Instant::now();
    let answer = stack.oneshot(post(CHAT)).await.unwrap();
    assert_eq!((answer.status().as_u16(), provider.calls()), (200, 3));
    assert_eq!(start.elapsed(), millis(1_500));
}

#[tokio::test(start_paused = true)]
async fn a_buffer_whose_one_place_is_asked_for_by_many_loses_none() {
    let provider = third_time_lucky();
    let buffer = Buffer::new(provider.clone(), 1);
    let stack = exact_backoff().build().unwrap().layer(buffer);
    let calls: Vec<_> = (0..30).map(|_| tokio::spawn(stack.clone().oneshot(post(CHAT)))).collect();
    for call in calls {
        let answer = tokio::time::timeout(secs(3600), call).await.expect("a place was lost");
        answer.unwrap().unwrap();
    }
    assert!(provider.calls() >= 30);
}

#[tokio::test(start_paused = true)]
async fn a_call_that_is_cancelled_while_it_queues_for_a_place_leaves_the_queue() {
    let provider = ScriptedService::new([Outcome::never(), good()]);
    let stack = ServiceBuilder::new()
        .layer(exact_backoff().build().unwrap())
        .layer(ConcurrencyLimitLayer::new(1))
        .service(provider.clone());
    let holder = tokio::spawn(stack.clone().oneshot(post(CHAT)));
    settle().await;
    let mut request = post(CHAT);
    request.extensions_mut().insert(CallOptions::new().deadline(secs(5)));
    let queued = tokio::spawn(stack.clone().oneshot(request));
    settle().await;
    queued.abort();
    holder.abort();
    let _ = (queued.await, holder.await);
    let answer = tokio::time::timeout(secs(1), stack.oneshot(post(CHAT))).await.unwrap();
    assert_eq!(answer.unwrap().status(), 200);
}

#[tokio::test(start_paused = true)]
async fn the_classifier_alone_keeps_to_the_limit_below_it() {
    let provider = ScriptedService::from_fn(|_| good().after(secs(1)));
    let stack = ServiceBuilder::new()
        .layer(ClassifyLayer::new())
        .layer(ConcurrencyLimitLayer::new(1))
        .service(provider.clone());
    let start = Instant::now();
    let calls: Vec<_> = (0..5).map(|_| tokio::spawn(stack.clone().oneshot(post(CHAT)))).collect();
    for call in calls {
        assert_eq!(call.await.unwrap().unwrap().status(), 200);
    }
    assert_eq!((provider.calls(), start.elapsed()), (5, secs(5)), "one after the other");
    let buffered = Buffer::new(stack, 2);
    let calls: Vec<_> =
        (0..5).map(|_| tokio::spawn(buffered.clone().oneshot(post(CHAT)))).collect();
    for call in calls {
        assert_eq!(call.await.unwrap().unwrap().status(), 200);
    }
    assert_eq!((provider.calls(), start.elapsed()), (10, secs(10)));
}

#[tokio::test(start_paused = true)]
async fn the_backoff_alone_makes_its_attempts_through_one_place() {
    let provider = third_time_lucky();
    let stack = ServiceBuilder::new()
        .layer(exact_backoff().build().unwrap())
        .layer(ConcurrencyLimitLayer::new(1))
        .service(provider.clone());
    let start = Instant::now();
    for calls in [3, 6, 9] {
        assert_eq!(stack.clone().oneshot(post(CHAT)).await.unwrap().status(), 200);
        assert_eq!(provider.calls(), calls);
    }
    assert_eq!(start.elapsed(), millis(4_500));
}
