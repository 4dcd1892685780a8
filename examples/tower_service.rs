//! The layers added by hand to a tower service that a program has already.
//!
//! `cargo run --example tower_service --features testing`

use std::time::Duration;

use backstop::testing::{BoxError, ScriptedProvider, script};
use backstop::{
    Action, BackoffLayer, CallOptions, Class, ClassifyLayer, Limit, RequestBody, Schedule, Verdict,
};
use bytes::Bytes;
use http::Request;
use http_body_util::{BodyExt, Full};
use hyper_util::client::legacy::Client;
use hyper_util::rt::TokioExecutor;
use tower::limit::ConcurrencyLimitLayer;
use tower::{ServiceBuilder, ServiceExt};
use tower_http::trace::TraceLayer;

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), BoxError> {
    let provider = ScriptedProvider::start([
        script::openai::error(503, "service_unavailable_error", "server_is_overloaded"),
        script::openai::chat("model-a", "the first answer"),
        script::openai::error(429, "insufficient_quota", "insufficient_quota"),
    ])
    .await?;
    let client = Client::builder(TokioExecutor::new())
        .retry_canceled_requests(false)
        .build_http::<RequestBody>();

    let backoff = BackoffLayer::builder()
        .max_retries(3)
        .max_retry_time(Limit::Unlimited)
        .schedule(Schedule::new(Duration::from_millis(100), Duration::from_secs(10)))
        // Refusals are stochastic for us: one more try is worth it.
        .on(Class::ContentRefused, Action::Retry)
        .build()?;
    let service = ServiceBuilder::new()
        // One span a call, whatever the retries below; its failures are verdicts, not statuses.
        .layer(TraceLayer::new(backstop::classify::ByVerdict))
        .layer(backoff)
        // Below the retries, so that a call which waits for its next try holds no place.
        .layer(ConcurrencyLimitLayer::new(8))
        .layer(ClassifyLayer::new())
        .service(client);

    for node in ["node-1", "node-2"] {
        let mut request = Request::post(format!("{}/v1/chat/completions", provider.url()))
            .header("content-type", "application/json")
            .body(Full::new(Bytes::from_static(br#"{"model":"model-a","messages":[]}"#)))?;
        // What this one call wants otherwise, and how it is called in errors and records.
        request
            .extensions_mut()
            .insert(CallOptions::new().node(node).deadline(Duration::from_secs(30)));
        let response = service.clone().oneshot(request).await?;
        let verdict = Verdict::of(&response).cloned();
        let status = response.status();
        let body = response.into_body().collect().await?.to_bytes();
        println!("{node}: {status}, {verdict:?}\n  {}", String::from_utf8_lossy(&body));
    }
    // An overload was outlived; an empty account was not waited for.
    println!("the provider saw {} requests for 2 calls", provider.requests());
    Ok(())
}
