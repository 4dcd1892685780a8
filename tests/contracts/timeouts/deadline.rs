//! One instant for the whole call, whatever it is at.

use std::time::Duration;

use backstop::testing::{
    CallEnd, Outcome, Readiness, ReadinessProbe, Script, ScriptedBody, ScriptedService, Step,
};
use backstop::vocabulary::{Guard, TimedOut};
use backstop::{CallOptions, Class, ClassifyLayer, Error, Exhausted, OnExhausted, Verdict};
use bytes::Bytes;
use http::Request;
use http_body_util::Full;
use tokio::time::Instant;
use tower::{Layer, ServiceBuilder, ServiceExt};

use super::{DONE, WORD, good, stream, timed_out, tireless, which};
use crate::support::{CHAT, bounded, exact_backoff, millis, post, read, secs};

fn within(deadline: Duration) -> Request<Full<Bytes>> {
    let mut request = post(CHAT);
    request.extensions_mut().insert(CallOptions::new().deadline(deadline));
    request
}

fn exhausted<T: std::fmt::Debug>(result: Result<T, Error>) -> Exhausted {
    match result.unwrap_err() {
        Error::Exhausted(exhausted) => *exhausted,
        other => panic!("{other:?}"),
    }
}

/// The call ended for its deadline, and says so.
fn assert_past_deadline<T: std::fmt::Debug>(result: Result<T, Error>) {
    let exhausted = exhausted(result);
    assert_eq!(exhausted.stopped_by(), Guard::Deadline, "{exhausted}");
    assert_eq!((exhausted.kind(), exhausted.status().as_u16()), ("timeout", 504));
    assert_eq!(timed_out(&exhausted), Some(TimedOut::Deadline), "{exhausted:?}");
    assert!(exhausted.to_string().contains("deadline"), "{exhausted}");
}

#[tokio::test(start_paused = true)]
async fn it_cuts_the_attempt_in_flight_the_first_like_the_third() {
    for failures in 0..3 {
        let script = vec![Outcome::status(503); failures];
        let provider = ScriptedService::new(Script::new(script).then(Outcome::never()));
        let stack = tireless().deadline(secs(10)).build().unwrap().layer(provider.clone());
        let start = Instant::now();
        assert_past_deadline(bounded(stack.oneshot(post(CHAT))).await);
        assert_eq!((start.elapsed(), provider.calls()), (secs(10), failures + 1));
        let last = provider.log().pop().unwrap();
        assert_eq!(last.end, Some(CallEnd::Dropped(start + secs(10))));
    }
}

#[tokio::test(start_paused = true)]
async fn both_layers_stop_at_the_same_instant() {
    for request in [within(secs(10)), post(CHAT)] {
        let provider =
            ScriptedService::new(Script::new([Outcome::status(503)]).then(Outcome::never()));
        let stack = ServiceBuilder::new()
            .layer(tireless().deadline(secs(10)).build().unwrap())
            .layer(ClassifyLayer::new())
            .service(provider.clone());
        let start = Instant::now();
        assert_past_deadline(bounded(stack.oneshot(request)).await);
        assert_eq!((start.elapsed(), provider.calls()), (secs(10), 2));
    }
}

#[tokio::test(start_paused = true)]
async fn it_holds_for_the_classifier_alone() {
    let stack = ClassifyLayer::new().layer(ScriptedService::new([Outcome::never()]));
    let start = Instant::now();
    let error = bounded(stack.oneshot(within(secs(10)))).await.unwrap_err();
    assert_eq!((start.elapsed(), timed_out(&error)), (secs(10), Some(TimedOut::Deadline)));
    assert_eq!(error.verdict().map(Verdict::class), Some(Class::Timeout));
}

#[tokio::test(start_paused = true)]
async fn it_cuts_an_answer_that_is_held() {
    let silent = stream([(1, ": keep-alive\n\n")], Step::forever());
    let stack = ServiceBuilder::new()
        .layer(tireless().build().unwrap())
        .layer(ClassifyLayer::new())
        .service(ScriptedService::new([silent]));
    let start = Instant::now();
    let response = bounded(stack.oneshot(within(secs(10)))).await.unwrap();
    assert_eq!((response.status().as_u16(), start.elapsed()), (504, secs(10)));
    let body = read(response.into_body()).await;
    assert!(body.text().contains("deadline"), "{}", body.text());
}

#[tokio::test(start_paused = true)]
async fn it_cuts_an_answer_that_is_handed_on() {
    let endless = stream((0..100).map(|_| (1, WORD)).chain([(1, DONE)]), Step::end());
    let stack = ServiceBuilder::new()
        .layer(tireless().build().unwrap())
        .layer(ClassifyLayer::new())
        .service(ScriptedService::new([endless]));
    let start = Instant::now();
    let response = bounded(stack.oneshot(within(millis(10_500)))).await.unwrap();
    assert_eq!((response.status().as_u16(), start.elapsed()), (200, secs(1)));
    let body = read(response.into_body()).await;
    assert_eq!((start.elapsed(), body.text()), (millis(10_500), WORD.repeat(10)));
    assert_eq!(which(body.end), Some(TimedOut::Deadline));
}

#[tokio::test(start_paused = true)]
async fn a_wait_that_ends_at_it_is_not_begun_and_one_that_ends_before_it_is() {
    // Waits of 0.5, 1 and 2 s: the third ends at 3.5 s.
    for (deadline, attempts, elapsed) in
        [(3_500, 3, 1_500), (3_501, 4, 3_500), (400, 1, 0), (501, 2, 500)]
    {
        let provider = ScriptedService::new(Script::new([Outcome::status(503)]).repeat_last());
        let stack = exact_backoff().build().unwrap().layer(provider.clone());
        let start = Instant::now();
        let response = bounded(stack.oneshot(within(millis(deadline)))).await.unwrap();
        assert_eq!(response.status(), 503, "the last answer is the last word");
        assert_eq!(
            (provider.calls(), start.elapsed()),
            (attempts, millis(elapsed)),
            "{deadline} ms"
        );
    }
}

#[tokio::test(start_paused = true)]
async fn a_hint_that_it_cannot_hold_ends_the_call_at_once() {
    for (hint, attempts, elapsed) in [("10", 1, 0), ("9", 2, 9_000)] {
        let limited = Outcome::status(429).header("retry-after", hint);
        let provider = ScriptedService::new([limited, good()]);
        let stack = ServiceBuilder::new()
            .layer(exact_backoff().build().unwrap())
            .layer(ClassifyLayer::new())
            .service(provider.clone());
        let start = Instant::now();
        let response = bounded(stack.oneshot(within(secs(10)))).await.unwrap();
        assert_eq!(response.status(), if attempts == 1 { 429 } else { 200 });
        assert_eq!((provider.calls(), start.elapsed()), (attempts, millis(elapsed)), "{hint}");
    }
}

#[tokio::test(start_paused = true)]
async fn it_ends_a_call_whose_body_never_comes() {
    let provider = ScriptedService::new([good()]);
    let stack = tireless().build().unwrap().layer(provider.clone());
    let body = ScriptedBody::new([Step::data("{"), Step::forever()]);
    let probe = body.probe();
    let (head, _) = within(secs(10)).into_parts();
    let start = Instant::now();
    assert_past_deadline(bounded(stack.oneshot(Request::from_parts(head, body))).await);
    assert_eq!((start.elapsed(), provider.calls()), (secs(10), 0));
    assert!(probe.is_dropped());
}

#[tokio::test(start_paused = true)]
async fn a_slow_body_takes_from_the_time_of_the_call() {
    let provider = ScriptedService::new(Script::new([Outcome::never()]).repeat_last());
    let stack = tireless().build().unwrap().layer(provider.clone());
    let body = ScriptedBody::new([Step::data("{"), Step::pause(secs(7)), Step::data("}")]);
    let (head, _) = within(secs(10)).into_parts();
    let start = Instant::now();
    assert_past_deadline(bounded(stack.oneshot(Request::from_parts(head, body))).await);
    assert_eq!((start.elapsed(), provider.calls()), (secs(10), 1));
    assert_eq!(provider.log()[0].at - start, secs(7));
}

#[tokio::test(start_paused = true)]
async fn it_ends_a_call_whose_service_does_not_get_ready_again() {
    for failures in 1..3 {
        let mut script = vec![Readiness::now(); failures];
        script.push(Readiness::never());
        let provider = ScriptedService::new(Script::new([Outcome::status(503)]).repeat_last());
        let service = ReadinessProbe::new(provider.clone()).readiness(script);
        let probe = service.probe();
        let stack = tireless().build().unwrap().layer(service);
        let start = Instant::now();
        assert_past_deadline(bounded(stack.oneshot(within(secs(10)))).await);
        assert_eq!((start.elapsed(), provider.calls()), (secs(10), failures));
        assert_eq!((probe.live_permits(), probe.live_instances()), (0, 0));
    }
}

#[tokio::test(start_paused = true)]
async fn it_cuts_short_no_call_that_ends_before_it() {
    let provider = ScriptedService::new([Outcome::status(503), good().after(millis(8_999))]);
    let stack = tireless().build().unwrap().layer(provider);
    let start = Instant::now();
    let response = bounded(stack.oneshot(within(secs(10)))).await.unwrap();
    assert_eq!((response.status().as_u16(), start.elapsed()), (200, millis(9_999)));
}

#[tokio::test(start_paused = true)]
async fn a_caller_who_wants_an_error_gets_it_at_the_deadline_too() {
    let provider = ScriptedService::new(Script::new([Outcome::status(503)]).repeat_last());
    let layer =
        tireless().on_exhausted(OnExhausted::Error).deadline(millis(2_500)).build().unwrap();
    let start = Instant::now();
    let exhausted = exhausted(bounded(layer.layer(provider).oneshot(post(CHAT))).await);
    assert_eq!((exhausted.stopped_by(), exhausted.retries()), (Guard::Deadline, 2));
    assert_eq!((exhausted.kind(), start.elapsed()), ("timeout", secs(2)));
    assert_eq!(exhausted.verdict().status().map(|status| status.as_u16()), Some(503));
}
