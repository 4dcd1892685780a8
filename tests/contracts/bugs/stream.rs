//! Answers that come in pieces: B018 to B022.

use backstop::classify::Timeouts;
use backstop::testing::script::{anthropic, openai};
use backstop::testing::{
    Answer, ExchangeEnd, Outcome, Script, ScriptedBody, ScriptedProvider, ScriptedService, Step,
};
use backstop::vocabulary::{Evidence, StreamEnd, TimedOut};
use backstop::{
    Action, ActionTable, AttemptCell, CallOptions, Class, ClassifyLayer, Error, Hold, RequestBody,
    Verdict,
};
use http::Request;
use http_body_util::BodyExt;
use std::error::Error as _;
use tokio::time::{Instant, timeout};
use tower::{Layer, ServiceExt};

use crate::rig::{
    ASK, CHAT, MESSAGES, Received, Rig, client, doubling, ms, post, receive, rig, secs, waits,
};

const STREAM: &str =
    r#"{"model":"alias-x","stream":true,"messages":[{"role":"user","content":"hi"}]}"#;

fn ask(provider: &ScriptedProvider) -> Request<RequestBody> {
    post(format!("{}/v1/chat/completions", provider.url()), STREAM)
}

/// `events` as a provider writes them.
fn wire(events: &[String]) -> String {
    events.iter().map(|data| format!("data: {data}\n\n")).collect()
}

fn chat_text(deltas: &[&str]) -> String {
    wire(&openai::chat_events("model-a", deltas.iter().copied(), Default::default()))
}

fn chat(deltas: &[&str]) -> Answer {
    openai::chat_stream("model-a", deltas.iter().copied())
}

/// Whether an answer ended abnormally for whoever reads it, with nothing made up.
fn broke_off(received: &Received<Error>) {
    let error = received.error.as_ref().unwrap();
    assert!(matches!(error, Error::Attempt(_)), "{error}");
    assert_eq!(error.verdict().unwrap().stream_end(), Some(StreamEnd::Truncated));
    assert!(!received.text().contains("[DONE]"));
    assert!(!received.text().contains(r#""finish_reason":""#));
    let last = received.last_verdict();
    assert_eq!(last.stream_end(), Some(StreamEnd::Truncated));
    assert_eq!(last.content_started(), Some(true));
    assert!(last.class().is_failure());
}

#[tokio::test]
async fn b018_a_stream_that_breaks_after_content_ends_abnormally_and_is_not_asked_for_again() {
    let variants = [
        (chat(&["The ", "quick ", "brown "]), chat_text(&["The ", "quick ", "brown "]), 4),
        (
            openai::tool_call_stream("model-a", "find", [r#"{"co"#, r#"de":"#, r#""pri"#]),
            String::new(),
            5,
        ),
    ];
    for (stream, text, events) in variants {
        let broken = stream.cut_after_events(events).pause(ms(100)).reset();
        let good = chat(&["The ", "quick ", "brown ", "fox"]);
        let provider = ScriptedProvider::start([broken, good]).await.unwrap();
        let rig = rig(doubling(ms(10)).max_retries(3), ClassifyLayer::builder(), client());
        let received = timeout(secs(20), rig.send(ask(&provider))).await.unwrap().unwrap();
        assert_eq!((received.status.as_u16(), provider.requests()), (200, 1));
        broke_off(&received);
        let got = received.text();
        assert_eq!(got.matches("data: ").count(), events);
        assert!(text.is_empty() || text.starts_with(&got), "{got}");
        let last = received.last_verdict();
        assert_eq!((last.class(), last.evidence()), (Class::Transient, Evidence::Transport));
        let cell = received.cell.unwrap();
        assert_eq!(cell.bytes(), got.len() as u64);
        assert!(cell.first_content().is_some() && cell.end().is_some());
        assert_eq!(cell.verdict().map(Verdict::class), Some(Class::Success), "as it was handed on");
    }
}

#[tokio::test(start_paused = true)]
async fn b018_a_stream_that_is_held_until_it_is_complete_is_asked_for_again() {
    let broken = chat(&["The ", "quick "]).cut_after_events(3).reset();
    let service = ScriptedService::new([broken, chat(&["The ", "quick ", "fox"])]);
    let rig =
        rig(doubling(ms(100)), ClassifyLayer::builder().hold(Hold::Complete), service.clone());
    let received = rig.send(post(CHAT, STREAM)).await.unwrap();
    assert!(received.error.is_none());
    assert_eq!(received.text(), chat_text(&["The ", "quick ", "fox"]));
    assert_eq!(waits(&service), [ms(100)]);
}

#[tokio::test(start_paused = true)]
async fn b019_a_stream_that_falls_silent_after_content_is_ended_when_the_idle_time_is_over() {
    let body = || {
        let [role, one, two] = &openai::chat_events("model-a", ["a", "b"], Default::default())[..3]
        else {
            panic!("three events")
        };
        let steps = [role, one, two].map(|data| Step::data(format!("data: {data}\n\n")));
        let mut steps = steps.to_vec();
        steps.extend([Step::forever()]);
        steps.insert(2, Step::pause(ms(500)));
        ScriptedBody::new(steps).unknown_size()
    };
    let body = body();
    let probe = body.probe();
    let answer = Outcome::status(200).header("content-type", "text/event-stream").body(body);
    let service = ScriptedService::new([answer, chat(&["good"]).into()]);
    let timeouts = Timeouts::new().idle(Some(secs(1)));
    let classify = ClassifyLayer::builder().timeouts(timeouts);
    let rig = rig(doubling(ms(100)).max_retries(1), classify, service.clone());
    let start = Instant::now();
    let response = rig.stack.oneshot(post(CHAT, STREAM)).await.unwrap();
    assert_eq!(start.elapsed(), ms(0));
    let cell = AttemptCell::of(&response).unwrap().clone();
    let mut body = std::pin::pin!(response.into_body());
    let error = loop {
        match body.frame().await.unwrap() {
            Ok(_) => {}
            Err(error) => break error,
        }
    };
    // 1 s after the last delta.
    assert_eq!(start.elapsed(), ms(1_500));
    assert!(probe.is_dropped(), "the provider's answer is let go at once");
    let cause = error.source().unwrap().downcast_ref::<TimedOut>();
    assert_eq!(cause, Some(&TimedOut::Idle));
    assert_eq!(service.calls(), 1);
    let last = cell.last_verdict().unwrap();
    assert_eq!((last.class(), last.evidence()), (Class::Timeout, Evidence::Local));
    assert_eq!(last.stream_end(), Some(StreamEnd::Truncated));
    assert_eq!((last.content_started(), cell.end()), (Some(true), Some(ms(1_500))));
    assert!(body.frame().await.is_none());
}

#[tokio::test(start_paused = true)]
async fn b019_a_stream_that_is_silent_from_its_head_on_is_asked_for_again() {
    let service = ScriptedService::new([Answer::sse().silence(), chat(&["good"])]);
    let timeouts = Timeouts::new().idle(Some(secs(1)));
    let classify = ClassifyLayer::builder().timeouts(timeouts);
    let rig = rig(doubling(ms(100)).max_retries(1), classify, service.clone());
    let start = Instant::now();
    let received = rig.send(post(CHAT, STREAM)).await.unwrap();
    assert_eq!((start.elapsed(), service.calls()), (ms(1_100), 2));
    assert_eq!((received.status.as_u16(), received.text()), (200, chat_text(&["good"])));
    assert!(received.error.is_none());
    assert_eq!(rig.attempts.classes(), [Class::Timeout, Class::Success]);
}

#[tokio::test]
async fn b019_the_connection_of_a_silent_stream_is_closed() {
    let silent =
        [chat(&["a", "b"]).cut_after_events(3).silence(), Answer::sse().silence(), chat(&["good"])];
    let provider = ScriptedProvider::start(silent).await.unwrap();
    let timeouts = Timeouts::new().idle(Some(ms(400)));
    let classify = ClassifyLayer::builder().timeouts(timeouts);
    let rig: Rig<_> = rig(doubling(ms(10)).max_retries(1), classify, client());
    let received = timeout(secs(20), rig.send(ask(&provider))).await.unwrap().unwrap();
    broke_off(&received);
    assert_eq!(provider.requests(), 1);
    provider.wait_until_disconnected().await;
    let received = timeout(secs(20), rig.send(ask(&provider))).await.unwrap().unwrap();
    assert_eq!((received.status.as_u16(), received.text()), (200, chat_text(&["good"])));
    let log = provider.log();
    assert_eq!(log.len(), 3);
    assert!(log[..2].iter().all(|seen| matches!(seen.end, Some(ExchangeEnd::PeerGone(_)))));
}

#[tokio::test]
async fn b020_a_connection_reset_after_the_role_alone_is_a_failure_that_the_caller_never_sees() {
    let broken = chat(&["a"]).cut_after_events(1).pause(ms(50)).reset();
    let provider = ScriptedProvider::start([broken, chat(&["good"])]).await.unwrap();
    let rig = rig(doubling(ms(10)).max_retries(1), ClassifyLayer::builder(), client());
    let received = timeout(secs(20), rig.send(ask(&provider))).await.unwrap().unwrap();
    assert_eq!((received.status.as_u16(), received.text()), (200, chat_text(&["good"])));
    assert!(received.error.is_none());
    assert_eq!(provider.requests(), 2);
    let first = &rig.attempts.verdicts()[0];
    assert_eq!((first.class(), first.content_started()), (Class::Transient, Some(false)));
}

#[tokio::test]
async fn b020_chunks_without_the_last_one_end_abnormally() {
    let broken = chat(&["a", "b"]).cut_after_events(3).without_last_chunk().pause(ms(50)).close();
    // And what is whole for HTTP, but not for the dialect.
    let short = chat(&["a", "b"]).cut_after_events(3);
    for (answer, evidence) in [(broken, Evidence::Transport), (short, Evidence::Grammar)] {
        let provider = ScriptedProvider::start([answer, chat(&["good"])]).await.unwrap();
        let rig = rig(doubling(ms(10)).max_retries(1), ClassifyLayer::builder(), client());
        let received = timeout(secs(20), rig.send(ask(&provider))).await.unwrap().unwrap();
        broke_off(&received);
        assert_eq!(received.text().matches("data: ").count(), 3);
        assert_eq!(received.last_verdict().evidence(), evidence);
        assert_eq!(provider.requests(), 1);
    }
}

#[tokio::test]
async fn b020_a_document_that_is_cut_is_asked_for_again_and_never_goes_out_as_whole() {
    let whole = openai::chat("model-a", &"x".repeat(400));
    let cut = || {
        let half = format!(r#"{{"choices":[{{"message":{{"content":"{}"#, "x".repeat(165));
        assert_eq!(half.len(), 200);
        Answer::status(200).content_length(500).json(half).close()
    };
    let provider = ScriptedProvider::start([cut(), whole.clone(), cut(), cut()]).await.unwrap();
    let rig = rig(doubling(ms(10)).max_retries(1), ClassifyLayer::builder(), client());
    let ask = || post(format!("{}/v1/chat/completions", provider.url()), ASK);
    let received = timeout(secs(20), rig.send(ask())).await.unwrap().unwrap();
    assert_eq!((received.status.as_u16(), provider.requests()), (200, 2));
    assert_eq!(received.json()["choices"][0]["message"]["content"], "x".repeat(400));
    assert_eq!(rig.attempts.classes(), [Class::Transient, Class::Success]);
    // Where it lasts, the caller gets an error that is whole, not half an answer.
    let received = timeout(secs(20), rig.send(ask())).await.unwrap().unwrap();
    assert_eq!((received.status.as_u16(), provider.requests()), (502, 4));
    assert!(received.error.is_none());
    assert!(received.json()["error"]["message"].is_string());
    assert_eq!(received.header("content-length"), Some(&*received.bytes().len().to_string()));
}

fn steady() -> Timeouts {
    Timeouts::new().head(Some(secs(2))).idle(Some(secs(1)))
}

#[tokio::test(start_paused = true)]
async fn b021_a_slow_but_steady_stream_is_not_cut() {
    let deltas: Vec<String> = (0..20).map(|n| n.to_string()).collect();
    let deltas: Vec<&str> = deltas.iter().map(String::as_str).collect();
    let service = ScriptedService::new([chat(&deltas).pause_between(ms(300))]);
    let classify = ClassifyLayer::builder().timeouts(steady());
    let rig = rig(doubling(ms(100)).max_retries(2), classify, service.clone());
    let start = Instant::now();
    let received = rig.send(post(CHAT, STREAM)).await.unwrap();
    assert_eq!(received.text(), chat_text(&deltas));
    assert!(received.error.is_none());
    // 24 events, 23 pauses.
    assert_eq!((start.elapsed(), service.calls()), (23 * ms(300), 1));
    assert_eq!(received.last_verdict().stream_end(), Some(StreamEnd::Complete));
}

#[tokio::test(start_paused = true)]
async fn b021_a_slow_but_steady_document_is_not_cut() {
    let text = openai::chat("model-a", "unused");
    let document = format!(
        r#"{{"model":"model-a","choices":[{{"index":0,"message":{{"content":"{}"}},"finish_reason":"stop"}}]}}"#,
        "x".repeat(30 * 1024)
    );
    let pieces = document.as_bytes().chunks(document.len().div_ceil(8));
    let steps = pieces.flat_map(|piece| [Step::pause(ms(500)), Step::data(piece.to_vec())]);
    let body = ScriptedBody::new(steps.collect::<Vec<_>>()).content_length(document.len() as u64);
    let slow =
        Outcome::status(200).header("content-type", "application/json").body(body).after(ms(200));
    let service = ScriptedService::new([slow, text.into()]);
    let classify = ClassifyLayer::builder().timeouts(steady());
    let rig = rig(doubling(ms(100)).max_retries(2), classify, service.clone());
    let start = Instant::now();
    let received = rig.send(post(CHAT, ASK)).await.unwrap();
    assert_eq!(received.text(), document);
    assert_eq!((start.elapsed(), service.calls()), (ms(4_200), 1));
}

#[tokio::test(start_paused = true)]
async fn b021_a_heartbeat_restarts_the_idle_time_before_and_after_content() {
    let heartbeat = |answer: Answer| answer.pause(ms(900)).comment("keep-alive");
    let [role, one, rest @ ..] = &openai::chat_events("model-a", ["a"], Default::default())[..]
    else {
        panic!("five events")
    };
    let answer = heartbeat(heartbeat(heartbeat(Answer::sse().event(role)))).event(one);
    let answer = rest.iter().fold(heartbeat(heartbeat(heartbeat(answer))), Answer::event);
    let service = ScriptedService::new([answer]);
    let classify = ClassifyLayer::builder().timeouts(steady());
    let rig = rig(doubling(ms(100)), classify, service.clone());
    let start = Instant::now();
    let received = rig.send(post(CHAT, STREAM)).await.unwrap();
    assert!(received.error.is_none() && received.text().ends_with("data: [DONE]\n\n"));
    assert_eq!((start.elapsed(), service.calls()), (6 * ms(900), 1));
}

/// A 200 whose first event, after a comment and a ping, says that the provider is overloaded.
fn overloaded() -> Answer {
    Answer::sse().comment("hello").named_event("ping", r#"{"type":"ping"}"#).named_event(
        "error",
        r#"{"type":"error","error":{"type":"overloaded_error","message":"Overloaded"}}"#,
    )
}

#[tokio::test(start_paused = true)]
async fn b022_an_error_as_first_event_is_retried_and_then_handed_on_as_the_error_it_is() {
    let service = ScriptedService::new(Script::new([overloaded().into()]).repeat_last());
    let rig = rig(doubling(ms(500)), ClassifyLayer::builder(), service.clone());
    let mut request = post(MESSAGES, STREAM);
    request.extensions_mut().insert(CallOptions::new().max_attempts(2));
    let start = Instant::now();
    let received = rig.send(request).await.unwrap();
    assert_eq!((start.elapsed(), service.calls()), (ms(500), 2));
    assert_eq!(received.status, 529);
    assert!(received.error.is_none());
    assert_eq!(received.header("content-type"), Some("application/json"));
    assert_eq!(received.header("content-length"), Some(&*received.bytes().len().to_string()));
    let error = received.json();
    assert_eq!(
        (&error["type"], &error["error"]["type"]),
        (&"error".into(), &"overloaded_error".into())
    );
    assert_eq!(error["error"]["message"], "Overloaded");
    let verdicts = rig.attempts.verdicts();
    assert_eq!(verdicts.len(), 2);
    for verdict in &verdicts {
        assert_eq!(
            (verdict.class(), verdict.code()),
            (Class::Overloaded, Some("overloaded_error"))
        );
        assert_eq!(verdict.status().unwrap(), 200);
        assert_eq!(verdict.effective_status().as_u16(), 529);
        assert_eq!(verdict.stream_end(), Some(StreamEnd::Error));
    }
    // With a fallback declared: retried first, and when the rung is spent the next one is asked.
    assert_eq!(ActionTable::default().decide(&verdicts[1]), Action::Retry);
}

#[tokio::test(start_paused = true)]
async fn b022_the_caller_sees_the_good_stream_alone() {
    let good = anthropic::message_stream("model-a", ["a", "b"]);
    let service = ScriptedService::new([overloaded(), good.clone()]);
    let rig1 = rig(doubling(ms(500)), ClassifyLayer::builder(), service.clone());
    let received = rig1.send(post(MESSAGES, STREAM)).await.unwrap();
    assert_eq!((received.status.as_u16(), waits(&service)), (200, vec![ms(500)]));
    let alone = ScriptedService::new([good]);
    let alone = rig(doubling(ms(500)), ClassifyLayer::builder(), alone);
    assert_eq!(received.text(), alone.send(post(MESSAGES, STREAM)).await.unwrap().text());
}

#[tokio::test(start_paused = true)]
async fn b022_looking_ahead_stops_at_the_first_content() {
    let stream = anthropic::message_stream("model-a", ["a", "b"]).pause_between(secs(1));
    let service = ScriptedService::new([stream]);
    let classify = ClassifyLayer::new().layer(service);
    let start = Instant::now();
    let response = classify.oneshot(post(MESSAGES, STREAM)).await.unwrap();
    // The message's start, the block's, a ping, the first delta.
    assert_eq!(start.elapsed(), secs(3));
    assert!(receive(response).await.error.is_none());
    assert_eq!(start.elapsed(), secs(7));
}

#[tokio::test(start_paused = true)]
async fn b022_looking_ahead_is_bounded_in_bytes_and_in_time() {
    let comment = format!(": {}\n\n", "x".repeat(1_020));
    let steps = std::iter::repeat_n(Step::data(comment), 1_000).chain([Step::forever()]);
    let body = ScriptedBody::new(steps).unknown_size();
    let probe = body.probe();
    let endless = Outcome::status(200).header("content-type", "text/event-stream").body(body);
    let classify = ClassifyLayer::new().layer(ScriptedService::new([endless]));
    let response = classify.oneshot(post(MESSAGES, STREAM)).await.unwrap();
    assert_eq!(response.status(), 200);
    let held = 256 * 1_024;
    assert!((held..held + 2_048).contains(&probe.bytes()), "{}", probe.bytes());
    assert_eq!(Verdict::of(&response).unwrap().content_started(), Some(false));

    let pings = (0..100).fold(Answer::sse(), |answer, _| answer.comment("ping").pause(ms(100)));
    let service = ScriptedService::new([pings, anthropic::message_stream("model-a", ["a"])]);
    let timeouts = Timeouts::new().first_content(Some(secs(1)));
    let classify = ClassifyLayer::builder().timeouts(timeouts);
    let rig = rig(doubling(ms(500)), classify, service.clone());
    let start = Instant::now();
    let received = rig.send(post(MESSAGES, STREAM)).await.unwrap();
    assert_eq!((received.status.as_u16(), start.elapsed()), (200, ms(1_500)));
    assert_eq!(rig.attempts.classes(), [Class::Timeout, Class::Success]);
}
