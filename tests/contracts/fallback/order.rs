//! Order and counts, by what the providers themselves saw.

use std::sync::Arc;
use std::sync::atomic::{AtomicU16, Ordering};

use backstop::testing::{Answer, ScriptedProvider};
use backstop::vocabulary::BoxError;
use backstop::{BackoffLayer, ClassifyLayer, FallbackRouterLayer, Jitter, RequestBody, Schedule};
use http::{Request, Response};
use http_body::Body;
use tower::retry::Policy;
use tower::{Layer, Service, ServiceExt};

use super::{chain, profile};
use crate::rig::{ASK, client, ms, post};

/// A provider whose next answers have the status that stands here.
struct Switch {
    provider: ScriptedProvider,
    status: Arc<AtomicU16>,
    seen: usize,
}

impl Switch {
    async fn start() -> Self {
        let status = Arc::new(AtomicU16::new(200));
        let answers = status.clone();
        let provider = ScriptedProvider::builder()
            .on_request(move |_: &_| match answers.load(Ordering::SeqCst) {
                200 => Answer::status(200).json(GOOD),
                status => Answer::status(status).json(r#"{"error":{"message":"no"}}"#),
            })
            .start()
            .await
            .unwrap();
        Self { provider, status, seen: 0 }
    }

    /// The requests since this was asked last, by the model that they named.
    fn seen(&mut self) -> Vec<String> {
        let log = self.provider.log();
        let new = log[self.seen..].iter().map(|request| {
            let body: serde_json::Value = serde_json::from_slice(&request.body).unwrap();
            body["model"].as_str().unwrap().to_owned()
        });
        let new = new.collect();
        self.seen = log.len();
        new
    }
}

const GOOD: &str =
    r#"{"choices":[{"index":0,"message":{"content":"hi"},"finish_reason":"stop"}],"usage":{}}"#;

/// What each status leads to: whether the rung is asked again, and whether another one is.
const STATUSES: [(u16, bool, bool); 9] = [
    (429, true, true),
    (500, true, true),
    (503, true, true),
    (529, true, true),
    (401, false, true),
    (404, false, true),
    (400, false, false),
    (413, false, false),
    (422, false, false),
];

/// Somebody else's retry: three tries on any failure.
#[derive(Clone)]
struct ThreeTries(u32);

impl<RB, E> Policy<Request<RequestBody>, Response<RB>, E> for ThreeTries {
    type Future = std::future::Ready<()>;

    fn retry(
        &mut self,
        _: &mut Request<RequestBody>,
        result: &mut Result<Response<RB>, E>,
    ) -> Option<Self::Future> {
        let failed = result.as_ref().map_or(true, |response| !response.status().is_success());
        self.0 -= u32::from(failed && self.0 > 0);
        (failed && self.0 > 0).then(|| std::future::ready(()))
    }

    fn clone_request(&mut self, request: &Request<RequestBody>) -> Option<Request<RequestBody>> {
        Some(request.clone())
    }
}

/// Sends one call for each status and each rung that may be the first to succeed, and compares what the
/// providers saw with what was declared.
async fn check<S, RB>(
    rungs: usize,
    tries: impl Fn(usize, bool) -> usize,
    attempts: impl Fn(usize) -> u32,
    layers: impl Fn(FallbackRouterLayer) -> S,
) where
    S: Service<Request<RequestBody>, Response = Response<RB>>,
    S::Error: Into<BoxError> + std::fmt::Debug,
    RB: Body,
{
    let mut switches = Vec::new();
    for _ in 0..rungs {
        switches.push(Switch::start().await);
    }
    let chain = chain(
        switches
            .iter()
            .enumerate()
            .map(|(n, switch)| (profile(&n.to_string(), &switch.provider.url()), attempts(n))),
    );
    for (status, repeats, goes_on) in STATUSES {
        for winner in 0..=rungs {
            for (n, switch) in switches.iter().enumerate() {
                let status = if n == winner { 200 } else { status };
                switch.status.store(status, Ordering::SeqCst);
            }
            let stack = layers(FallbackRouterLayer::new(chain.clone()));
            let request = post("http://nobody.test/v1/chat/completions", ASK);
            let answer = stack.oneshot(request).await.unwrap();
            let reached = if goes_on { rungs } else { 1 };
            let expected_status = if winner < reached { 200 } else { status };
            assert_eq!(answer.status(), expected_status, "{status}, rung {winner} is good");
            for (n, switch) in switches.iter_mut().enumerate() {
                let expected = match n {
                    n if n >= reached || n > winner => 0,
                    n if n == winner => 1,
                    n => tries(n, repeats),
                };
                let expected = vec![format!("model-{n}"); expected];
                assert_eq!(switch.seen(), expected, "{status}, rung {winner} is good, rung {n}");
            }
        }
    }
}

#[tokio::test]
async fn alone_the_router_asks_each_rung_once_in_the_declared_order() {
    for rungs in 1..=5 {
        check(
            rungs,
            |_, _| 1,
            |n| n as u32 % 3 + 1,
            |router| router.layer(ClassifyLayer::new().layer(client())),
        )
        .await;
    }
}

#[tokio::test]
async fn with_a_backoff_below_each_rung_gets_its_own_attempts() {
    let quick = Schedule::new(ms(1), ms(2)).with_jitter(Jitter::None);
    for rungs in 1..=5 {
        for shares in [false, true] {
            let backoff = BackoffLayer::builder().schedule(quick.clone()).build().unwrap();
            check(
                rungs,
                |n, repeats| if repeats { n % 3 + 1 } else { 1 },
                |n| n as u32 % 3 + 1,
                |router| {
                    let chain = router.chain().clone();
                    let router = FallbackRouterLayer::builder(chain).share_original(shares);
                    let attempts = backoff.layer(ClassifyLayer::new().layer(client()));
                    router.build().unwrap().layer(attempts)
                },
            )
            .await;
        }
    }
}

#[tokio::test]
async fn over_somebody_elses_retry_the_order_is_the_same() {
    for rungs in [1, 3] {
        check(
            rungs,
            |_, _| 3,
            |_| 1,
            |router| {
                let attempts = ClassifyLayer::new().layer(client());
                router.layer(tower::retry::RetryLayer::new(ThreeTries(3)).layer(attempts))
            },
        )
        .await;
    }
}
