//! What an answer means: B001 to B005.

use backstop::testing::{Answer, Outcome, Script, ScriptedService, script::openai};
use backstop::vocabulary::Evidence;
use backstop::{Action, ActionTable, BackoffLayer, Class, ClassifyLayer, Jitter};
use bytes::Bytes;
use tokio::time::Instant;
use tower::{Layer, ServiceExt};

use crate::rig::{ASK, CHAT, MESSAGES, doubling, listen, ms, post, receive, rig, secs, waits};

const NO_CREDIT: &str = r#"{"error":{"message":"credit used up","type":"insufficient_quota","param":null,"code":"insufficient_quota"}}"#;

fn json(status: u16, body: impl Into<Bytes>) -> Outcome {
    Answer::status(status).json(body).into()
}

fn forever(outcome: Outcome) -> ScriptedService {
    ScriptedService::new(Script::new([outcome]).repeat_last())
}

#[tokio::test(start_paused = true)]
async fn b001_a_429_that_means_no_credit_left_is_returned_at_once_as_it_came() {
    let service = forever(json(429, NO_CREDIT));
    let backoff = doubling(ms(500)).max_retries(7).max_retry_time(secs(60));
    let rig = rig(backoff, ClassifyLayer::builder(), service.clone());
    let start = Instant::now();
    let received = rig.send(post(CHAT, ASK)).await.unwrap();
    assert_eq!(start.elapsed(), ms(0));
    assert_eq!((received.status.as_u16(), received.text().as_str()), (429, NO_CREDIT));
    assert_eq!(service.calls(), 1);
    let [attempt] = &rig.attempts.all()[..] else { panic!("{:?}", rig.attempts) };
    let verdict = &attempt.verdict;
    assert_eq!(verdict.class(), Class::QuotaExhausted);
    assert_eq!((verdict.code(), verdict.model()), (Some("insufficient_quota"), None));
    assert_eq!(verdict.status().map(|status| status.as_u16()), Some(429));
    assert_eq!(received.last_verdict(), *verdict);
}

#[tokio::test(start_paused = true)]
async fn b001_a_rung_without_credit_goes_to_the_next_one_without_a_second_send() {
    let service = forever(json(429, NO_CREDIT));
    let rig = rig(doubling(ms(500)), ClassifyLayer::builder(), service.clone());
    let start = Instant::now();
    let received = rig.send(post(CHAT, ASK)).await.unwrap();
    assert_eq!(ActionTable::default().decide(&received.last_verdict()), Action::Next);
    assert_eq!((service.calls(), start.elapsed()), (1, ms(0)));
}

#[tokio::test(start_paused = true)]
async fn b001_the_same_status_with_a_rate_limit_code_is_waited_on() {
    let limited = || openai::error(429, "requests", "rate_limit_exceeded");
    let service = ScriptedService::new([limited(), limited(), openai::chat("model-a", "hello")]);
    let backoff = doubling(ms(500)).max_retries(7).max_retry_time(secs(60));
    let rig = rig(backoff, ClassifyLayer::builder(), service.clone());
    let received = rig.send(post(CHAT, ASK)).await.unwrap();
    assert_eq!(received.status, 200);
    assert_eq!(waits(&service), [ms(500), ms(1_000)]);
    assert_eq!(rig.attempts.classes(), [Class::RateLimited, Class::RateLimited, Class::Success]);
}

#[tokio::test(start_paused = true)]
async fn b002_a_prompt_too_long_for_the_window_is_not_uploaded_again() {
    let body = r#"{"error":{"message":"prompt has 49231 tokens, window is 49152","type":"invalid_request_error","code":"context_length_exceeded","n_ctx":49152}}"#;
    let prompt = format!(
        r#"{{"model":"alias-x","messages":[{{"role":"user","content":"{}"}}]}}"#,
        "x".repeat(400 * 1024)
    );
    let service = forever(json(400, body));
    let backoff = doubling(ms(100)).max_retries(3);
    let rig = rig(backoff, ClassifyLayer::builder(), service.clone());
    let start = Instant::now();
    let received = rig.send(post(CHAT, prompt.clone())).await.unwrap();
    assert_eq!((received.status.as_u16(), received.text().as_str()), (400, body));
    assert_eq!((service.calls(), start.elapsed()), (1, ms(0)));
    assert_eq!(service.log()[0].body, prompt);
    let verdict = received.last_verdict();
    assert_eq!(verdict.class(), Class::ContextWindowExceeded);
    assert_eq!(verdict.code(), Some("context_length_exceeded"));
    // With a fallback declared: another model's window may be larger, so the next rung is asked.
    assert_eq!(ActionTable::default().decide(&verdict), Action::Next);
    assert_eq!(rig.attempts.all()[0].waited, ms(0));
}

const BUSY: &str = r#"{"error":{"code":429,"message":"provider busy"}}"#;
const DIED: &str = r#"{"id":"x","model":"model-a","choices":[{"index":0,"finish_reason":"error","message":{"role":"assistant","content":""},"error":{"code":502,"message":"provider died"}}]}"#;

#[tokio::test(start_paused = true)]
async fn b003_a_failure_inside_a_200_is_retried_and_the_caller_sees_the_second_answer_alone() {
    for (failed, effective, class) in
        [(BUSY, 429, Class::RateLimited), (DIED, 502, Class::Upstream)]
    {
        let good = openai::chat("model-a", "hello");
        let service = ScriptedService::new([json(200, failed), good.clone().into()]);
        let alone = ScriptedService::new([good]);
        let backoff = || doubling(ms(100)).max_retries(3);
        let expected =
            rig(backoff(), ClassifyLayer::builder(), alone).send(post(CHAT, ASK)).await.unwrap();
        let rig = rig(backoff(), ClassifyLayer::builder(), service.clone());
        let received = rig.send(post(CHAT, ASK)).await.unwrap();
        assert_eq!((received.status.as_u16(), received.bytes()), (200, expected.bytes()));
        assert_eq!(waits(&service), [ms(100)]);
        let [first, second] = &rig.attempts.verdicts()[..] else { panic!("{:?}", rig.attempts) };
        assert_eq!((first.class(), first.status().unwrap().as_u16()), (class, 200));
        assert_eq!(first.effective_status().as_u16(), effective);
        assert_eq!((second.class(), second.model()), (Class::Success, Some("model-a")));
    }
}

#[tokio::test(start_paused = true)]
async fn b003_an_error_member_that_is_null_is_no_error() {
    let body = r#"{"id":"y","error":null,"status":"completed","output":[{"type":"message"}]}"#;
    let service = ScriptedService::new([json(200, body)]);
    let rig = rig(doubling(ms(100)), ClassifyLayer::builder(), service.clone());
    let received = rig.send(post("http://provider.test/v1/responses", ASK)).await.unwrap();
    assert_eq!((received.status.as_u16(), received.text().as_str()), (200, body));
    assert_eq!((service.calls(), rig.attempts.classes()), (1, vec![Class::Success]));
}

#[tokio::test(start_paused = true)]
async fn b003_a_failure_inside_a_200_that_lasts_is_handed_on_under_the_status_it_deserves() {
    for (failed, effective) in [(BUSY, 429), (DIED, 502)] {
        let service = forever(json(200, failed));
        let backoff = doubling(ms(100)).max_retries(1);
        let rig = rig(backoff, ClassifyLayer::builder(), service.clone());
        let received = rig.send(post(CHAT, ASK)).await.unwrap();
        assert_eq!((service.calls(), received.status.as_u16()), (2, effective));
        assert!(received.error.is_none());
        let error = &received.json()["error"];
        assert_eq!(error["code"], effective);
        assert!(error["message"].as_str().unwrap().starts_with("provider "), "{error}");
        let length = received.header("content-length").map(ToOwned::to_owned);
        assert_eq!(length, Some(received.bytes().len().to_string()));
        if failed == BUSY {
            assert_eq!(received.text(), BUSY, "the body is kept");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn b004_a_529_is_retried_as_overload() {
    let overloaded =
        r#"{"type":"error","error":{"type":"overloaded_error","message":"Overloaded"}}"#;
    let script = || {
        let good = backstop::testing::script::anthropic::message("model-a", "hello");
        [json(529, overloaded), json(529, overloaded), good.into()]
    };
    let service = ScriptedService::new(script());
    let backoff = || doubling(ms(500)).max_retries(7);
    let rig = rig(backoff(), ClassifyLayer::builder(), service.clone());
    let received = rig.send(post(MESSAGES, ASK)).await.unwrap();
    assert_eq!(received.status, 200);
    assert_eq!(waits(&service), [ms(500), ms(1_000)]);
    for verdict in &rig.attempts.verdicts()[..2] {
        assert_eq!(verdict.class(), Class::Overloaded);
        assert_eq!(verdict.status().unwrap().as_u16(), 529);
    }
    // By the status alone, without a classifier, it is the same.
    let events = listen();
    let service = ScriptedService::new(script());
    let alone = backoff().build().unwrap().layer(service.clone());
    assert_eq!(alone.oneshot(post(MESSAGES, ASK)).await.unwrap().status(), 200);
    assert_eq!(waits(&service), [ms(500), ms(1_000)]);
    for event in events.of("backstop::attempt") {
        assert_eq!(
            (event.field("class"), event.field("status")),
            (Some("overloaded"), Some("529"))
        );
    }
}

#[tokio::test(start_paused = true)]
async fn b004_odd_status_numbers_are_handed_on_as_they_are_and_599_is_one_of_the_5xx() {
    for (status, calls, class) in [(498, 1, Class::InvalidRequest), (599, 2, Class::Transient)] {
        let backoff = || doubling(ms(500)).max_retries(1);
        let service = forever(Outcome::status(status));
        let rig = rig(backoff(), ClassifyLayer::builder(), service.clone());
        let received = rig.send(post(MESSAGES, ASK)).await.unwrap();
        assert_eq!((received.status.as_u16(), service.calls()), (status, calls));
        assert!(received.bytes().is_empty());
        assert_eq!(rig.attempts.classes(), vec![class; calls]);
        let verdict = received.last_verdict();
        assert_eq!(verdict.status().unwrap().as_u16(), status);

        let service = forever(Outcome::status(status));
        let alone = backoff().build().unwrap().layer(service.clone());
        let received = receive(alone.oneshot(post(MESSAGES, ASK)).await.unwrap()).await;
        assert_eq!((received.status.as_u16(), service.calls()), (status, calls));
    }
    let service = ScriptedService::new([Outcome::status(599), Outcome::status(200)]);
    let alone =
        BackoffLayer::builder().jitter(Jitter::None).build().unwrap().layer(service.clone());
    assert_eq!(alone.oneshot(post(MESSAGES, ASK)).await.unwrap().status(), 200);
    assert_eq!(waits(&service), [ms(500)]);
}

/// 9 KiB.
fn page() -> String {
    format!("<!DOCTYPE html><title>SSL handshake failed</title>{}", "x".repeat(9 * 1024 - 50))
}

fn edge_error(status: u16, body: String) -> Outcome {
    Outcome::status(status).header("content-type", "text/html").body(body)
}

#[tokio::test(start_paused = true)]
async fn b005_errors_of_an_edge_are_retried_whatever_their_number_and_their_page() {
    let script = || {
        [
            edge_error(525, page()),
            edge_error(520, String::new()),
            openai::chat("model-a", "hello").into(),
        ]
    };
    let service = ScriptedService::new(script());
    let backoff = || doubling(ms(100)).max_retries(3);
    let rig = rig(backoff(), ClassifyLayer::builder(), service.clone());
    let received = rig.send(post(CHAT, ASK)).await.unwrap();
    assert_eq!(received.status, 200);
    assert_eq!(waits(&service), [ms(100), ms(200)]);
    for (verdict, status) in rig.attempts.verdicts().iter().zip([525, 520]) {
        assert_eq!((verdict.class(), verdict.evidence()), (Class::Upstream, Evidence::Status));
        assert_eq!(verdict.status().unwrap().as_u16(), status);
        // Neither the page nor a parser's complaint is given as the reason.
        assert_eq!((verdict.message(), verdict.code()), (None, None));
    }
    let service = ScriptedService::new(script());
    let alone = backoff().build().unwrap().layer(service.clone());
    assert_eq!(alone.oneshot(post(CHAT, ASK)).await.unwrap().status(), 200);
    assert_eq!(waits(&service), [ms(100), ms(200)]);
}

#[tokio::test(start_paused = true)]
async fn b005_an_edge_error_that_lasts_is_handed_on_with_its_page() {
    let service = forever(edge_error(525, page()));
    let backoff = doubling(ms(100)).max_retries(1);
    let rig = rig(backoff, ClassifyLayer::builder(), service.clone());
    let received = rig.send(post(CHAT, ASK)).await.unwrap();
    assert_eq!((received.status.as_u16(), service.calls()), (525, 2));
    assert_eq!(received.text(), page());
    assert_eq!(received.header("content-type"), Some("text/html"));
    assert!(format!("{:?}", received.cell).len() < 1024, "no page in the record");
}
