//! The readiness probe finds what it is there to find.

use std::{
    future::poll_fn,
    panic::{AssertUnwindSafe, catch_unwind},
    task::{Context, Poll, Waker},
    time::Duration,
};

use backstop::testing::{
    BoxError, Outcome, Readiness, ReadinessProbe, Script, ScriptedBody, ScriptedError,
    ScriptedService,
};
use http::{Request, Response};
use tokio::time::{Instant, timeout};
use tower_service::Service;

type Probed = ReadinessProbe<ScriptedService>;

fn probed() -> Probed {
    ReadinessProbe::new(ScriptedService::new(Script::new([Outcome::status(200)]).repeat_last()))
}

async fn ready(service: &mut Probed) -> Result<(), BoxError> {
    poll_fn(|cx| poll(service, cx)).await
}

fn poll(service: &mut Probed, cx: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
    Service::<Request<ScriptedBody>>::poll_ready(service, cx)
}

async fn call(service: &mut Probed) -> Result<Response<ScriptedBody>, BoxError> {
    service.call(Request::new(ScriptedBody::empty())).await
}

fn panics(service: &mut Probed) -> bool {
    let call = AssertUnwindSafe(|| drop(service.call(Request::new(ScriptedBody::empty()))));
    catch_unwind(call).is_err()
}

#[tokio::test]
async fn a_call_without_readiness_panics() {
    assert!(panics(&mut probed()));
}

#[tokio::test]
async fn readiness_serves_one_call() {
    let mut service = probed();
    ready(&mut service).await.unwrap();
    call(&mut service).await.unwrap();
    assert!(panics(&mut service));
    ready(&mut service).await.unwrap();
    call(&mut service).await.unwrap();
}

#[tokio::test]
async fn a_clone_is_not_ready_and_the_original_stays_so() {
    let mut service = probed();
    ready(&mut service).await.unwrap();
    let mut clone = service.clone();
    assert!(panics(&mut clone));
    call(&mut service).await.unwrap();
}

#[tokio::test]
async fn permits_are_taken_by_readiness_and_given_back_by_call_or_drop() {
    let mut one = probed();
    let probe = one.probe();
    let mut two = one.clone();
    ready(&mut one).await.unwrap();
    ready(&mut one).await.unwrap();
    assert_eq!(probe.live_permits(), 1);
    ready(&mut two).await.unwrap();
    assert_eq!(probe.live_permits(), 2);
    call(&mut one).await.unwrap();
    assert_eq!((probe.live_permits(), probe.unused_permits()), (1, 0));
    drop(two);
    assert_eq!((probe.live_permits(), probe.unused_permits(), probe.max_live_permits()), (0, 1, 2));
    assert_eq!((probe.polls(), probe.readies(), probe.calls(), probe.clones()), (3, 3, 1, 1));
    assert_eq!(probe.live_instances(), 1);
    drop(one);
    assert_eq!((probe.drops(), probe.live_instances()), (2, 0));
}

#[tokio::test]
async fn readiness_can_take_some_polls_each_time() {
    let mut service = probed().ready_after(2);
    let probe = service.probe();
    for n in 1..=3 {
        ready(&mut service).await.unwrap();
        call(&mut service).await.unwrap();
        assert_eq!((probe.pendings(), probe.readies()), (2 * n, n));
    }
    let mut cx = Context::from_waker(Waker::noop());
    assert!(poll(&mut service, &mut cx).is_pending());
    assert!(panics(&mut service));
}

#[tokio::test]
async fn readiness_can_fail_at_the_nth_reservation() {
    let mut service = probed().fail_readiness(1, "no more");
    let probe = service.probe();
    ready(&mut service).await.unwrap();
    call(&mut service).await.unwrap();
    let mut clone = service.clone();
    let error = ready(&mut clone).await.unwrap_err();
    assert_eq!(error.downcast_ref::<ScriptedError>().unwrap().message(), "no more");
    assert!(panics(&mut clone));
    ready(&mut service).await.unwrap();
    assert_eq!((probe.readiness_errors(), probe.live_permits()), (1, 1));
}

#[tokio::test(start_paused = true)]
async fn readiness_follows_a_script() {
    let second = Duration::from_secs(1);
    let mut service = probed().readiness([Readiness::pause(second), Readiness::never()]);
    let probe = service.probe();
    let start = Instant::now();
    ready(&mut service).await.unwrap();
    assert_eq!(start.elapsed(), second);
    call(&mut service).await.unwrap();
    assert!(timeout(second, ready(&mut service)).await.is_err());
    // Asking again goes on with the same reservation.
    assert!(timeout(second, ready(&mut service)).await.is_err());
    assert_eq!((probe.readies(), probe.live_permits()), (1, 0));
    ready(&mut service.clone()).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn calls_under_way_and_cancelled_are_counted() {
    let script = [Outcome::never(), Outcome::status(200)];
    let mut service = ReadinessProbe::new(ScriptedService::new(script));
    let probe = service.probe();
    ready(&mut service).await.unwrap();
    let stuck = service.call(Request::new(ScriptedBody::empty()));
    ready(&mut service).await.unwrap();
    let good = service.call(Request::new(ScriptedBody::empty()));
    assert_eq!(probe.in_flight(), 2);
    good.await.unwrap();
    assert_eq!((probe.in_flight(), probe.cancelled()), (1, 0));
    drop(stuck);
    assert_eq!((probe.in_flight(), probe.cancelled(), probe.max_in_flight()), (0, 1, 2));
}
