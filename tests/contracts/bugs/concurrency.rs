//! Readiness under many callers: B035.

use std::error::Error as StdError;
use std::time::Duration;

use backstop::testing::script::openai;
use backstop::testing::{
    Outcome, Readiness, ReadinessProbe, ScriptedError, ScriptedService, SeenCall,
};
use backstop::vocabulary::BoxError;
use backstop::{CallContext, Class, ClassifyLayer, Error, RequestBody};
use bytes::Bytes;
use http::{Request, Response};
use http_body::Body;
use tokio::task::JoinSet;
use tokio::time::timeout;
use tower::buffer::Buffer;
use tower::limit::ConcurrencyLimit;
use tower::{Layer, Service, ServiceExt};

use crate::rig::{ASK, CHAT, doubling, ms, post, receive, secs};

const TASKS: usize = 100;
const CALLS: u32 = 3;

/// Answers the third attempt of a call well, or the third call of a task where nothing retries.
fn third_time() -> ScriptedService {
    ScriptedService::from_fn(|seen: &SeenCall| {
        let attempt = seen.head.extensions.get::<CallContext>().map_or(1, CallContext::attempt);
        let nth: u32 = seen.header("x-nth").unwrap().parse().unwrap();
        let outcome: Outcome = match attempt.max(nth) {
            3 => openai::chat("model-a", "hello").into(),
            _ => Outcome::status(503),
        };
        outcome.after(ms(10))
    })
}

/// The statuses that three calls in a row get, of a hundred tasks at once, each on a clone of its
/// own. `counts` tells each call which of its task's it is.
async fn storm<S, RB>(service: S, counts: bool) -> Vec<Vec<u16>>
where
    S: Service<Request<RequestBody>, Response = Response<RB>> + Clone + Send + 'static,
    S::Error: Into<BoxError>,
    S::Future: Send,
    RB: Body<Data = Bytes> + Send,
    RB::Error: Send,
{
    let mut tasks = JoinSet::new();
    for _ in 0..TASKS {
        let mut service = service.clone();
        tasks.spawn(async move {
            let mut statuses = Vec::new();
            for nth in 1..=CALLS {
                let mut request = post(CHAT, ASK);
                let nth = if counts { nth } else { 1 };
                request.headers_mut().insert("x-nth", nth.into());
                let ready = service.ready().await.map_err(Into::into).unwrap();
                let response = ready.call(request).await.map_err(Into::into).unwrap();
                let received = receive(response).await;
                assert!(received.error.is_none());
                statuses.push(received.status.as_u16());
            }
            statuses
        });
    }
    timeout(secs(3_600), tasks.join_all()).await.unwrap()
}

fn retried() -> Vec<Vec<u16>> {
    vec![vec![200; CALLS as usize]; TASKS]
}

fn judged() -> Vec<Vec<u16>> {
    vec![vec![503, 503, 200]; TASKS]
}

#[tokio::test(start_paused = true)]
async fn b035_the_instance_made_ready_is_the_one_called_however_many_callers_there_are() {
    for pendings in [0, 2] {
        let probed = || ReadinessProbe::new(third_time()).ready_after(pendings);
        let (backoff, classify) = (doubling(ms(100)).build().unwrap(), ClassifyLayer::new());

        let inner = probed();
        let probe = inner.probe();
        assert_eq!(storm(backoff.layer(inner), false).await, retried());
        assert_eq!(probe.calls(), TASKS * 9);
        assert_eq!((probe.live_permits(), probe.in_flight(), probe.live_instances()), (0, 0, 0));

        let inner = probed();
        let probe = inner.probe();
        assert_eq!(storm(classify.layer(inner), true).await, judged());
        assert_eq!(probe.calls(), TASKS * 3);
        assert_eq!((probe.live_permits(), probe.in_flight(), probe.live_instances()), (0, 0, 0));

        let inner = probed();
        let probe = inner.probe();
        assert_eq!(storm(backoff.layer(classify.layer(inner)), false).await, retried());
        assert_eq!(probe.calls(), TASKS * 9);
        assert_eq!((probe.live_permits(), probe.in_flight(), probe.live_instances()), (0, 0, 0));
    }
}

#[tokio::test(start_paused = true)]
async fn b035_over_a_concurrency_limit_of_one_all_calls_end_and_none_holds_the_place_while_it_waits()
 {
    let (backoff, classify) = (doubling(ms(100)).build().unwrap(), ClassifyLayer::new());
    let limited = || {
        let probed = ReadinessProbe::new(third_time());
        (probed.probe(), ConcurrencyLimit::new(probed, 1))
    };
    let (probe, inner) = limited();
    assert_eq!(storm(backoff.layer(inner), false).await, retried());
    assert_eq!((probe.calls(), probe.max_in_flight()), (TASKS * 9, 1));

    let (probe, inner) = limited();
    assert_eq!(storm(classify.layer(inner), true).await, judged());
    assert_eq!((probe.calls(), probe.max_in_flight()), (TASKS * 3, 1));

    let (probe, inner) = limited();
    assert_eq!(storm(backoff.layer(classify.layer(inner)), false).await, retried());
    assert_eq!((probe.calls(), probe.max_in_flight()), (TASKS * 9, 1));
}

#[tokio::test(start_paused = true)]
async fn b035_over_a_buffer_all_calls_end() {
    let (backoff, classify) = (doubling(ms(100)).build().unwrap(), ClassifyLayer::new());
    let buffered = || Buffer::new(ReadinessProbe::new(third_time()), 4);
    assert_eq!(storm(backoff.layer(buffered()), false).await, retried());
    assert_eq!(storm(classify.layer(buffered()), true).await, judged());
    assert_eq!(storm(backoff.layer(classify.layer(buffered())), false).await, retried());
}

/// A limit of one over a service whose first reservation fails.
fn unready() -> ConcurrencyLimit<ReadinessProbe<ScriptedService>> {
    let service = ScriptedService::new([openai::chat("model-a", "hello")]);
    let probed = ReadinessProbe::new(service).readiness([Readiness::error("no connection")]);
    ConcurrencyLimit::new(probed, 1)
}

/// Whether `error` came of the failed reservation, and says what it was.
fn is_of_readiness(error: &Error) {
    let mut cause: Option<&(dyn StdError + 'static)> = Some(error);
    while let Some(error) = cause.filter(|cause| !cause.is::<ScriptedError>()) {
        cause = error.source();
    }
    assert!(cause.is_some(), "{error:?}");
    assert_eq!(error.verdict().unwrap().class(), Class::Transient);
}

/// Whether the place in the limit is free again.
async fn admits<S, RB>(service: &mut S, within: Duration)
where
    S: Service<Request<RequestBody>, Response = Response<RB>, Error = Error>,
{
    let call = async { service.ready().await.unwrap().call(post(CHAT, ASK)).await };
    assert_eq!(timeout(within, call).await.unwrap().unwrap().status(), 200);
}

#[tokio::test(start_paused = true)]
async fn b035_an_error_of_readiness_is_an_error_of_that_call_and_loses_no_place() {
    let once = doubling(ms(100)).max_retries(0).build().unwrap();

    let mut alone = once.layer(unready());
    let mut other = alone.clone();
    let ready = ServiceExt::<Request<RequestBody>>::ready(&mut alone).await.unwrap();
    is_of_readiness(&ready.call(post(CHAT, ASK)).await.unwrap_err());
    admits(&mut other, secs(1)).await;

    let mut alone = ClassifyLayer::new().layer(unready());
    let mut other = alone.clone();
    let failed = ServiceExt::<Request<RequestBody>>::ready(&mut alone).await.unwrap_err();
    is_of_readiness(&failed);
    drop(alone);
    admits(&mut other, secs(1)).await;

    let mut stack = once.layer(ClassifyLayer::new().layer(unready()));
    let mut other = stack.clone();
    let ready = ServiceExt::<Request<RequestBody>>::ready(&mut stack).await.unwrap();
    is_of_readiness(&ready.call(post(CHAT, ASK)).await.unwrap_err());
    admits(&mut other, secs(1)).await;
    // The instance that met the error serves the next call as well.
    let mut stack = once.layer(ClassifyLayer::new().layer(unready()));
    let ready = ServiceExt::<Request<RequestBody>>::ready(&mut stack).await.unwrap();
    is_of_readiness(&ready.call(post(CHAT, ASK)).await.unwrap_err());
    admits(&mut stack, secs(1)).await;
}

#[tokio::test(start_paused = true)]
async fn b035_an_error_of_readiness_is_retried_like_an_error_of_the_call() {
    let mut stack = doubling(ms(100))
        .max_retries(1)
        .build()
        .unwrap()
        .layer(ClassifyLayer::new().layer(unready()));
    let start = tokio::time::Instant::now();
    admits(&mut stack, secs(1)).await;
    assert_eq!(start.elapsed(), ms(100));
}
