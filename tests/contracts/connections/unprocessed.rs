//! A request that provably was not processed: repeated at once, once for a call, and outside of the guards.

use backstop::testing::{Outcome, Script, ScriptedService};
use backstop::vocabulary::{Guard, Unprocessed};
use backstop::{CallContext, ClassifyLayer, Error};
use tokio::time::Instant;
use tower::{Layer, ServiceBuilder, ServiceExt};

use crate::support::{CHAT, RESPONSES, exact_backoff, millis, post, post_body, secs};

fn unprocessed() -> Outcome {
    Outcome::error_with(|| Unprocessed("the stream was refused".into()).into())
}

fn good() -> Outcome {
    Outcome::from(backstop::testing::script::openai::chat("m", "x"))
}

/// When each attempt was made, in milliseconds.
async fn attempts_at(provider: &ScriptedService, retries: u32) -> (Vec<u128>, Result<u16, Error>) {
    let stack = ServiceBuilder::new()
        .layer(exact_backoff().max_retries(retries).build().unwrap())
        .layer(ClassifyLayer::new())
        .service(provider.clone());
    let start = Instant::now();
    let result = stack.oneshot(post(CHAT)).await.map(|response| response.status().as_u16());
    let log = provider.log();
    (log.iter().map(|seen| (seen.at - start).as_millis()).collect(), result)
}

#[tokio::test(start_paused = true)]
async fn it_is_repeated_at_once_and_outside_of_the_guards() {
    // One retry is allowed, and is still there after the free repeat.
    let provider = ScriptedService::new([unprocessed(), Outcome::status(503), good()]);
    let (at, result) = attempts_at(&provider, 1).await;
    assert_eq!((at, result.unwrap()), (vec![0, 0, 500], 200));
}

#[tokio::test(start_paused = true)]
async fn the_second_time_it_is_a_failure_like_any_other() {
    let provider = ScriptedService::new(Script::new([unprocessed()]).repeat_last());
    let (at, result) = attempts_at(&provider, 2).await;
    assert_eq!(at, [0, 0, 500, 1_500]);
    let error = result.unwrap_err();
    let Error::Exhausted(exhausted) = &error else { panic!("{error:?}") };
    assert_eq!((exhausted.retries(), exhausted.waited()), (2, millis(1_500)));
    assert_eq!(exhausted.stopped_by(), Guard::MaxRetries);
    assert!(exhausted.verdict().is_unprocessed());
}

#[tokio::test(start_paused = true)]
async fn it_can_come_after_ordinary_failures() {
    let provider =
        ScriptedService::new([Outcome::status(503), unprocessed(), Outcome::error("x"), good()]);
    let (at, result) = attempts_at(&provider, 2).await;
    assert_eq!((at, result.unwrap()), (vec![0, 500, 500, 1_500], 200));
}

#[tokio::test(start_paused = true)]
async fn it_counts_as_an_attempt_without_a_wait_for_the_layers_below() {
    let provider = ScriptedService::new([unprocessed(), Outcome::status(503), good()]);
    attempts_at(&provider, 7).await.1.unwrap();
    let log = provider.log();
    let of = |n: usize| {
        let context = log[n].head.extensions.get::<CallContext>();
        context.map(|context| (context.attempt(), context.waited()))
    };
    assert_eq!(of(0), None, "a layer alone tells nothing of a first attempt");
    // The context is shared, so what it says now is said of the last attempt.
    assert_eq!((of(1), of(2)), (Some((3, millis(500))), Some((3, millis(500)))));
}

#[tokio::test(start_paused = true)]
async fn a_stateful_body_is_repeated_too_since_nothing_was_done_with_it() {
    let provider = ScriptedService::new([unprocessed(), good()]);
    let stack = exact_backoff().build().unwrap().layer(provider.clone());
    let start = Instant::now();
    let request = post_body(RESPONSES, r#"{"previous_response_id":"resp_1"}"#);
    stack.oneshot(request).await.unwrap();
    assert_eq!((provider.calls(), start.elapsed()), (2, secs(0)));
    let bodies: Vec<_> = provider.log().iter().map(|seen| seen.body.clone()).collect();
    assert_eq!(bodies[0], bodies[1]);
}

#[tokio::test(start_paused = true)]
async fn a_stateful_body_stays_repeatable_however_often_nothing_was_done_with_it() {
    let provider = ScriptedService::new([unprocessed(), unprocessed(), unprocessed(), good()]);
    let stack = exact_backoff().build().unwrap().layer(provider.clone());
    let start = Instant::now();
    let request = post_body(RESPONSES, r#"{"conversation":"conv_1"}"#);
    assert_eq!(stack.oneshot(request).await.unwrap().status(), 200);
    assert_eq!((provider.calls(), start.elapsed()), (4, millis(1_500)));
}

#[tokio::test(start_paused = true)]
async fn the_mark_is_found_however_deep_it_lies() {
    #[derive(Debug)]
    struct Outer(backstop::testing::BoxError);
    impl std::fmt::Display for Outer {
        fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
            f.write_str("outer")
        }
    }
    impl std::error::Error for Outer {
        fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
            Some(self.0.as_ref())
        }
    }
    let deep =
        Outcome::error_with(|| Outer(Box::new(Outer(Unprocessed("x".into()).into()))).into());
    let provider = ScriptedService::new([deep, good()]);
    let (at, result) = attempts_at(&provider, 1).await;
    assert_eq!((at, result.unwrap()), (vec![0, 0], 200));
}
