//! That readiness is asked for every attempt, and used, or given back at once.

mod cancelled;
mod crowd;
mod failing;
mod permits;
mod ties;

use std::pin::pin;

use backstop::backoff::Backoff;
use backstop::classify::ClassifyService;
use backstop::testing::{
    Outcome, Probe, Readiness, ReadinessProbe, Script, ScriptedBody, ScriptedService, Step,
};
use backstop::{BackoffLayer, ClassifyLayer, Error};
use http::Request;
use tower::{Layer, Service, ServiceExt};

use crate::support::{CHAT, exact_backoff, millis, post, read, ready, secs};

type Watched = ReadinessProbe<ScriptedService>;

/// Two failures, then a good answer, again and again: three attempts show what one would hide.
fn third_time_lucky() -> ScriptedService {
    ScriptedService::from_fn(|seen| if seen.index % 3 == 2 { good() } else { Outcome::status(503) })
}

fn good() -> Outcome {
    Outcome::from(backstop::testing::script::openai::chat("m", "hello"))
}

fn failing() -> ScriptedService {
    ScriptedService::new(Script::new([Outcome::status(503)]).repeat_last())
}

fn backoff<S>(service: S) -> Backoff<S> {
    exact_backoff().build().unwrap().layer(service)
}

fn both<S>(service: S) -> Backoff<ClassifyService<S>> {
    backoff(ClassifyLayer::new().layer(service))
}

fn impatient() -> BackoffLayer {
    exact_backoff().max_retries(2).build().unwrap()
}

/// Nothing is left of any call: no instance but the first, no permit, no call under way.
fn assert_at_rest(probe: &Probe, instances: usize) {
    assert_eq!(probe.live_permits(), 0, "{probe:?}");
    assert_eq!(probe.in_flight(), 0, "{probe:?}");
    assert_eq!(probe.live_instances(), instances, "{probe:?}");
}

#[tokio::test(start_paused = true)]
async fn every_one_of_three_attempts_is_made_on_an_instance_that_was_ready() {
    // The probe panics where one is not.
    for pendings in [0, 1, 5] {
        let service = ReadinessProbe::new(third_time_lucky()).ready_after(pendings);
        let probe = service.probe();
        let response = backoff(service).oneshot(post(CHAT)).await.unwrap();
        assert_eq!(response.status(), 200);
        assert_eq!((probe.calls(), probe.readies(), probe.unused_permits()), (3, 3, 0));
        assert_eq!(probe.pendings(), 3 * pendings);
        assert_at_rest(&probe, 0);

        let service = ReadinessProbe::new(third_time_lucky()).ready_after(pendings);
        let probe = service.probe();
        let response = both(service).oneshot(post(CHAT)).await.unwrap();
        assert!(read(response.into_body()).await.end.is_ok());
        assert_eq!((probe.calls(), probe.readies(), probe.unused_permits()), (3, 3, 0));
        assert_at_rest(&probe, 0);
    }
}

#[tokio::test(start_paused = true)]
async fn the_classifier_alone_calls_the_instance_that_was_ready() {
    let service = ReadinessProbe::new(third_time_lucky()).ready_after(2);
    let probe = service.probe();
    let mut service = ClassifyLayer::new().layer(service);
    for status in [503, 503, 200] {
        let response = ready(&mut service).await.call(post(CHAT)).await;
        assert_eq!(response.unwrap().status(), status);
    }
    assert_eq!((probe.calls(), probe.readies(), probe.clones()), (3, 3, 0));
    assert_at_rest(&probe, 1);
}

#[tokio::test(start_paused = true)]
async fn ten_attempts_on_one_service_leave_nothing_reserved() {
    let service = ReadinessProbe::new(failing());
    let probe = service.probe();
    let layer = exact_backoff().max_retries(9).max_retry_time(secs(10_000)).build().unwrap();
    let response = layer.layer(service).oneshot(post(CHAT)).await.unwrap();
    assert_eq!(response.status(), 503);
    assert_eq!((probe.calls(), probe.readies(), probe.max_live_permits()), (10, 10, 1));
    assert_at_rest(&probe, 0);
}

#[tokio::test(start_paused = true)]
async fn readiness_that_takes_its_time_delays_each_attempt_by_just_that() {
    let slow = |n| Readiness::pause(secs(n));
    let service = ReadinessProbe::new(third_time_lucky()).readiness([slow(7), slow(11), slow(13)]);
    let (probe, provider) = (service.probe(), service.get_ref().clone());
    let start = tokio::time::Instant::now();
    both(service).oneshot(post(CHAT)).await.unwrap();
    let times: Vec<_> = provider.log().iter().map(|seen| (seen.at - start).as_millis()).collect();
    assert_eq!(times, [7_000, 18_500, 32_500], "7, + 0.5 + 11, + 1 + 13 seconds");
    assert_eq!((probe.readies(), probe.unused_permits()), (3, 0));
    assert_at_rest(&probe, 0);
}

#[tokio::test(start_paused = true)]
async fn a_ready_service_that_is_dropped_without_a_call_gives_its_permit_back() {
    let service = ReadinessProbe::new(failing());
    let probe = service.probe();
    let mut service = both(service);
    ready(&mut service).await;
    assert_eq!(probe.live_permits(), 1);
    drop(service);
    assert_eq!((probe.unused_permits(), probe.calls()), (1, 0));
    assert_at_rest(&probe, 0);
}

#[tokio::test(start_paused = true)]
async fn a_refused_call_gives_its_permit_back_at_once_and_not_when_it_is_dropped() {
    let broken = || ScriptedBody::new([Step::error("the caller broke off")]);
    for body in [ScriptedBody::full("too large"), broken()] {
        let service = ReadinessProbe::new(failing());
        let (probe, provider) = (service.probe(), service.get_ref().clone());
        let mut stack = exact_backoff().body_limit(8).build().unwrap().layer(service);
        let stack = ServiceExt::<Request<ScriptedBody>>::ready(&mut stack).await.unwrap();
        assert_eq!(probe.live_permits(), 1);
        let mut call = pin!(stack.call(Request::post(CHAT).body(body).unwrap()));
        let error = call.as_mut().await.unwrap_err();
        // `call` is over, and still there.
        assert!(matches!(error, Error::TooLarge { .. } | Error::RequestBody(_)), "{error:?}");
        assert_eq!((probe.live_permits(), probe.unused_permits()), (0, 1));
        assert_eq!(provider.calls(), 0);
    }
}

#[tokio::test(start_paused = true)]
async fn nothing_is_held_during_a_wait() {
    let service: Watched = ReadinessProbe::new(third_time_lucky());
    let (probe, provider) = (service.probe(), service.get_ref().clone());
    let mut call = pin!(both(service).oneshot(post(CHAT)));
    for attempt in 1..=2 {
        tokio::select! {
            biased;
            _ = &mut call => panic!("the call is not over"),
            () = provider.wait_for_calls(attempt) => {}
        }
        // In the middle of the wait: 0.5 s, and 1 s.
        let middle = tokio::time::sleep(millis(250));
        tokio::select! {
            biased;
            _ = &mut call => panic!("the call is not over"),
            () = middle => {}
        }
        assert_eq!((probe.calls(), probe.live_permits(), probe.in_flight()), (attempt, 0, 0));
    }
    call.await.unwrap();
    assert_at_rest(&probe, 0);
}
