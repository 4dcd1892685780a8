//! What others got wrong, by the numbers of our list.

use std::time::Duration;

use backstop_backoff::BackoffLayer;
use backstop_classify::ClassifyLayer;
use backstop_core::{Jitter, Schedule, Usage, WaitReason};
use backstop_provenance::{AttemptLayer, Outcome, Provenance, ProvenanceLayer};
use http::Response;
use http_body_util::BodyExt;
use tower::{Layer, ServiceBuilder, ServiceExt};

use crate::support::Piece::{Data, Hang};
use crate::support::*;

const ANSWER: &str = r#"{"id":"c1","model":"model-b-2025-01-01","choices":[{"index":0,"message":{"role":"assistant","content":"x"},"finish_reason":"stop"}],"usage":{"prompt_tokens":9,"completion_tokens":4}}"#;
const DELTA: &str = "data: {\"id\":\"c1\",\"model\":\"model-b-2025-01-01\",\"choices\":[{\"index\":0,\"delta\":{\"content\":\"x\"}}]}\n\n";
const STOP: &str = "data: {\"id\":\"c1\",\"model\":\"model-b-2025-01-01\",\"choices\":[{\"index\":0,\"delta\":{},\"finish_reason\":\"stop\"}],\
                    \"usage\":{\"prompt_tokens\":9,\"completion_tokens\":4}}\n\n";
const DONE: &str = "data: [DONE]\n\n";

/// BerriAI/litellm#13486
#[tokio::test(start_paused = true)]
async fn b030_a_backup_that_answered_is_named() {
    for good in [answer(200, [Data(ANSWER)]), stream([Data(DELTA), Data(STOP), Data(DONE)])] {
        let sent: String = format!("{good:?}");
        let book = Book::new();
        let attempts = ServiceBuilder::new()
            .layer(AttemptLayer::recording(book.clone()))
            .layer(ClassifyLayer::new())
            .service(Provider::new([answer(503, [Data("{}")]), good]));
        let router = Router { inner: attempts, chain: chain(1) };
        let layer = ProvenanceLayer::builder().ledger(book.clone()).answer_headers(true);
        let response = layer.build().unwrap().layer(router).oneshot(ask(CHAT)).await.unwrap();
        let headers = response.headers().clone();
        assert_eq!(headers["x-backstop-profile"], "gpt");
        assert_eq!(headers["x-backstop-model"], "model-b-2025-01-01");
        assert_eq!(headers["x-backstop-attempts"], "2");
        assert_eq!(headers["x-backstop-fallback"], "true");
        let provenance = Provenance::of(&response).unwrap().clone();
        let body = response.into_body().collect().await.unwrap().to_bytes();
        let body = std::str::from_utf8(&body).unwrap();
        assert!(body.contains("model-b-2025-01-01") && !body.contains("alias-x"), "unaltered");

        assert_eq!(book.calls_started()[0].requested_model.as_deref(), Some("alias-x"), "{sent}");
        let (started, finished) = (book.attempts_started(), book.attempts());
        let profiles: Vec<_> = started.iter().map(|a| a.profile().unwrap().id()).collect();
        assert_eq!(profiles, ["sol", "gpt"]);
        let models: Vec<_> = started.iter().map(|a| a.model.as_deref().unwrap()).collect();
        assert_eq!(models, ["model-a", "model-b"]);
        assert_eq!(started[1].wait, Some((Duration::ZERO, WaitReason::NextRung)));
        let statuses: Vec<_> = finished.iter().map(|a| a.status.unwrap().as_u16()).collect();
        assert_eq!(statuses, [503, 200]);
        assert_eq!(finished[1].reported_model.as_deref(), Some("model-b-2025-01-01"));
        let call = book.call();
        assert_eq!((call.outcome, call.produced_by), (Outcome::Ok, Some(1)));
        assert_eq!(call.reported_model.as_deref(), Some("model-b-2025-01-01"));
        assert_eq!((call.attempts, call.usage), (2, Some(Usage::new(9, 4))));
        assert_eq!(call.planned_chain, Some(chain(1)));
        assert!(provenance.fallback_used());
        assert_eq!(provenance.reported_model(), Some("model-b-2025-01-01"));
    }
}

/// UKGovernmentBEIS/inspect_ai#3693
#[tokio::test(start_paused = true)]
async fn b031_each_attempt_is_on_record_while_the_call_still_waits() {
    for leaves_after in [None, Some(secs(5))] {
        let book = Book::new();
        let schedule = Schedule::new(secs(1), secs(60)).with_jitter(Jitter::None);
        let script = [429, 429, 429, 429, 200].map(|status| answer(status, [Data("{}")]));
        let service = ServiceBuilder::new()
            .layer(ProvenanceLayer::recording(book.clone()))
            .layer(BackoffLayer::builder().schedule(schedule).build().unwrap())
            .layer(AttemptLayer::recording(book.clone()))
            .service(Provider::new(script));
        let call = async { read(service.oneshot(ask(CHAT)).await.unwrap().into_body(), 9).await };
        let call = async {
            match leaves_after {
                None => drop(call.await),
                Some(time) => drop(tokio::time::timeout(time, call).await.unwrap_err()),
            }
        };
        let look = async {
            // 0.5 s after the second 429, which comes after one second.
            tokio::time::sleep(ms(1500)).await;
            book.clone()
        };
        let (_, seen) = tokio::join!(call, async {
            let book = look.await;
            (book.attempts(), book.attempts_started())
        });
        let (finished, started) = seen;
        let shown: Vec<_> =
            finished.iter().map(|a| (a.attempt, a.status.unwrap().as_u16(), a.class)).collect();
        assert_eq!(shown, [(1, 429, "rate_limited"), (2, 429, "rate_limited")]);
        assert_eq!(started[1].wait, Some((secs(1), WaitReason::Schedule)));

        let call = book.call();
        let numbers: Vec<_> = book.attempts().iter().map(|a| a.attempt).collect();
        match leaves_after {
            None => {
                assert_eq!(numbers, [1, 2, 3, 4, 5]);
                assert_eq!((call.outcome, call.attempts), (Outcome::Ok, 5));
                assert_eq!((call.waited, call.duration), (secs(15), secs(15)));
            }
            Some(_) => {
                // The fourth was announced, and never left; its wait was never over.
                assert_eq!(numbers, [1, 2, 3]);
                assert_eq!((call.outcome, call.attempts), (Outcome::Cancelled, 3));
                assert_eq!((call.waited, call.duration), (secs(3), secs(5)));
            }
        }
    }
}

/// maximhq/bifrost#3043
#[tokio::test(start_paused = true)]
async fn b032_a_failed_stream_is_never_a_success() {
    let boom = "data: {\"error\":{\"message\":\"boom\",\"type\":\"server_error\"}}\n\n";
    let missing = r#"{"error":{"message":"no such model","type":"invalid_request_error","code":"model_not_found"}}"#;
    let good = || stream([Data(DELTA), Data(DELTA), Data(STOP), Data(DONE)]);
    type Case = (&'static str, Response<Pieces>, usize, Outcome, &'static str, bool);
    let cases: [Case; 4] = [
        (
            "a",
            stream([Data(DELTA), Data(DELTA), Data(boom)]),
            9,
            Outcome::Incomplete,
            "transient",
            true,
        ),
        ("b", answer(404, [Data(missing)]), 9, Outcome::Incomplete, "not_found", false),
        ("c", good(), 9, Outcome::Ok, "success", false),
        ("d", stream([Data(DELTA), Hang]), 1, Outcome::Cancelled, "cancelled", false),
    ];
    for (name, response, frames, outcome, class, fails) in cases {
        let book = Book::new();
        let service = ServiceBuilder::new()
            .layer(ProvenanceLayer::recording(book.clone()))
            .layer(BackoffLayer::builder().max_retries(0).build().unwrap())
            .layer(AttemptLayer::recording(book.clone()))
            .layer(ClassifyLayer::new())
            .service(Provider::new([response]));
        let response = service.oneshot(ask(CHAT)).await.unwrap();
        assert_eq!(read(response.into_body(), frames).await, fails, "{name}");
        // One start and one finish each, and none that contradicts.
        let (call, attempt) = (book.call(), book.attempt());
        assert_eq!((call.outcome, attempt.class), (outcome, class), "{name}");
        match name {
            "a" => assert!(call.error.unwrap().contains("transient")),
            "b" => {
                assert_eq!(attempt.status.unwrap(), 404);
                assert_eq!(attempt.code.as_deref(), Some("model_not_found"));
                assert_eq!(
                    call.error.as_deref(),
                    Some("not_found, status 404, code model_not_found: no such model")
                );
            }
            "c" => assert_eq!((call.usage, attempt.usage), (Some(Usage::new(9, 4)), call.usage)),
            _ => assert_eq!((call.error, attempt.error), (None, None)),
        }
    }
}
