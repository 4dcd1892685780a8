//! When to come back, in the server's own words: B006 to B009.

use std::time::{Duration, SystemTime};

use backstop::backoff::BackoffBuilder;
use backstop::testing::script::{gemini, openai};
use backstop::testing::{Answer, Outcome, Script, ScriptedService};
use backstop::vocabulary::{Guard, HintSource, Limit, WallClock};
use backstop::{
    ActionTable, BackoffLayer, CallContext, Class, ClassifyLayer, Jitter, OnExhausted, Schedule,
};
use tokio::time::Instant;
use tower::{Layer, ServiceExt};

use crate::rig::{
    ASK, CHAT, GENERATE, doubling, exhausted, gzip, listen, ms, post, receive, rig, secs, waits,
};

fn failed(status: u16, retry_after: &str) -> Outcome {
    Outcome::status(status).header("retry-after", retry_after)
}

fn good() -> Outcome {
    openai::chat("model-a", "hello").into()
}

/// The waits of a backoff alone, which judges by status and headers, over these outcomes.
async fn waits_alone(backoff: BackoffBuilder, script: impl Into<Script<Outcome>>) -> Vec<Duration> {
    let service = ScriptedService::new(script);
    let alone = backoff.build().unwrap().layer(service.clone());
    assert_eq!(alone.oneshot(post(CHAT, ASK)).await.unwrap().status(), 200);
    waits(&service)
}

#[tokio::test(start_paused = true)]
async fn b006_a_retry_after_is_waited_for_and_never_undercut() {
    let backoff = || doubling(ms(100)).max_retries(3).max_retry_time(secs(60)).jitter(Jitter::None);
    for (status, seconds) in [(429, 3), (503, 2)] {
        let events = listen();
        let hinted = || failed(status, &seconds.to_string());
        let service = ScriptedService::new([hinted(), good()]);
        let rig = rig(backoff(), ClassifyLayer::builder(), service.clone());
        let received = rig.send(post(CHAT, ASK)).await.unwrap();
        assert_eq!(received.status, 200);
        assert_eq!(waits(&service), [secs(seconds)]);
        let hint = rig.attempts.verdicts()[0].hint().unwrap();
        assert_eq!((hint.wait(), hint.source()), (secs(seconds), HintSource::RetryAfter));
        assert_eq!(rig.attempts.all()[1].waited, secs(seconds));
        let context = service.log()[1].head.extensions.get::<CallContext>().cloned().unwrap();
        assert_eq!((context.attempt(), context.waited()), (2, secs(seconds)));
        let [event] = &events.of("backstop::attempt")[..] else { panic!("one wait") };
        assert_eq!(event.field("reason"), Some("retry-after"));
        assert_eq!(event.field("wait_ms"), Some(&*(seconds * 1_000).to_string()));

        assert_eq!(waits_alone(backoff(), [hinted(), good()]).await, [secs(seconds)]);
    }
}

#[tokio::test(start_paused = true)]
async fn b006_a_retry_after_on_a_good_answer_is_handed_on_and_not_waited_for() {
    let answer = openai::chat("model-a", "hello").header("Retry-After", "5");
    let service = ScriptedService::new([answer.clone()]);
    let rig = rig(doubling(ms(100)).max_retries(3), ClassifyLayer::builder(), service.clone());
    let start = Instant::now();
    let received = rig.send(post(CHAT, ASK)).await.unwrap();
    assert_eq!((start.elapsed(), service.calls()), (ms(0), 1));
    assert_eq!(received.header("retry-after"), Some("5"));
    assert_eq!(received.last_verdict().hint(), None);
    assert_eq!(waits_alone(doubling(ms(100)), [answer]).await, []);
}

#[tokio::test(start_paused = true)]
async fn b006_a_hint_is_charged_to_the_accumulated_waiting() {
    let service = ScriptedService::new(Script::new([failed(429, "3")]).repeat_last());
    let backoff = doubling(ms(100)).max_retry_time(secs(6)).on_exhausted(OnExhausted::Error);
    let rig = rig(backoff, ClassifyLayer::builder(), service.clone());
    let exhausted = exhausted(rig.send(post(CHAT, ASK)).await);
    assert_eq!((exhausted.stopped_by(), exhausted.waited()), (Guard::MaxRetryTime, secs(6)));
    assert_eq!(waits(&service), [secs(3), secs(3)]);
}

#[tokio::test(start_paused = true)]
async fn b006_jitter_only_adds_to_a_hint() {
    let service = ScriptedService::new([failed(429, "3"), good()]);
    let backoff = BackoffLayer::builder().schedule(Schedule::new(ms(100), secs(60)));
    let rig = rig(backoff, ClassifyLayer::builder(), service.clone());
    rig.send(post(CHAT, ASK)).await.unwrap();
    let wait = waits(&service)[0];
    assert!((secs(3)..=ms(3_750)).contains(&wait), "{wait:?}");
}

/// A wall clock that reads 2015-10-21T07:28:00Z now.
fn clock() -> WallClock {
    let wall = SystemTime::UNIX_EPOCH + secs(1_445_412_480);
    WallClock::new(wall, Instant::now().into_std())
}

#[tokio::test(start_paused = true)]
async fn b007_a_date_that_has_passed_and_a_zero_are_no_hints_and_never_no_wait() {
    let past = ["Wed, 21 Oct 2015 07:28:00 GMT", "Wed, 21 Oct 2015 07:27:59 GMT", "0"];
    for value in past.into_iter().chain(["Thu, 01 Jan 1970 00:00:00 GMT"]) {
        let script = || [failed(503, value), failed(503, value), failed(503, value), good()];
        let service = ScriptedService::new(script());
        let backoff = || doubling(ms(200)).max_retries(5).wall_clock(clock());
        let rig = rig(backoff(), ClassifyLayer::builder().wall_clock(clock()), service.clone());
        assert_eq!(rig.send(post(CHAT, ASK)).await.unwrap().status, 200);
        assert_eq!(waits(&service), [ms(200), ms(400), ms(800)], "{value}");
        assert!(rig.attempts.verdicts().iter().all(|verdict| verdict.hint().is_none()));
        assert_eq!(waits_alone(backoff(), script()).await, [ms(200), ms(400), ms(800)]);
    }
    // The system's clock, too, has passed 2015.
    let value = past[0];
    let script = [failed(503, value), failed(503, value), failed(503, value), good()];
    assert_eq!(waits_alone(doubling(ms(200)), script).await, [ms(200), ms(400), ms(800)]);
}

#[tokio::test(start_paused = true)]
async fn b007_a_date_to_come_is_waited_for() {
    let script = || [failed(503, "Wed, 21 Oct 2015 07:28:02 GMT"), good()];
    let service = ScriptedService::new(script());
    let backoff = || doubling(ms(200)).max_retries(5).wall_clock(clock());
    let rig = rig(backoff(), ClassifyLayer::builder().wall_clock(clock()), service.clone());
    rig.send(post(CHAT, ASK)).await.unwrap();
    assert_eq!(waits(&service), [secs(2)]);
    let source = rig.attempts.verdicts()[0].hint().unwrap().source();
    assert_eq!(source, HintSource::RetryAfterDate);
    assert_eq!(waits_alone(backoff(), script()).await, [secs(2)]);
}

#[tokio::test(start_paused = true)]
async fn b007_a_date_in_the_year_9999_is_a_very_long_hint() {
    let far = || failed(503, "Fri, 31 Dec 9999 23:59:59 GMT");
    let backoff =
        || doubling(ms(200)).max_retries(5).wall_clock(clock()).on_exhausted(OnExhausted::Error);
    let classify = || ClassifyLayer::builder().wall_clock(clock());
    let service = ScriptedService::new([far()]);
    let start = Instant::now();
    let result = rig(backoff(), classify(), service.clone()).send(post(CHAT, ASK)).await;
    assert_eq!(exhausted(result).stopped_by(), Guard::MaxHint);
    assert_eq!((service.calls(), start.elapsed()), (1, ms(0)));
    // Without that bound it is slept through: whoever asks for that gets it, and no panic.
    let service = ScriptedService::new([far(), good()]);
    let unbounded = backoff().max_hint(Limit::Unlimited).max_retry_time(Limit::Unlimited);
    let call = rig(unbounded, classify(), service.clone());
    let within_a_year = tokio::time::timeout(secs(365 * 86_400), call.send(post(CHAT, ASK))).await;
    assert!(within_a_year.is_err());
    assert_eq!(service.calls(), 1);
}

const THREE_HOURS: &str = "11180";

#[tokio::test(start_paused = true)]
async fn b008_a_hint_of_three_hours_is_never_slept_through_or_shortened() {
    let limited = || ScriptedService::new(Script::new([failed(429, THREE_HOURS)]).repeat_last());
    let backoff = || doubling(ms(500)).max_retries(3).max_retry_time(secs(60));
    let service = limited();
    let rig1 = rig(backoff(), ClassifyLayer::builder(), service.clone());
    let start = Instant::now();
    let received = rig1.send(post(CHAT, ASK)).await.unwrap();
    assert_eq!((service.calls(), start.elapsed()), (1, ms(0)));
    assert_eq!(received.status, 429);
    assert_eq!(received.header("retry-after"), Some(THREE_HOURS));

    // What a record is made of: which bound it was, and the hint that was past it.
    let events = listen();
    let service = limited();
    let backoff = backoff().on_exhausted(OnExhausted::Error);
    let rig2 = rig(backoff.clone(), ClassifyLayer::builder(), service.clone());
    let exhausted2 = exhausted(rig2.send(post(CHAT, ASK)).await);
    assert_eq!((exhausted2.stopped_by(), exhausted2.retries()), (Guard::MaxHint, 0));
    assert_eq!(exhausted2.waited(), ms(0));
    assert_eq!(exhausted2.verdict().hint().unwrap().wait(), secs(11_180));
    let [event] = &events.of("backstop::attempt")[..] else { panic!("one end") };
    assert_eq!(event.field("guard"), Some("max_hint"));

    // A backoff alone decides the same.
    let service = limited();
    let alone = backoff.build().unwrap().layer(service.clone());
    let exhausted = exhausted(alone.oneshot(post(CHAT, ASK)).await);
    assert_eq!((exhausted.stopped_by(), service.calls()), (Guard::MaxHint, 1));
    assert_eq!(start.elapsed(), ms(0));
}

#[tokio::test(start_paused = true)]
async fn b008_a_rung_with_a_hint_of_three_hours_is_spent_at_once() {
    let service = ScriptedService::new([failed(429, THREE_HOURS)]);
    let rig = rig(doubling(ms(500)), ClassifyLayer::builder(), service.clone());
    let start = Instant::now();
    let received = rig.send(post(CHAT, ASK)).await.unwrap();
    assert_eq!((service.calls(), start.elapsed()), (1, ms(0)));
    // A rate limit is retried, and when the rung is spent the next one is asked.
    let verdict = received.last_verdict();
    assert_eq!(verdict.class(), Class::RateLimited);
    assert_eq!(ActionTable::default().decide(&verdict), backstop::Action::Retry);
}

#[tokio::test(start_paused = true)]
async fn b008_a_hint_of_three_hours_is_kept_where_no_bound_forbids_it() {
    let script = || [failed(429, THREE_HOURS), good()];
    let unbounded = |backoff: BackoffBuilder| {
        backoff.max_retries(1).max_retry_time(Limit::Unlimited).max_hint(Limit::Unlimited)
    };
    let service = ScriptedService::new(script());
    let rig1 = rig(unbounded(doubling(ms(500))), ClassifyLayer::builder(), service.clone());
    assert_eq!(rig1.send(post(CHAT, ASK)).await.unwrap().status, 200);
    assert_eq!(waits(&service), [secs(11_180)]);
    let waits = waits_alone(unbounded(BackoffLayer::builder()), script()).await;
    assert!((secs(11_180)..=secs(13_975)).contains(&waits[0]), "{waits:?}");
}

fn exhausted_resource(details: &str) -> Outcome {
    Answer::status(429).json(resource_body(details)).into()
}

fn resource_body(details: &str) -> String {
    format!(r#"{{"error":{{"code":429,"status":"RESOURCE_EXHAUSTED","details":[{details}]}}}}"#)
}

fn retry_info(delay: &str) -> String {
    format!(r#"{{"@type":"type.googleapis.com/google.rpc.RetryInfo","retryDelay":{delay}}}"#)
}

/// The wait after `failed` in Gemini's dialect, and where the hint stood.
async fn gemini_wait(failed: Outcome) -> (Duration, Option<HintSource>) {
    let service = ScriptedService::new([failed, gemini::content("model-a", "hello").into()]);
    let backoff = doubling(ms(100)).max_retries(2);
    let rig = rig(backoff, ClassifyLayer::builder(), service.clone());
    assert_eq!(rig.send(post(GENERATE, ASK)).await.unwrap().status, 200);
    let [wait] = waits(&service)[..] else { panic!("{:?}", waits(&service)) };
    assert_eq!(rig.attempts.classes(), [Class::RateLimited, Class::Success]);
    (wait, rig.attempts.verdicts()[0].hint().map(|hint| hint.source()))
}

#[tokio::test(start_paused = true)]
async fn b009_a_hint_in_the_body_counts_with_its_fraction() {
    // Rounded up to a whole millisecond, never down.
    let body = (ms(1_838), Some(HintSource::Body));
    let delay = retry_info(r#""1.837906927s""#);
    assert_eq!(gemini_wait(exhausted_resource(&delay)).await, body);
    let packed =
        Answer::status(429).header("content-encoding", "gzip").json(gzip(resource_body(&delay)));
    assert_eq!(gemini_wait(packed.into()).await, body);
}

#[tokio::test(start_paused = true)]
async fn b009_an_unusable_hint_in_the_body_leaves_the_ordinary_backoff() {
    for delay in [r#""-3s""#, r#""soon""#, r#""1e999s""#, "7"] {
        let wait = gemini_wait(exhausted_resource(&retry_info(delay))).await;
        assert_eq!(wait, (ms(100), None), "{delay}");
    }
}

#[tokio::test(start_paused = true)]
async fn b009_a_quota_of_a_day_is_not_waited_for() {
    let daily = r#"{"@type":"type.googleapis.com/google.rpc.QuotaFailure","violations":[{"quotaId":"GenerateRequestsPerDayPerProjectPerModel-FreeTier"}]}"#;
    let details = format!("{daily},{}", retry_info(r#""1.837906927s""#));
    for details in [daily.to_owned(), details] {
        let service =
            ScriptedService::new(Script::new([exhausted_resource(&details)]).repeat_last());
        let backoff = doubling(ms(100)).max_retries(2);
        let rig = rig(backoff, ClassifyLayer::builder(), service.clone());
        let start = Instant::now();
        let received = rig.send(post(GENERATE, ASK)).await.unwrap();
        assert_eq!((received.status.as_u16(), service.calls()), (429, 1));
        assert_eq!(received.text(), resource_body(&details));
        assert_eq!(start.elapsed(), ms(0));
        assert_eq!(received.last_verdict().class(), Class::QuotaExhausted);
    }
}

#[tokio::test(start_paused = true)]
async fn b009_a_header_decides_over_the_body() {
    let both = exhausted_resource(&retry_info(r#""5s""#)).header("retry-after", "1");
    assert_eq!(gemini_wait(both).await, (secs(1), Some(HintSource::RetryAfter)));
}

#[tokio::test(start_paused = true)]
async fn b009_the_answer_whose_body_was_read_reaches_the_caller_with_every_byte() {
    let packed = gzip(resource_body(&retry_info(r#""1.5s""#)));
    let answer = Answer::status(429).header("content-encoding", "gzip").json(packed.clone());
    let service = ScriptedService::new([answer]);
    let classify = ClassifyLayer::new().layer(service);
    let received = receive(classify.oneshot(post(GENERATE, ASK)).await.unwrap()).await;
    assert_eq!(received.bytes(), packed);
    assert_eq!(received.header("content-encoding"), Some("gzip"));
    assert_eq!(received.last_verdict().hint().unwrap().wait(), ms(1_500));
}
