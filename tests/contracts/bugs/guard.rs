//! What ends retrying: B012 to B014.

use std::time::Duration;

use backstop::classify::Timeouts;
use backstop::testing::script::openai;
use backstop::testing::{
    Answer, CallEnd, ExchangeEnd, Outcome, Script, ScriptedProvider, ScriptedService, SeenCall,
};
use backstop::vocabulary::{Guard, Limit};
use backstop::{
    CallContext, Class, ClassifyLayer, Error, Jitter, OnExhausted, RequestBody, Schedule,
};
use http::Request;
use tokio::time::Instant;
use tower::{Layer, Service, ServiceExt};
use tracing::Level;

use crate::rig::{ASK, CHAT, client, doubling, exhausted, listen, ms, post, rig, secs, waits};

fn down() -> ScriptedService {
    ScriptedService::new(Script::new([Outcome::status(503)]).repeat_last())
}

#[tokio::test(start_paused = true)]
async fn b012_no_retries_is_one_send_and_minus_one_leaves_the_other_guard() {
    let used_up = [ms(100), ms(200), ms(400), ms(800)];
    let runs: [(i64, &[Duration], Guard); 3] = [
        (0, &[], Guard::MaxRetries),
        (1, &used_up[..1], Guard::MaxRetries),
        (-1, &used_up, Guard::MaxRetryTime),
    ];
    for (max_retries, expected, guard) in runs {
        let backoff = || {
            doubling(ms(100))
                .max_retries(Limit::retries("max_retries", max_retries).unwrap())
                .max_retry_time(Limit::seconds("max_retry_time", 1.5).unwrap())
        };
        let service = down();
        let rig1 = rig(backoff(), ClassifyLayer::builder(), service.clone());
        let start = Instant::now();
        assert_eq!(rig1.send(post(CHAT, ASK)).await.unwrap().status, 503);
        assert_eq!(waits(&service), expected);
        assert_eq!(start.elapsed(), expected.iter().sum());

        let service = down();
        let backoff = backoff().on_exhausted(OnExhausted::Error);
        let alone = backoff.build().unwrap().layer(service.clone());
        let exhausted = exhausted(alone.oneshot(post(CHAT, ASK)).await);
        assert_eq!(exhausted.stopped_by(), guard);
        assert_eq!(waits(&service), expected);
        let off: &[Guard] = if max_retries == -1 { &[Guard::MaxRetries] } else { &[] };
        assert_eq!(exhausted.disabled(), off);
    }
}

#[test]
fn b012_minus_two_is_refused_with_the_name_of_the_setting() {
    let error = Limit::retries("max_retries", -2).unwrap_err();
    assert_eq!(error.key(), "max_retries");
    let text = error.to_string();
    assert!(text.contains("max_retries") && text.contains("-2") && text.contains("-1"), "{text}");
    let error = Limit::seconds("max_retry_time", -2.0).unwrap_err();
    assert_eq!(error.key(), "max_retry_time");
}

#[tokio::test(start_paused = true)]
async fn b012_without_guards_retrying_goes_on_until_the_service_is_back_and_is_warned_about() {
    let events = listen();
    let schedule = Schedule::new(ms(100), secs(1)).with_jitter(Jitter::None);
    let backoff = doubling(ms(100))
        .schedule(schedule)
        .max_retries(Limit::retries("max_retries", -1).unwrap())
        .max_retry_time(Limit::seconds("max_retry_time", -1.0).unwrap());
    let script =
        Script::new(vec![Outcome::status(503); 11]).then(openai::chat("model-a", "hello").into());
    let service = ScriptedService::new(script);
    let rig = rig(backoff, ClassifyLayer::builder(), service.clone());
    let warnings: Vec<_> =
        events.of("backstop").into_iter().filter(|event| event.level == Level::WARN).collect();
    let [warning] = &warnings[..] else { panic!("{warnings:?}") };
    let text = warning.field("message").unwrap();
    assert!(text.contains("max_retries") && text.contains("max_retry_time"), "{text}");

    let start = Instant::now();
    assert_eq!(rig.send(post(CHAT, ASK)).await.unwrap().status, 200);
    assert_eq!((service.calls(), start.elapsed()), (12, ms(1_500) + 7 * secs(1)));
}

#[tokio::test(start_paused = true)]
async fn b013_an_attempt_without_an_answer_is_cut_at_its_timeout() {
    let service = ScriptedService::new(Script::new([Outcome::never()]).repeat_last());
    let backoff = doubling(ms(100)).max_retries(2).max_retry_time(secs(60));
    let timeouts = Timeouts::new().head(Some(secs(1)));
    let rig = rig(backoff, ClassifyLayer::builder().timeouts(timeouts), service.clone());
    let start = Instant::now();
    let exhausted = exhausted(rig.send(post(CHAT, ASK)).await);
    assert_eq!(start.elapsed(), ms(3_300));
    assert_eq!((exhausted.status().as_u16(), exhausted.kind()), (504, "timeout"));
    assert_eq!(exhausted.stopped_by(), Guard::MaxRetries);
    // max_retry_time counts the waiting alone.
    assert_eq!((exhausted.retries(), exhausted.waited()), (2, ms(300)));
    assert_eq!(rig.attempts.classes(), [Class::Timeout; 3]);
    assert_eq!(waits(&service), [ms(100), ms(200)]);
    for seen in service.log() {
        assert_eq!(seen.end, Some(CallEnd::Dropped(seen.at + secs(1))));
    }
}

#[tokio::test(start_paused = true)]
async fn b013_a_deadline_cuts_the_attempt_in_flight() {
    let silent = || ScriptedService::new(Script::new([Outcome::never()]).repeat_last());
    let backoff = || doubling(ms(100)).max_retries(2).deadline(ms(1_500));
    let timeouts = Timeouts::new().head(Some(secs(1)));
    let service = silent();
    let rig = rig(backoff(), ClassifyLayer::builder().timeouts(timeouts), service.clone());
    let start = Instant::now();
    let error = rig.send(post(CHAT, ASK)).await.unwrap_err();
    assert_eq!((start.elapsed(), error.status().as_u16()), (ms(1_500), 504));
    assert_eq!(exhausted::<()>(Err(error)).stopped_by(), Guard::Deadline);
    let log = service.log();
    assert_eq!(log.len(), 2);
    assert_eq!(log[1].ended_at(), Some(log[1].at + ms(400)), "what remained, not its full second");

    // A backoff alone knows no attempt's timeout, but the deadline it keeps.
    let service = silent();
    let alone = backoff().build().unwrap().layer(service.clone());
    let start = Instant::now();
    let cut = tokio::time::timeout(secs(60), alone.oneshot(post(CHAT, ASK))).await.unwrap();
    let error = cut.unwrap_err();
    assert_eq!((start.elapsed(), error.status().as_u16()), (ms(1_500), 504));
    assert_eq!(service.calls(), 1);
    assert!(matches!(service.log()[0].end, Some(CallEnd::Dropped(_))));
}

#[tokio::test(start_paused = true)]
async fn b013_a_wait_that_the_deadline_cannot_hold_is_not_begun() {
    for deadline in [ms(301), ms(699), ms(700)] {
        let service = down();
        let backoff = doubling(ms(100)).max_retry_time(Limit::Unlimited).deadline(deadline);
        let backoff = backoff.on_exhausted(OnExhausted::Error);
        let rig = rig(backoff, ClassifyLayer::builder(), service.clone());
        let start = Instant::now();
        let exhausted = exhausted(rig.send(post(CHAT, ASK)).await);
        // The third wait would end at 0.7 s.
        assert_eq!((start.elapsed(), exhausted.stopped_by()), (ms(300), Guard::Deadline));
        assert_eq!((service.calls(), exhausted.waited()), (3, ms(300)));
    }
}

#[tokio::test]
async fn b013_an_attempt_that_is_cut_closes_its_connection() {
    let silent = || Answer::nothing().silence();
    let provider = ScriptedProvider::start([silent(), silent(), silent()]).await.unwrap();
    let backoff = doubling(ms(10)).max_retries(2).max_retry_time(secs(60));
    let timeouts = Timeouts::new().head(Some(ms(200)));
    let rig = rig(backoff, ClassifyLayer::builder().timeouts(timeouts), client());
    let url = format!("{}/v1/chat/completions", provider.url());
    let result = tokio::time::timeout(secs(20), rig.send(post(url, ASK))).await.unwrap();
    assert_eq!(exhausted(result).status(), 504);
    provider.wait_until_disconnected().await;
    let log = provider.log();
    assert_eq!((log.len(), provider.connections()), (3, 3));
    for seen in &log {
        assert!(matches!(seen.end, Some(ExchangeEnd::PeerGone(_))), "{:?}", seen.end);
        assert!(seen.ended_at().unwrap() - seen.arrived >= ms(150));
    }
}

/// A provider that fails each call as often as the call says, and then answers.
fn failing() -> ScriptedService {
    ScriptedService::from_fn(|seen: &SeenCall| {
        let failures: u32 = seen.header("x-failures").unwrap().parse().unwrap();
        if attempt(seen) <= failures {
            Outcome::status(503)
        } else {
            openai::chat("model-a", "hello").into()
        }
    })
}

fn attempt(seen: &SeenCall) -> u32 {
    seen.head.extensions.get::<CallContext>().map_or(1, CallContext::attempt)
}

fn call(name: &str, failures: u32) -> Request<RequestBody> {
    let mut request = post(CHAT, ASK);
    request.headers_mut().insert("x-call", name.parse().unwrap());
    request.headers_mut().insert("x-failures", failures.into());
    request
}

#[tokio::test(start_paused = true)]
async fn b014_no_call_eats_the_tries_or_the_waits_of_another() {
    let service = failing();
    let backoff = doubling(ms(100)).max_retries(3);
    let rig = rig(backoff, ClassifyLayer::builder(), service.clone());
    for (name, failures) in [("r1", 2), ("r2", 2), ("r3", 3)] {
        assert_eq!(rig.send(call(name, failures)).await.unwrap().status, 200, "{name}");
    }
    assert_eq!(rig.attempts.numbers(), [1, 2, 3, 1, 2, 3, 1, 2, 3, 4]);
    let (r4, r5) = tokio::join!(rig.send(call("r4", 3)), rig.send(call("r5", 3)));
    assert_eq!((r4.unwrap().status.as_u16(), r5.unwrap().status.as_u16()), (200, 200));
    assert_eq!(rig.attempts.numbers()[10..], [1, 1, 2, 2, 3, 3, 4, 4]);

    let log = service.log();
    assert_eq!(log.len(), 18);
    for (name, sends) in [("r1", 3), ("r2", 3), ("r3", 4), ("r4", 4), ("r5", 4)] {
        let own: Vec<_> = log.iter().filter(|seen| seen.header("x-call") == Some(name)).collect();
        assert_eq!(own.len(), sends, "{name}");
        let waits: Vec<_> = own.windows(2).map(|p| p[1].at - p[0].ended_at().unwrap()).collect();
        assert_eq!(waits, [ms(100), ms(200), ms(400)][..sends - 1], "{name}");
        let waited = own[1].head.extensions.get::<CallContext>().unwrap().waited();
        assert_eq!(waited, waits.iter().sum(), "{name}");
    }
}

#[tokio::test(start_paused = true)]
async fn b014_a_call_that_was_given_up_leaves_the_next_one_its_tries() {
    let service = failing();
    let mut alone = doubling(ms(100))
        .max_retries(3)
        .on_exhausted(OnExhausted::Error)
        .build()
        .unwrap()
        .layer(service.clone());
    let mut send = async |request: Request<RequestBody>| {
        ServiceExt::<Request<RequestBody>>::ready(&mut alone).await?.call(request).await
    };
    assert!(matches!(send(call("r1", 9)).await, Err(Error::Exhausted(_))));
    let next = send(call("r2", 3)).await.unwrap();
    assert_eq!((next.status().as_u16(), service.calls()), (200, 8));
}
