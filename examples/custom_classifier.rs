//! A judgement of your own over the built-in one: an answer that is well formed and still no answer.
//!
//! `cargo run --example custom_classifier --features testing`

use std::time::Duration;

use backstop::classify::{Answer, Classify};
use backstop::testing::{BoxError, ScriptedProvider, script};
use backstop::{BackoffLayer, Class, ClassifyLayer, Evidence, RequestBody, Schedule, Verdict};
use bytes::Bytes;
use http::Request;
use http_body_util::{BodyExt, Full};
use hyper_util::client::legacy::Client;
use hyper_util::rt::TokioExecutor;
use tower::{ServiceBuilder, ServiceExt};

/// We asked for JSON inside the message; an answer without any is to be asked for again.
fn must_hold_json(answer: &Answer<'_>) -> Option<Verdict> {
    let verdict = answer.verdict();
    let good = !verdict.class().is_failure();
    let has_json = answer.body().windows(2).any(|pair| pair == b"{\\");
    (good && !has_json).then(|| {
        verdict
            .clone()
            .with_class(Class::Transient, Evidence::Custom)
            .with_message("the message holds no JSON")
    })
}

/// Our proxy answers 418 when it has too much to do.
fn teapot_is_overloaded(answer: &Answer<'_>) -> Option<Verdict> {
    (answer.status()?.as_u16() == 418)
        .then(|| answer.verdict().clone().with_class(Class::Overloaded, Evidence::Custom))
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), BoxError> {
    let provider = ScriptedProvider::start([
        backstop::testing::Answer::status(418),
        script::openai::chat("model-a", "Certainly! Here is your JSON:"),
        script::openai::chat("model-a", r#"{"grade": 4}"#),
    ])
    .await?;
    let client = Client::builder(TokioExecutor::new())
        .retry_canceled_requests(false)
        .build_http::<RequestBody>();
    let schedule = Schedule::new(Duration::from_millis(50), Duration::from_secs(1));
    let service = ServiceBuilder::new()
        .layer(BackoffLayer::builder().schedule(schedule).build()?)
        .map_response(|response| {
            println!("attempt: {:?}", Verdict::of(&response));
            response
        })
        .layer(
            ClassifyLayer::builder()
                .classifier(teapot_is_overloaded.or_else(must_hold_json))
                .build()?,
        )
        .service(client);
    let request = Request::post(format!("{}/v1/chat/completions", provider.url()))
        .body(Full::new(Bytes::from_static(br#"{"model":"model-a","messages":[]}"#)))?;
    let response = service.oneshot(request).await?;
    let body = response.into_body().collect().await?.to_bytes();
    println!("{}", String::from_utf8_lossy(&body));
    Ok(())
}
