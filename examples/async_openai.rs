//! Typed calls of async-openai through a stack, which takes the place of its own retries.
//!
//! `cargo run --example async_openai --features async-openai,testing`

use std::time::Duration;

use async_openai::Client;
use async_openai::config::OpenAIConfig;
use async_openai::error::OpenAIError;
use async_openai::types::chat::{ChatCompletionRequestUserMessage, CreateChatCompletionRequest};
use backstop::client::async_openai::{HttpService, error_of};
use backstop::client::reqwest::{ReqwestClient, client_builder};
use backstop::testing::{Answer, BoxError, ScriptedProvider, script::openai};
use backstop::{BackoffLayer, ClassifyLayer, OnExhausted, Schedule};
use tower::ServiceBuilder;

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), BoxError> {
    let provider = ScriptedProvider::start([
        // Saved: a full provider, a connection that breaks, a failure inside a 200.
        openai::error(429, "rate_limit_error", "rate_limit_exceeded"),
        Answer::nothing().reset(),
        Answer::status(200).json(openai::error_body("server_error", None)),
        openai::chat("model-a", "the answer"),
        // Not repeated: no credit is left.
        openai::error(429, "insufficient_quota", "insufficient_quota"),
        // Given up.
        openai::error(503, "server_error", None),
        openai::error(503, "server_error", None),
        openai::error(503, "server_error", None),
        openai::error(503, "server_error", None),
    ])
    .await?;

    let backoff = BackoffLayer::builder()
        .max_retries(3)
        .schedule(Schedule::new(Duration::from_millis(20), Duration::from_secs(1)))
        .on_exhausted(OnExhausted::Error)
        .build()?;
    let stack = ServiceBuilder::new()
        .layer(backoff)
        .layer(ClassifyLayer::new())
        .service(ReqwestClient::new(client_builder().build()?));
    let config = OpenAIConfig::new()
        .with_api_base(format!("{}/v1", provider.url()))
        .with_api_key("no-key-needed-here");
    // This line is what changes in a program that has a client already.
    let client = Client::with_config(config).with_http_service(HttpService::new(stack));

    let mut right = true;
    for (name, succeeds, attempts) in
        [("saved", true, 4), ("no credit", false, 1), ("given up", false, 4)]
    {
        let before = provider.requests();
        let request = CreateChatCompletionRequest {
            model: "model-a".into(),
            messages: vec![ChatCompletionRequestUserMessage::from("hello").into()],
            ..Default::default()
        };
        let result = client.chat().create(request).await;
        let seen = provider.requests() - before;
        right &= (result.is_ok(), seen) == (succeeds, attempts);
        println!(
            "{name}, after {seen} attempts: {}",
            in_words(result.map(|answer| {
                answer.choices.into_iter().find_map(|choice| choice.message.content)
            }))
        );
    }
    if !right {
        return Err("something happened that was not in the script".into());
    }
    Ok(())
}

fn in_words(result: Result<Option<String>, OpenAIError>) -> String {
    match result {
        Ok(text) => text.unwrap_or_default(),
        Err(error) => match error_of(&error) {
            Some(ours) => format!("the stack says: {ours}"),
            None => format!("the provider says: {error}"),
        },
    }
}
