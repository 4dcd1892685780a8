//! A call that is dropped is over at once, whatever it is at.

use std::future::Future;
use std::pin::pin;
use std::task::{Context, Waker};
use std::time::Duration;

use backstop::testing::{
    BodyProbe, Outcome, Readiness, ReadinessProbe, ScriptedBody, ScriptedService, Step,
};
use http::Request;
use tower::{Service, ServiceExt};

use super::{assert_at_rest, backoff, both, failing};
use crate::support::{CHAT, millis, secs, sse};

fn ask(body: ScriptedBody) -> Request<ScriptedBody> {
    Request::post(CHAT).body(body).unwrap()
}

/// Lets the call come as far as it does in this time, and drops it.
async fn drop_after<T>(call: impl Future<Output = T>, time: Duration, before: impl FnOnce()) {
    let mut call = Box::pin(call);
    tokio::select! {
        biased;
        _ = &mut call => panic!("the call is over"),
        () = tokio::time::sleep(time) => {}
    }
    before();
    drop(call);
}

/// Nothing was spawned: what is left are the runtime's own tasks, of which there are none.
fn assert_nothing_runs() {
    let alive = tokio::runtime::Handle::current().metrics().num_alive_tasks();
    assert_eq!(alive, 0, "a task outlives the call");
}

#[tokio::test(start_paused = true)]
async fn a_call_dropped_while_it_collects_its_body_lets_the_body_go_and_asked_for_nothing() {
    for classified in [false, true] {
        let service = ReadinessProbe::new(failing());
        let probe = service.probe();
        let body = ScriptedBody::new([Step::data("{"), Step::forever()]);
        let body_probe: BodyProbe = body.probe();
        let at = || {
            assert_eq!((probe.calls(), probe.live_permits()), (0, 0));
            assert!(!body_probe.is_dropped());
        };
        if classified {
            drop_after(both(service).oneshot(ask(body)), secs(9), at).await;
        } else {
            drop_after(backoff(service).oneshot(ask(body)), secs(9), at).await;
        }
        assert!(body_probe.is_dropped());
        assert_at_rest(&probe, 0);
        assert_nothing_runs();
    }
}

#[tokio::test(start_paused = true)]
async fn a_call_dropped_during_any_attempt_cancels_that_attempt() {
    for attempt in 1..=3 {
        for classified in [false, true] {
            let service = ReadinessProbe::new(ScriptedService::from_fn(move |seen| {
                if seen.index + 1 == attempt { Outcome::never() } else { Outcome::status(503) }
            }));
            let (probe, provider) = (service.probe(), service.get_ref().clone());
            let at = || {
                assert_eq!((probe.calls(), probe.in_flight(), probe.cancelled()), (attempt, 1, 0));
            };
            let body = ScriptedBody::full("{}");
            if classified {
                drop_after(both(service).oneshot(ask(body)), secs(9), at).await;
            } else {
                drop_after(backoff(service).oneshot(ask(body)), secs(9), at).await;
            }
            assert_eq!((probe.in_flight(), probe.cancelled()), (0, 1), "attempt {attempt}");
            assert_at_rest(&probe, 0);
            tokio::time::sleep(secs(3600)).await;
            assert_eq!(provider.calls(), attempt, "nothing goes on without the caller");
            assert_nothing_runs();
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_call_dropped_while_an_answer_is_held_lets_the_answer_go() {
    let held = ScriptedBody::new([Step::data(": keep-alive\n\n"), Step::forever()]).unknown_size();
    let held_probe = held.probe();
    let service = ReadinessProbe::new(ScriptedService::new([sse(held)]));
    let probe = service.probe();
    let at = || {
        assert_eq!(probe.calls(), 1);
        assert!(held_probe.polls() > 0 && !held_probe.is_dropped());
    };
    drop_after(both(service).oneshot(ask(ScriptedBody::full("{}"))), secs(9), at).await;
    assert!(held_probe.is_dropped());
    assert_at_rest(&probe, 0);
    assert_nothing_runs();
}

#[tokio::test(start_paused = true)]
async fn a_call_dropped_during_a_wait_makes_no_other_attempt() {
    // 0.25 s into the first wait, and into the second.
    for (attempts, time) in [(1, 250), (2, 750)] {
        let service = ReadinessProbe::new(failing());
        let (probe, provider) = (service.probe(), service.get_ref().clone());
        let at = || assert_eq!((probe.calls(), probe.in_flight()), (attempts, 0));
        drop_after(both(service).oneshot(ask(ScriptedBody::full("{}"))), millis(time), at).await;
        assert_at_rest(&probe, 0);
        tokio::time::sleep(secs(3600)).await;
        assert_eq!(provider.calls(), attempts);
        assert_nothing_runs();
    }
}

#[tokio::test(start_paused = true)]
async fn a_call_dropped_while_a_failed_answer_is_drained_lets_that_go_as_well() {
    let rest = ScriptedBody::new([Step::data("bad"), Step::forever()]).unknown_size();
    let rest_probe = rest.probe();
    let service = ReadinessProbe::new(ScriptedService::new([Outcome::status(503).body(rest)]));
    let probe = service.probe();
    let at = || assert!(rest_probe.bytes() == 3 && !rest_probe.is_dropped());
    drop_after(backoff(service).oneshot(ask(ScriptedBody::full("{}"))), millis(20), at).await;
    assert!(rest_probe.is_dropped());
    assert_at_rest(&probe, 0);
}

#[tokio::test(start_paused = true)]
async fn a_call_dropped_while_it_gets_ready_for_any_attempt_gives_up_its_place_in_the_queue() {
    for broken in 1..=2 {
        let mut script = vec![Readiness::now(); broken];
        script.push(Readiness::never());
        let service = ReadinessProbe::new(failing()).readiness(script);
        let (probe, provider) = (service.probe(), service.get_ref().clone());
        let at = || assert!(probe.pendings() > 0);
        drop_after(both(service).oneshot(ask(ScriptedBody::full("{}"))), secs(9), at).await;
        assert_eq!(provider.calls(), broken);
        assert_at_rest(&probe, 0);
        assert_nothing_runs();
    }
}

#[tokio::test(start_paused = true)]
async fn a_call_dropped_while_it_gets_ready_anew_for_its_first_attempt_has_sent_nothing() {
    // The first reservation was given back while the body came; the second never comes.
    let service = ReadinessProbe::new(failing()).readiness([Readiness::now(), Readiness::never()]);
    let (probe, provider) = (service.probe(), service.get_ref().clone());
    let body = ScriptedBody::new([Step::data("{"), Step::pause(secs(1)), Step::data("}")]);
    let body_probe = body.probe();
    let at = || {
        assert!(body_probe.is_dropped() && probe.pendings() > 0);
        assert_eq!((probe.readies(), probe.unused_permits()), (1, 1));
    };
    drop_after(both(service).oneshot(ask(body)), secs(9), at).await;
    assert_eq!(provider.calls(), 0);
    assert_at_rest(&probe, 0);
    assert_nothing_runs();
}

#[tokio::test(start_paused = true)]
async fn a_call_that_is_never_polled_holds_no_permit() {
    // A body that is there: the permit is used on the spot. One that is not: it is given back.
    let slow = ScriptedBody::new([Step::data("{"), Step::pause(secs(1)), Step::data("}")]);
    for (body, unused, calls) in [(ScriptedBody::full("{}"), 0, 1), (slow, 1, 0)] {
        let service = ReadinessProbe::new(failing());
        let (probe, provider) = (service.probe(), service.get_ref().clone());
        let mut stack = both(service);
        let stack = ServiceExt::<Request<ScriptedBody>>::ready(&mut stack).await.unwrap();
        assert_eq!(probe.live_permits(), 1);
        let call = stack.call(ask(body));
        assert_eq!((probe.live_permits(), probe.unused_permits()), (0, unused));
        drop(call);
        assert_eq!((probe.calls(), probe.in_flight(), provider.calls()), (calls, 0, calls));
    }
}

#[tokio::test(start_paused = true)]
async fn a_call_that_is_over_stays_over_when_it_is_polled_again() {
    let provider = failing();
    let mut stack = both(provider.clone());
    let stack = ServiceExt::<Request<ScriptedBody>>::ready(&mut stack).await.unwrap();
    let mut call = pin!(stack.call(ask(ScriptedBody::full("{}"))));
    call.as_mut().await.unwrap();
    let attempts = provider.calls();
    assert!(call.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
    assert_eq!(provider.calls(), attempts);
}
