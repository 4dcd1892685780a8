//! A service that cannot be made ready: an error like that of a call.

use std::error::Error as _;

use backstop::testing::{Readiness, ReadinessProbe, ScriptedError, ScriptedService};
use backstop::vocabulary::{Guard, Unprocessed};
use backstop::{Class, Error};
use tower::{Layer, ServiceExt};

use super::{assert_at_rest, both, failing, good, impatient, third_time_lucky};
use crate::support::{CHAT, millis, post, ready, secs};

#[tokio::test(start_paused = true)]
async fn readiness_that_fails_before_any_attempt_is_retried_like_a_call() {
    for broken in 0..3 {
        let mut script = vec![Readiness::now(); broken];
        script.push(Readiness::error("no connection"));
        let service = ReadinessProbe::new(third_time_lucky()).readiness(script);
        let (probe, provider) = (service.probe(), service.get_ref().clone());
        let start = tokio::time::Instant::now();
        let response = both(service).oneshot(post(CHAT)).await.unwrap();
        assert_eq!(response.status(), 200, "readiness {broken}");
        // Two failed answers and one failed readiness: waits of 0.5, 1 and 2 seconds.
        assert_eq!(start.elapsed(), millis(3_500), "readiness {broken}");
        assert_eq!((provider.calls(), probe.readiness_errors()), (3, 1), "readiness {broken}");
        assert_at_rest(&probe, 0);
    }
}

#[tokio::test(start_paused = true)]
async fn readiness_that_goes_on_failing_ends_with_its_error_at_the_bottom() {
    let script = [0; 3].map(|_| Readiness::error("no connection"));
    let service = ReadinessProbe::new(failing()).readiness(script);
    let (probe, provider) = (service.probe(), service.get_ref().clone());
    let error = impatient().layer(service).oneshot(post(CHAT)).await.unwrap_err();
    let Error::Exhausted(exhausted) = &error else { panic!("{error:?}") };
    assert_eq!((exhausted.retries(), exhausted.waited()), (2, millis(1_500)));
    assert_eq!(exhausted.stopped_by(), Guard::MaxRetries);
    assert_eq!(exhausted.verdict().class(), Class::Transient);
    let mut cause = error.source();
    while let Some(inner) = cause.and_then(|cause| cause.source()) {
        cause = Some(inner);
    }
    let cause = cause.and_then(|cause| cause.downcast_ref::<ScriptedError>());
    assert_eq!(cause.map(ScriptedError::message), Some("no connection"));
    assert_eq!((provider.calls(), probe.readiness_errors()), (0, 3));
    assert_at_rest(&probe, 0);
}

#[tokio::test(start_paused = true)]
async fn readiness_of_every_attempt_but_the_last_may_fail() {
    let script = [0; 2].map(|_| Readiness::error("no connection"));
    let provider = ScriptedService::new([good()]);
    let service = ReadinessProbe::new(provider.clone()).readiness(script);
    let probe = service.probe();
    let response = impatient().layer(service).oneshot(post(CHAT)).await.unwrap();
    assert_eq!((response.status().as_u16(), provider.calls()), (200, 1));
    assert_at_rest(&probe, 0);
}

#[tokio::test(start_paused = true)]
async fn readiness_that_failed_without_processing_anything_is_asked_again_at_once() {
    let error = || Unprocessed("stream refused".into()).into();
    let provider = ScriptedService::new([good()]);
    let service = ReadinessProbe::new(provider.clone()).readiness([Readiness::error_with(error)]);
    let start = tokio::time::Instant::now();
    impatient().layer(service).oneshot(post(CHAT)).await.unwrap();
    assert_eq!((provider.calls(), start.elapsed()), (1, secs(0)));
}

#[tokio::test(start_paused = true)]
async fn a_failure_of_readiness_belongs_to_the_instance_that_was_asked() {
    let provider = ScriptedService::new([good(), good()]);
    let service = ReadinessProbe::new(provider).fail_readiness(0, "no connection");
    let mut first = impatient().layer(service);
    ready(&mut first).await;
    let second = first.clone();
    let start = tokio::time::Instant::now();
    second.oneshot(post(CHAT)).await.unwrap();
    assert_eq!(start.elapsed(), secs(0), "the clone has met no failure");
    first.oneshot(post(CHAT)).await.unwrap();
    assert_eq!(start.elapsed(), millis(500));
}

#[tokio::test(start_paused = true)]
async fn the_classifier_hands_a_failure_of_readiness_on_as_a_failed_attempt() {
    let service = ReadinessProbe::new(failing()).fail_readiness(0, "no connection");
    let service = backstop::ClassifyLayer::new().layer(service);
    let error = service.oneshot(post(CHAT)).await.unwrap_err();
    assert_eq!(error.verdict().map(|verdict| verdict.class()), Some(Class::Transient));
    assert!(error.to_string().contains("no connection"), "{error}");
}
