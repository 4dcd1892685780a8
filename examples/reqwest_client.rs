//! Code written for reqwest, through a stack: one line is another.
//!
//! `cargo run --example reqwest_client --features reqwest,testing`

use std::time::Duration;

use backstop::client::reqwest::{Client, ReqwestClient, client_builder};
use backstop::testing::{Answer, BoxError, ScriptedProvider, script::openai};
use backstop::{BackoffLayer, CallOptions, ClassifyLayer, Schedule};
use tower::ServiceBuilder;

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), BoxError> {
    let provider = ScriptedProvider::start([
        // The first call meets a full provider and a connection that breaks.
        openai::error(429, "rate_limit_error", "rate_limit_exceeded"),
        Answer::nothing().reset(),
        openai::chat("model-a", "the first answer"),
        // The second is a stream, of which the first attempt fails in its own words.
        openai::error_first("server_error", None),
        openai::chat_stream("model-a", ["the second ", "answer"]),
        // The third is not to be repeated.
        openai::error(503, "server_error", None),
    ])
    .await?;

    // Neither redirects nor retries of its own. In your program TLS is that of your own reqwest.
    let http = client_builder().build()?;
    let backoff = BackoffLayer::builder()
        .schedule(Schedule::new(Duration::from_millis(20), Duration::from_secs(1)))
        .build()?;
    let stack = ServiceBuilder::new()
        .layer(backoff)
        .layer(ClassifyLayer::new())
        .service(ReqwestClient::new(http.clone()));
    let client = Client::new(stack);

    let once = CallOptions::new().max_retries(0);
    let calls = [
        ("plain", CallOptions::new(), 200, 3),
        ("streamed", CallOptions::new(), 200, 2),
        ("once only", once, 503, 1),
    ];
    let mut right = true;
    for (name, options, status, attempts) in calls {
        let before = provider.requests();
        let request = http
            .post(format!("{}/v1/chat/completions", provider.url()))
            .header("content-type", "application/json")
            .bearer_auth("no-key-needed-here")
            .body(r#"{"model":"model-a","messages":[]}"#)
            .build()?;
        // It was `http.execute(request)`. Without options of its own a call is `client.execute(request)`.
        let response = client.execute_with(request, options).await?;
        let seen = (response.status().as_u16(), provider.requests() - before);
        println!("{name}: {} after {} attempts", seen.0, seen.1);
        println!("  {}", response.text().await?.replace("\n\n", "\n  ").trim_end());
        right &= seen == (status, attempts);
    }
    if !right {
        return Err("something happened that was not in the script".into());
    }
    Ok(())
}
