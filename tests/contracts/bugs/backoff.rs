//! How long a wait is, and how many there are: B010 and B011.

use std::time::Duration;

use backstop::testing::{Outcome, Script, ScriptedService};
use backstop::vocabulary::{Bounds, Guard, Limit, Next, Retries, WaitReason};
use backstop::{
    BackoffLayer, CallContext, CallOptions, ClassifyLayer, Jitter, OnExhausted, Schedule, Seed,
};
use tokio::time::Instant;
use tower::{Layer, ServiceExt};

use crate::rig::{ASK, CHAT, doubling, exhausted, listen, ms, post, receive, rig, secs, waits};

fn down() -> ScriptedService {
    ScriptedService::new(Script::new([Outcome::status(503)]).repeat_last())
}

/// What a backoff without guards did in this many attempts at a service that is down.
struct Driven {
    /// The waits as they were announced, in milliseconds.
    announced: Vec<u64>,
    service: ScriptedService,
    elapsed: Duration,
}

async fn drive(schedule: Schedule, attempts: u32) -> Driven {
    let events = listen();
    let service = down();
    let alone = BackoffLayer::builder()
        .schedule(schedule)
        .max_retries(Limit::Unlimited)
        .max_retry_time(Limit::Unlimited)
        .on_exhausted(OnExhausted::Error)
        .build()
        .unwrap()
        .layer(service.clone());
    let mut request = post(CHAT, ASK);
    request.extensions_mut().insert(CallOptions::new().max_attempts(attempts));
    let start = Instant::now();
    let exhausted = exhausted(alone.oneshot(request).await);
    assert_eq!((exhausted.stopped_by(), exhausted.retries()), (Guard::Attempts, attempts - 1));
    let log = service.log();
    let context = log.last().unwrap().head.extensions.get::<CallContext>().unwrap();
    assert_eq!((context.attempt(), log.len()), (attempts, attempts as usize));
    let wait_ms = |event: &crate::rig::Heard| event.field("wait_ms").map(|ms| ms.parse().unwrap());
    let announced: Vec<u64> = events.of("backstop::attempt").iter().filter_map(wait_ms).collect();
    assert_eq!(announced.len(), attempts as usize - 1);
    assert!(announced.is_sorted(), "the waits never get shorter: {announced:?}");
    assert!(announced.iter().all(|ms| *ms > 0), "no hot loop: {announced:?}");
    Driven { announced, service, elapsed: start.elapsed() }
}

fn schedule(initial: Duration, max: Duration) -> Schedule {
    Schedule::new(initial, max).with_jitter(Jitter::None)
}

#[tokio::test(start_paused = true)]
async fn b010_two_hundred_attempts_wait_up_to_the_ceiling_and_never_zero() {
    let driven = drive(schedule(secs(1), secs(30)), 200).await;
    let waits = waits(&driven.service);
    assert_eq!(waits[..6], [secs(1), secs(2), secs(4), secs(8), secs(16), secs(30)]);
    assert!(waits[5..].iter().all(|wait| *wait == secs(30)));
    assert_eq!(driven.elapsed, secs(31 + 194 * 30));
}

#[tokio::test(start_paused = true)]
async fn b010_without_a_ceiling_every_wait_is_twice_the_last_until_it_saturates() {
    let driven = drive(schedule(secs(1), Duration::MAX), 200).await;
    let doubled: Vec<u64> = (0..50).map(|n| 1_000 << n).collect();
    assert_eq!(driven.announced[..50], doubled);
    assert_eq!(driven.announced.last(), Some(&u64::MAX));
    // What no clock can express is slept as thirty years.
    let slept = waits(&driven.service);
    let expected = (0..199).map(|n| secs(1 << n.min(40)).min(secs(60 * 60 * 24 * 365 * 30)));
    assert_eq!(slept, expected.collect::<Vec<_>>());
}

/// The waits that the layer would begin, without a timer that has to live through them.
fn planned(schedule: &Schedule, attempts: u32) -> Vec<Duration> {
    let (mut retries, seed) = (Retries::new(), Seed::new(0));
    let mut bounds = Bounds::default();
    bounds.guards.max_retries = Limit::Unlimited;
    bounds.guards.max_retry_time = Limit::Unlimited;
    bounds.attempts = Some(attempts);
    let now = Instant::now().into_std();
    let mut next = || match retries.next(schedule, &bounds, None, now, &seed) {
        Next::Wait { wait, reason: WaitReason::Schedule } => Some(wait),
        Next::Stop(Guard::Attempts) => None,
        other => panic!("{other:?}"),
    };
    let waits: Vec<_> = std::iter::from_fn(&mut next).collect();
    assert_eq!((waits.len(), retries.count()), (attempts as usize - 1, attempts - 1));
    assert!(waits.is_sorted() && waits.iter().all(|wait| !wait.is_zero()));
    waits
}

#[test]
fn b010_without_a_ceiling_the_waits_saturate() {
    for jitter in [Jitter::None, Jitter::Additive(0.0)] {
        let waits = planned(&schedule(secs(1), Duration::MAX).with_jitter(jitter), 200);
        assert!((0..64).all(|n| waits[n] == secs(1 << n)));
        assert!(waits[64..].iter().all(|wait| *wait == Duration::MAX));
        let absurd = schedule(Duration::MAX / 2, Duration::MAX).with_jitter(jitter);
        assert!(planned(&absurd, 200)[2..].iter().all(|wait| *wait == Duration::MAX));
        for initial in [secs(1), Duration::MAX / 2] {
            let fractional = schedule(initial, Duration::MAX).with_factor(1.5).with_jitter(jitter);
            assert!(planned(&fractional, 2_000)[200..].iter().all(|wait| *wait == Duration::MAX));
        }
    }
}

#[tokio::test(start_paused = true)]
async fn b010_an_absurd_first_wait_is_waited_for_without_a_panic() {
    for (factor, attempts) in [(2.0, 200), (1.5, 2_000)] {
        let absurd = schedule(Duration::MAX / 2, Duration::MAX).with_factor(factor);
        let driven = drive(absurd, attempts).await;
        assert!(driven.announced.iter().all(|ms| *ms == u64::MAX));
    }
}

#[tokio::test(start_paused = true)]
async fn b010_two_thousand_attempts_with_a_fractional_factor_wait_up_to_the_ceiling() {
    let driven = drive(schedule(secs(1), secs(30)).with_factor(1.5), 2_000).await;
    let waits = waits(&driven.service);
    assert_eq!(waits[..3], [secs(1), ms(1_500), ms(2_250)]);
    // 1.5⁹ s is the first past 30 s.
    assert!(waits[8] < secs(30) && waits[9..].iter().all(|wait| *wait == secs(30)));
    let rising: Duration = waits[..9].iter().sum();
    assert_eq!(driven.elapsed, rising + 1_990 * secs(30));
}

#[tokio::test(start_paused = true)]
async fn b010_jitter_neither_overflows_nor_shortens_a_wait() {
    let service = down();
    let alone = BackoffLayer::builder()
        .schedule(Schedule::new(secs(1), secs(30)))
        .max_retries(1_999)
        .max_retry_time(Limit::Unlimited)
        .build()
        .unwrap()
        .layer(service.clone());
    assert_eq!(alone.oneshot(post(CHAT, ASK)).await.unwrap().status(), 503);
    let waits = waits(&service);
    assert_eq!(waits.len(), 1_999);
    assert!(waits[5..].iter().all(|wait| (secs(30)..=ms(37_500)).contains(wait)));
}

#[tokio::test(start_paused = true)]
async fn b011_n_retries_are_n_more_sends_and_none_is_slept_for_in_vain() {
    let sums = [(0, vec![]), (1, vec![ms(300)]), (2, vec![ms(300), ms(600)])];
    for (max_retries, expected) in sums {
        let backoff =
            || doubling(ms(300)).max_retries(max_retries).max_retry_time(Limit::Unlimited);
        let requests = max_retries as usize + 1;

        let events = listen();
        let service = down();
        let rig = rig(backoff(), ClassifyLayer::builder(), service.clone());
        let start = Instant::now();
        let received = rig.send(post(CHAT, ASK)).await.unwrap();
        assert_eq!((received.status.as_u16(), service.calls()), (503, requests));
        assert_eq!(waits(&service), expected);
        // The answer is there in the moment of the provider's last one.
        assert_eq!(start.elapsed(), expected.iter().sum());
        assert_eq!(rig.attempts.numbers(), (1..=max_retries + 1).collect::<Vec<_>>());
        // A retry is announced if and only if it happens; then the end is said once.
        let events = events.of("backstop::attempt");
        let announced = events.iter().filter(|event| event.field("wait_ms").is_some());
        let numbers: Vec<_> = announced.filter_map(|event| event.field("attempt")).collect();
        assert_eq!(numbers, (2..=max_retries + 1).map(|n| n.to_string()).collect::<Vec<_>>());
        let ends: Vec<_> = events.iter().filter_map(|event| event.field("guard")).collect();
        if max_retries == 0 {
            assert!(events.is_empty(), "a layer with nothing to do has nothing to say");
        } else {
            assert_eq!(ends, ["max_retries"]);
            let retries = events.last().unwrap().field("retries");
            assert_eq!(retries, Some(&*max_retries.to_string()));
        }

        let service = down();
        let alone = backoff().build().unwrap().layer(service.clone());
        let start = Instant::now();
        let received = receive(alone.oneshot(post(CHAT, ASK)).await.unwrap()).await;
        assert_eq!((received.status.as_u16(), service.calls()), (503, requests));
        assert_eq!((waits(&service), start.elapsed()), (expected.clone(), expected.iter().sum()));

        let service = down();
        let backoff = backoff().on_exhausted(OnExhausted::Error);
        let alone = backoff.build().unwrap().layer(service.clone());
        let exhausted = exhausted(alone.oneshot(post(CHAT, ASK)).await);
        assert_eq!((exhausted.retries(), service.calls()), (max_retries, requests));
        assert_eq!(exhausted.waited(), expected.iter().sum());
    }
}
