//! Many tasks at once: no permit is lost, and the limit is kept.

use backstop::ClassifyLayer;
use backstop::testing::{Outcome, ReadinessProbe, ScriptedService};
use tower::limit::ConcurrencyLimitLayer;
use tower::{Service, ServiceBuilder};

use super::{assert_at_rest, good};
use crate::support::{CHAT, exact_backoff, millis, post, read, ready};

const TASKS: usize = 100;
const CALLS: usize = 3;

/// Every second attempt fails, each takes some time, in some order.
fn flaky() -> ScriptedService {
    ScriptedService::from_fn(|seen| {
        let outcome = match seen.index % 4 {
            0 => Outcome::status(503),
            2 => Outcome::error("reset"),
            _ => good(),
        };
        outcome.after(millis(seen.index as u64 * 7919 % 40))
    })
}

async fn crowd(limit: usize) {
    let service = ReadinessProbe::new(flaky()).ready_after(1);
    let (probe, provider) = (service.probe(), service.get_ref().clone());
    let stack = ServiceBuilder::new()
        .layer(
            exact_backoff()
                .max_retries(1_000)
                .max_retry_time(millis(u64::MAX / 1_000))
                .build()
                .unwrap(),
        )
        .layer(ClassifyLayer::new())
        .layer(ConcurrencyLimitLayer::new(limit))
        .service(service);
    let tasks: Vec<_> = (0..TASKS)
        .map(|_| {
            let mut stack = stack.clone();
            tokio::spawn(async move {
                for _ in 0..CALLS {
                    let answer = ready(&mut stack).await.call(post(CHAT)).await.unwrap();
                    assert_eq!(answer.status(), 200);
                    assert!(read(answer.into_body()).await.end.is_ok());
                }
            })
        })
        .collect();
    for task in tasks {
        task.await.unwrap();
    }
    drop(stack);
    assert!(provider.calls() > TASKS * CALLS, "some attempts failed");
    assert_eq!(probe.calls(), provider.calls());
    assert!(probe.max_in_flight() <= limit, "{probe:?}");
    assert_eq!(probe.max_in_flight(), limit.min(TASKS), "the limit was used");
    assert_at_rest(&probe, 0);
}

#[tokio::test(start_paused = true)]
async fn a_hundred_tasks_share_one_place_and_none_is_lost() {
    crowd(1).await;
}

#[tokio::test(start_paused = true)]
async fn a_hundred_tasks_share_seven_places_and_none_is_lost() {
    crowd(7).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn tasks_on_several_threads_lose_no_place() {
    let service = ReadinessProbe::new(ScriptedService::from_fn(|seen| {
        if seen.index % 2 == 0 { Outcome::status(503) } else { good() }
    }));
    let probe = service.probe();
    let waits = backstop::Schedule::new(millis(1), millis(2));
    let stack = ServiceBuilder::new()
        .layer(exact_backoff().schedule(waits).max_retries(10_000).build().unwrap())
        .layer(ClassifyLayer::new())
        .layer(ConcurrencyLimitLayer::new(3))
        .service(service);
    let tasks: Vec<_> = (0..TASKS)
        .map(|_| {
            let mut stack = stack.clone();
            tokio::spawn(async move {
                for _ in 0..CALLS {
                    ready(&mut stack).await.call(post(CHAT)).await.unwrap();
                }
            })
        })
        .collect();
    for task in tasks {
        task.await.unwrap();
    }
    drop(stack);
    assert!(probe.max_in_flight() <= 3, "{probe:?}");
    assert_at_rest(&probe, 0);
}
