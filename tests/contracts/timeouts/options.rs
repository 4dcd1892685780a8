//! What one call can want otherwise than its layers are set: each option, alone.

use backstop::testing::script::openai;
use backstop::testing::{Outcome, Script, ScriptedService};
use backstop::vocabulary::Guard;
use backstop::{CallOptions, ClassifyLayer, Error, Hold, Limit, OnExhausted};
use http::Response;
use tokio::time::Instant;
use tower::{Layer, ServiceBuilder, ServiceExt};

use super::{good, timed_out};
use crate::support::{CHAT, bounded, exact_backoff, millis, post, read, secs};

fn failing() -> ScriptedService {
    ScriptedService::new(Script::new([Outcome::status(503)]).repeat_last())
}

/// Attempts and waiting of a call with these options, whose layer would make four attempts.
async fn attempts(options: CallOptions) -> (usize, u128) {
    attempts_of(options, failing()).await
}

async fn attempts_of(options: CallOptions, provider: ScriptedService) -> (usize, u128) {
    let stack = exact_backoff().max_retries(3).build().unwrap().layer(provider.clone());
    let mut request = post(CHAT);
    request.extensions_mut().insert(options);
    let start = Instant::now();
    let _ = bounded(stack.oneshot(request)).await;
    (provider.calls(), start.elapsed().as_millis())
}

#[tokio::test(start_paused = true)]
async fn without_options_the_layer_decides() {
    assert_eq!(attempts(CallOptions::new()).await, (4, 3_500));
}

#[tokio::test(start_paused = true)]
async fn max_attempts_lowers_the_number_and_max_retries_still_bounds_it() {
    assert_eq!(attempts(CallOptions::new().max_attempts(1)).await, (1, 0));
    assert_eq!(attempts(CallOptions::new().max_attempts(2)).await, (2, 500));
    assert_eq!(attempts(CallOptions::new().max_attempts(0)).await, (1, 0), "0 counts as 1");
    assert_eq!(attempts(CallOptions::new().max_attempts(100)).await, (4, 3_500));
    let both = CallOptions::new().max_attempts(6).max_retries(100);
    assert_eq!(attempts(both).await, (6, 15_500));
}

#[tokio::test(start_paused = true)]
async fn max_retries_lowers_or_raises_the_number() {
    assert_eq!(attempts(CallOptions::new().max_retries(0)).await, (1, 0));
    assert_eq!(attempts(CallOptions::new().max_retries(1)).await, (2, 500));
    assert_eq!(attempts(CallOptions::new().max_retries(5)).await, (6, 15_500));
    // Without it, the other guard ends the call: 63.5 s is past 60.
    assert_eq!(attempts(CallOptions::new().max_retries(Limit::Unlimited)).await, (8, 63_500));
}

#[tokio::test(start_paused = true)]
async fn max_retry_time_ends_the_call_once_so_much_was_waited() {
    let bound = |time| CallOptions::new().max_retry_time(time);
    assert_eq!(attempts(bound(millis(0))).await, (1, 0));
    assert_eq!(attempts(bound(millis(500))).await, (2, 500), "at the bound");
    assert_eq!(attempts(bound(millis(501))).await, (3, 1_500), "one past it");
    let endless = CallOptions::new().max_retries(9).max_retry_time(Limit::Unlimited);
    assert_eq!(attempts(endless).await, (10, 183_500));
}

#[tokio::test(start_paused = true)]
async fn max_hint_is_the_longest_hint_that_is_slept_through() {
    let limited = |hint: &str| {
        ScriptedService::new([Outcome::status(429).header("retry-after", hint), good()])
    };
    let bound = || CallOptions::new().max_hint(secs(30));
    assert_eq!(attempts_of(bound(), limited("30")).await, (2, 30_000), "inclusive");
    assert_eq!(attempts_of(bound(), limited("31")).await, (1, 0));
    assert_eq!(attempts_of(CallOptions::new(), limited("120")).await, (2, 120_000));
    assert_eq!(attempts_of(CallOptions::new(), limited("121")).await, (1, 0));
    let endless = CallOptions::new().max_hint(Limit::Unlimited);
    assert_eq!(attempts_of(endless, limited("86400")).await, (2, 86_400_000));
}

#[tokio::test(start_paused = true)]
async fn deadline_bounds_the_whole_call() {
    assert_eq!(attempts(CallOptions::new().deadline(millis(1_501))).await, (3, 1_500));
    let slow = ScriptedService::new([Outcome::never()]);
    assert_eq!(attempts_of(CallOptions::new().deadline(secs(4)), slow).await, (1, 4_000));
}

#[tokio::test(start_paused = true)]
async fn deadline_of_the_call_takes_the_place_of_the_layers() {
    for (of_call, elapsed) in [(secs(5), 5_000), (secs(50), 50_000)] {
        let layer = exact_backoff().deadline(secs(20)).build().unwrap();
        let mut request = post(CHAT);
        request.extensions_mut().insert(CallOptions::new().deadline(of_call));
        let start = Instant::now();
        let service = ScriptedService::new([Outcome::never()]);
        let error = layer.layer(service).oneshot(request).await.unwrap_err();
        assert_eq!(start.elapsed().as_millis(), elapsed);
        assert!(timed_out(&error).is_some());
    }
}

#[tokio::test(start_paused = true)]
async fn hold_takes_the_place_of_the_classifiers() {
    // A stream that fails after its content: only one that is to be whole can be repeated.
    for (hold, attempts) in [(Hold::Headers, 1), (Hold::FirstContent, 1), (Hold::Complete, 2)] {
        for of_layer in [Hold::Headers, Hold::FirstContent, Hold::Complete] {
            let broken = openai::chat_stream("m", ["a", "b"]).cut_after_events(3);
            let provider = ScriptedService::new(
                [broken, openai::chat_stream("m", ["a", "b"])].map(Outcome::from),
            );
            let stack = ServiceBuilder::new()
                .layer(exact_backoff().build().unwrap())
                .layer(ClassifyLayer::builder().hold(of_layer).build().unwrap())
                .service(provider.clone());
            let mut request = post(CHAT);
            request.extensions_mut().insert(CallOptions::new().hold(hold));
            let body = read(stack.oneshot(request).await.unwrap().into_body()).await;
            assert_eq!((provider.calls(), body.end.is_ok()), (attempts, attempts == 2), "{hold:?}");
        }
    }
}

async fn last_word(options: CallOptions, of_layer: OnExhausted) -> Result<Response<()>, Error> {
    let layer = exact_backoff().max_retries(1).on_exhausted(of_layer).build().unwrap();
    let mut request = post(&format!("{CHAT}?key=secret"));
    request.extensions_mut().insert(options);
    layer.layer(failing()).oneshot(request).await.map(|response| response.map(drop))
}

#[tokio::test(start_paused = true)]
async fn on_exhausted_chooses_between_the_last_answer_and_an_error() {
    for of_layer in [OnExhausted::Last, OnExhausted::Error] {
        let last = CallOptions::new().on_exhausted(OnExhausted::Last);
        assert_eq!(last_word(last, of_layer).await.unwrap().status(), 503);
        let error = CallOptions::new().on_exhausted(OnExhausted::Error).node("node-7");
        let error = last_word(error, of_layer).await.unwrap_err();
        assert_eq!((error.kind(), error.status().as_u16()), ("timeout", 504));
        let Error::Exhausted(exhausted) = error else { panic!("{error:?}") };
        assert_eq!(exhausted.url(), "http://provider.test/v1/chat/completions");
        assert_eq!((exhausted.label(), exhausted.retries()), (Some("node-7"), 1));
        assert_eq!((exhausted.waited(), exhausted.stopped_by()), (millis(500), Guard::MaxRetries));
        assert_eq!(exhausted.verdict().status().map(|status| status.as_u16()), Some(503));
    }
}

#[tokio::test(start_paused = true)]
async fn one_calls_options_are_no_other_calls_options() {
    let stack = exact_backoff().max_retries(3).build().unwrap();
    let provider = failing();
    let stack = stack.layer(provider.clone());
    let mut request = post(CHAT);
    request.extensions_mut().insert(CallOptions::new().max_attempts(1));
    stack.clone().oneshot(request).await.unwrap();
    assert_eq!(provider.calls(), 1);
    stack.oneshot(post(CHAT)).await.unwrap();
    assert_eq!(provider.calls(), 5);
}
