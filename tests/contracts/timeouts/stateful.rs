//! A body that continues state at the server is not sent again after an attempt that may have changed it.

use std::io::ErrorKind;

use backstop::classify::Timeouts;
use backstop::testing::script::openai;
use backstop::testing::{Outcome, ReadinessProbe, ScriptedService};
use backstop::vocabulary::Guard;
use backstop::{CallOptions, ClassifyLayer, Error};
use tower::{Layer, ServiceBuilder, ServiceExt};

use crate::support::{RESPONSES, exact_backoff, post_body, secs};

const STATEFUL: [&str; 4] = [
    r#"{"model":"m","previous_response_id":"resp_1","input":"x"}"#,
    r#"{"model":"m","conversation":"conv_1"}"#,
    r#"{"conversation":{"id":"conv_1"}}"#,
    r#"{"model":"m","background":true}"#,
];
const STATELESS: [&str; 5] = [
    r#"{"model":"m","input":"x"}"#,
    r#"{"previous_response_id":null}"#,
    r#"{"conversation":null}"#,
    r#"{"background":false}"#,
    r#"{"input":{"previous_response_id":"resp_1"}}"#,
];

fn good() -> Outcome {
    Outcome::from(openai::responses("m", "x"))
}

/// Failures after which the request may have been processed.
fn may_be_processed() -> Vec<Outcome> {
    vec![
        Outcome::from(openai::error(500, "server_error", None)),
        Outcome::from(openai::error(502, "server_error", None)),
        Outcome::from(openai::error(504, "server_error", None)),
        Outcome::from(openai::responses_failed("m", "server_error")),
        // Inside a 200 the server had begun.
        Outcome::from(openai::responses_error_first("m", "requests", "rate_limit_exceeded")),
        Outcome::io_error(ErrorKind::ConnectionReset),
        Outcome::never(),
    ]
}

/// Failures at the door: the request went no further.
fn turned_away() -> [Outcome; 3] {
    [
        Outcome::from(openai::error(429, "requests", "rate_limit_exceeded")),
        Outcome::from(openai::error(503, "service_unavailable_error", None)),
        Outcome::from(openai::error(529, "service_unavailable_error", None)),
    ]
}

struct Got {
    attempts: usize,
    result: Result<u16, Error>,
}

async fn call(body: &'static str, options: CallOptions, failure: Outcome) -> Got {
    let provider = ScriptedService::new([failure, good()]);
    let timeouts = Timeouts::none().head(Some(secs(10)));
    let stack = ServiceBuilder::new()
        .layer(exact_backoff().build().unwrap())
        .layer(ClassifyLayer::builder().timeouts(timeouts).build().unwrap())
        .service(provider.clone());
    let mut request = post_body(RESPONSES, body);
    request.extensions_mut().insert(options);
    let result = stack.oneshot(request).await.map(|response| response.status().as_u16());
    Got { attempts: provider.calls(), result }
}

#[tokio::test(start_paused = true)]
async fn it_is_not_repeated_after_an_attempt_that_may_have_been_processed() {
    for body in STATEFUL {
        for failure in may_be_processed() {
            let case = format!("{body} {failure:?}");
            let got = call(body, CallOptions::new(), failure).await;
            assert_eq!(got.attempts, 1, "{case}");
            match got.result {
                Ok(status) => assert!(status >= 400, "{case}: {status}"),
                Err(Error::Exhausted(exhausted)) => {
                    assert_eq!(exhausted.stopped_by(), Guard::Stateful, "{case}");
                }
                Err(error) => panic!("{case}: {error:?}"),
            }
        }
    }
}

#[tokio::test(start_paused = true)]
async fn it_is_repeated_where_it_was_turned_away_at_the_door() {
    for body in STATEFUL {
        for failure in turned_away() {
            let got = call(body, CallOptions::new(), failure).await;
            assert_eq!((got.attempts, got.result.unwrap()), (2, 200), "{body}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn it_is_repeated_where_the_caller_or_the_layer_wants_that() {
    for body in STATEFUL {
        for failure in may_be_processed() {
            let wants = CallOptions::new().retry_stateful(true);
            let got = call(body, wants, failure.clone()).await;
            assert_eq!((got.attempts, got.result.unwrap()), (2, 200), "{body}");

            let provider = ScriptedService::new([failure, good()]);
            let timeouts = Timeouts::none().head(Some(secs(10)));
            let stack = ServiceBuilder::new()
                .layer(exact_backoff().retry_stateful(true).build().unwrap())
                .layer(ClassifyLayer::builder().timeouts(timeouts).build().unwrap())
                .service(provider.clone());
            stack.oneshot(post_body(RESPONSES, body)).await.unwrap();
            assert_eq!(provider.calls(), 2, "{body}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_call_can_be_more_careful_than_its_layer() {
    let provider = ScriptedService::new([Outcome::status(500), good()]);
    let layer = exact_backoff().retry_stateful(true).build().unwrap();
    let mut request = post_body(RESPONSES, STATEFUL[0]);
    request.extensions_mut().insert(CallOptions::new().retry_stateful(false));
    assert_eq!(layer.layer(provider.clone()).oneshot(request).await.unwrap().status(), 500);
    assert_eq!(provider.calls(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_body_without_state_is_repeated_after_anything() {
    for body in STATELESS {
        for failure in may_be_processed().into_iter().chain(turned_away()) {
            let got = call(body, CallOptions::new(), failure).await;
            assert_eq!((got.attempts, got.result.unwrap()), (2, 200), "{body}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn the_backoff_alone_knows_it_too() {
    for (code, attempts) in [(500, 1), (504, 1), (429, 2), (503, 2)] {
        let provider = ScriptedService::new([Outcome::status(code), good()]);
        let layer = exact_backoff().build().unwrap();
        layer.layer(provider.clone()).oneshot(post_body(RESPONSES, STATEFUL[0])).await.unwrap();
        assert_eq!(provider.calls(), attempts, "{code}");
    }
}

#[tokio::test(start_paused = true)]
async fn it_is_sent_after_the_service_did_not_get_ready_for_it() {
    for body in STATEFUL {
        let provider = ScriptedService::new([good()]);
        let service = ReadinessProbe::new(provider.clone()).fail_readiness(0, "not now");
        let stack = exact_backoff().build().unwrap().layer(service);
        let response = stack.oneshot(post_body(RESPONSES, body)).await.unwrap();
        assert_eq!((response.status().as_u16(), provider.calls()), (200, 1), "{body}");
    }
}
