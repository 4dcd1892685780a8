//! What the three write-ups ask for that Backstop began with: A, two kinds of failure that must not be
//! mixed up; B, retries that read no error's text. (C, the two guards, is in `waits`.)

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use backstop::testing::{Outcome, ScriptedService, script};
use backstop::{BackoffLayer, Class, ClassifyLayer, Verdict};
use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use tower::{Service, ServiceBuilder, ServiceExt};
use tower_http::trace::TraceLayer;
use tracing::{Metadata, Subscriber, span};

use crate::support::{CHAT, exact_backoff, post, post_body, ready};

/// A conversation in which a tool has failed, twice.
const FAILED_TOOL: &str = r#"{"model":"m","messages":[
  {"role":"assistant","tool_calls":[{"id":"t1","type":"function","function":{"name":"look","arguments":"{}"}}]},
  {"role":"tool","tool_call_id":"t1","is_error":true,"content":"Error: 529 overloaded_error, rate limit, timeout"}]}"#;

#[tokio::test(start_paused = true)]
async fn a_failed_tool_result_is_the_agents_business() {
    let answer = script::openai::chat("m", "The tool failed: 503 overloaded. I will try again.");
    let service = ScriptedService::new([Outcome::from(answer)]);
    let stack = ServiceBuilder::new()
        .layer(BackoffLayer::new())
        .layer(ClassifyLayer::new())
        .service(service.clone());
    let response = stack.oneshot(post_body(CHAT, FAILED_TOOL)).await.unwrap();
    assert_eq!(Verdict::of(&response).map(Verdict::class), Some(Class::Success));
    assert_eq!(service.calls(), 1);
    assert_eq!(service.log()[0].body, FAILED_TOOL, "not a byte of the prompt is touched");
}

#[tokio::test(start_paused = true)]
async fn two_calls_of_one_node_are_two_calls() {
    let service = ScriptedService::from_fn(|call| {
        Outcome::status(if call.index % 2 == 0 { 503 } else { 200 })
    });
    let mut stack = ServiceBuilder::new()
        .layer(exact_backoff().max_retries(1).build().unwrap())
        .service(service.clone());
    for calls in [2, 4] {
        let response = ready(&mut stack).await.call(post(CHAT)).await.unwrap();
        assert_eq!((response.status().as_u16(), service.calls()), (200, calls));
    }
}

/// Counts spans and events, of everything or of everything but the attempts.
#[derive(Clone, Default)]
struct Count {
    with_attempts: bool,
    spans: Arc<AtomicUsize>,
    events: Arc<AtomicUsize>,
}

impl Subscriber for Count {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        self.with_attempts || metadata.target() != "backstop::attempt"
    }
    fn new_span(&self, _: &span::Attributes<'_>) -> span::Id {
        span::Id::from_u64(self.spans.fetch_add(1, Ordering::Relaxed) as u64 + 1)
    }
    fn event(&self, event: &tracing::Event<'_>) {
        if event.metadata().target() == "backstop::attempt" {
            self.events.fetch_add(1, Ordering::Relaxed);
        }
    }
    fn record(&self, _: &span::Id, _: &span::Record<'_>) {}
    fn record_follows_from(&self, _: &span::Id, _: &span::Id) {}
    fn enter(&self, _: &span::Id) {}
    fn exit(&self, _: &span::Id) {}
}

#[tokio::test(start_paused = true)]
async fn a_trace_without_the_attempts_has_one_span_a_call_whatever_the_retries() {
    for (with_attempts, events) in [(false, 0), (true, 3)] {
        let count = Count { with_attempts, ..Count::default() };
        let _guard = tracing::subscriber::set_default(count.clone());
        let service = ScriptedService::new(
            [503, 500, 429, 200].map(|status| Outcome::status(status).json("{}")),
        );
        let stack = ServiceBuilder::new()
            .layer(TraceLayer::new(backstop::classify::ByVerdict))
            .layer(exact_backoff().build().unwrap())
            .layer(
                ClassifyLayer::builder()
                    .dialect(backstop::dialect::Dialect::OPENAI)
                    .build()
                    .unwrap(),
            )
            .service(service.clone());
        stack.oneshot(post("/elsewhere")).await.unwrap();
        assert_eq!(service.calls(), 4);
        assert_eq!(count.spans.load(Ordering::Relaxed), 1);
        assert_eq!(count.events.load(Ordering::Relaxed), events);
    }
}

#[tokio::test(start_paused = true)]
async fn a_stochastic_policy_refusal_is_outlived_in_agnostic_mode() {
    let refused = script::openai::error(400, "invalid_request_error", "cyber_policy");
    let service = ScriptedService::new([
        Outcome::from(refused),
        Outcome::from(script::openai::chat("m", "the answer")),
    ]);
    let stack = ServiceBuilder::new()
        .layer(exact_backoff().build().unwrap())
        .layer(ClassifyLayer::builder().agnostic().build().unwrap())
        .service(service.clone());
    let prompt = r#"{"model":"m","seed":9007199254740993,"messages":[]}"#;
    let response = stack.oneshot(post_body(CHAT, prompt)).await.unwrap();
    assert_eq!(response.status(), 200);
    assert_eq!(service.calls(), 2);
    assert!(service.log().iter().all(|call| call.body == prompt), "the prompt, byte for byte");
}

/// Error texts and codes that change what a provider-aware verdict does; in agnostic mode they change
/// nothing.
#[tokio::test(start_paused = true)]
async fn no_text_or_code_of_an_error_changes_an_agnostic_verdict() {
    let errors = [
        r#"{"error":{"message":"m","type":"server_error","code":null}}"#,
        r#"{"error":{"message":"insufficient_quota","type":"insufficient_quota","code":"insufficient_quota"}}"#,
        r#"{"error":{"message":"context_length_exceeded","type":"invalid_request_error","code":"context_length_exceeded"}}"#,
        r#"{"error":{"message":"your request was refused","type":"invalid_request_error","code":"cyber_policy"}}"#,
        "overloaded, try again in 20 s",
        "",
    ];
    for status in [400, 402, 413, 422, 429, 500, 503, 529] {
        let mut provider_aware = Vec::new();
        for error in errors {
            for agnostic in [true, false] {
                let service =
                    ScriptedService::from_fn(move |_| Outcome::status(status).json(error));
                let classify = ClassifyLayer::builder();
                let classify = if agnostic { classify.agnostic() } else { classify };
                let stack = ServiceBuilder::new()
                    .layer(exact_backoff().max_retries(1).build().unwrap())
                    .layer(classify.build().unwrap())
                    .service(service.clone());
                let response = stack.oneshot(post(CHAT)).await.unwrap();
                let class = Verdict::of(&response).map(Verdict::class);
                if agnostic {
                    assert_eq!(
                        (class, service.calls()),
                        (Some(Class::Transient), 2),
                        "{status} {error}"
                    );
                } else {
                    provider_aware.push(class);
                }
                let body = response.into_body().collect().await.unwrap().to_bytes();
                assert_eq!(body, error, "the caller gets the provider's own words");
            }
        }
        provider_aware.sort();
        provider_aware.dedup();
        assert!(
            provider_aware.len() > 1,
            "{status}: these texts matter to a provider-aware verdict"
        );
    }
}

#[tokio::test(start_paused = true)]
async fn a_wrong_configuration_is_not_repeated_in_agnostic_mode() {
    for status in [401, 403, 404, 405] {
        let service = ScriptedService::from_fn(move |_| Outcome::status(status).json("{}"));
        let stack = ServiceBuilder::new()
            .layer(BackoffLayer::new())
            .layer(ClassifyLayer::builder().agnostic().build().unwrap())
            .service(service.clone());
        let response = stack.oneshot(post(CHAT)).await.unwrap();
        let class = Verdict::of(&response).map(Verdict::class);
        assert_eq!((class, service.calls()), (Some(Class::InvalidRequest), 1), "{status}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_model_that_declines_has_answered_in_agnostic_mode() {
    let service =
        ScriptedService::new([Outcome::from(script::openai::refusal("m", "I will not."))]);
    let stack = ServiceBuilder::new()
        .layer(BackoffLayer::new())
        .layer(ClassifyLayer::builder().agnostic().build().unwrap())
        .service(service.clone());
    let response = stack.oneshot(post(CHAT).map(|_| Full::new(Bytes::from("{}")))).await.unwrap();
    assert_eq!(Verdict::of(&response).map(Verdict::class), Some(Class::Success));
    assert_eq!(service.calls(), 1);
}
