//! The main job, on real sockets: a provider that fails in every way that providers do, and a client that
//! gets its answers all the same. No keys, no network.
//!
//! `cargo run --example quickstart --features testing`

use std::time::Duration;

use backstop::testing::{Answer, BoxError, ScriptedProvider, script};
use backstop::{
    AttemptCell, BackoffLayer, ClassifyLayer, Error, Hold, RequestBody, Schedule, Verdict,
};
use bytes::Bytes;
use http::{Request, Response};
use http_body_util::{BodyExt, Full};
use hyper_util::client::legacy::Client;
use hyper_util::rt::TokioExecutor;
use tokio::time::Instant;
use tower::{ServiceBuilder, ServiceExt};

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), BoxError> {
    let provider = ScriptedProvider::start(weather()).await?;
    // Any HTTP client that is a tower service; here hyper's. One attempt is to be one request.
    let client = Client::builder(TokioExecutor::new())
        .retry_canceled_requests(false)
        .build_http::<RequestBody>();

    let stack = ServiceBuilder::new()
        // Repeats what failed and may succeed next time. (Shorter waits than the default half second,
        // since nobody wants to wait for an example.)
        .layer(
            BackoffLayer::builder()
                .schedule(Schedule::new(Duration::from_millis(100), Duration::from_secs(60)))
                .build()?,
        )
        // Your own layers can stand anywhere; this one tells what it sees go by.
        .map_result(tell)
        // Says what each answer means, also where the failure hides inside a 200 or a stream.
        .layer(ClassifyLayer::builder().hold(Hold::Complete).build()?)
        .service(client);

    let mut good = 0;
    for (what, path, body) in CALLS {
        println!("\n{what}");
        let start = Instant::now();
        let request = Request::post(format!("{}{path}", provider.url()))
            .header("content-type", "application/json")
            .body(Full::new(Bytes::from_static(body.as_bytes())))?;
        let response = stack.clone().oneshot(request).await?;
        let (status, cell) = (response.status(), AttemptCell::of(&response).cloned());
        let text = response.into_body().collect().await?.to_bytes();
        let last = cell.as_ref().and_then(AttemptCell::last_verdict);
        good += usize::from(last.is_some_and(|verdict| !verdict.class().is_failure()));
        println!(
            "  the caller got: {}, {} bytes, from {}, after {:.1} s",
            status.as_u16(),
            text.len(),
            last.and_then(Verdict::model).unwrap_or("nobody"),
            start.elapsed().as_secs_f64()
        );
    }
    println!(
        "\n{} calls, {good} good answers; the provider saw {} requests on {} connections",
        CALLS.len(),
        provider.requests(),
        provider.connections()
    );
    Ok(())
}

/// Prints one attempt.
fn tell<B>(result: Result<Response<B>, Error>) -> Result<Response<B>, Error> {
    let verdict = match &result {
        Ok(response) => Verdict::of(response),
        Err(error) => error.verdict(),
    };
    let Some(verdict) = verdict else { return result };
    let status = verdict
        .status()
        .map_or_else(|| "no answer".to_owned(), |status| status.as_u16().to_string());
    print!("  attempt: {status}: {}", verdict.class());
    if let Some(code) = verdict.code() {
        print!(", {code}");
    }
    if let Some(end) = verdict.stream_end() {
        print!(", stream {}", end.as_str());
    }
    if let Some(hint) = verdict.hint() {
        print!(", come back in {:?} (by {})", hint.wait(), hint.source().as_str());
    }
    println!();
    result
}

const CALLS: [(&str, &str, &str); 5] = [
    ("A rate limit that says when to come back", "/v1/chat/completions", CHAT),
    ("An overloaded provider", "/v1/messages", MESSAGES),
    ("An error as the first event of a 200 stream", "/v1/messages", MESSAGES),
    ("A connection that is reset before the answer", "/v1/chat/completions", CHAT),
    ("A stream that breaks off in the middle", "/v1/chat/completions", CHAT),
];
const CHAT: &str =
    r#"{"model":"model-a","stream":true,"messages":[{"role":"user","content":"hi"}]}"#;
const MESSAGES: &str =
    r#"{"model":"model-b","max_tokens":64,"messages":[{"role":"user","content":"hi"}]}"#;

fn weather() -> Vec<Answer> {
    let words = ["All ", "is ", "well."];
    vec![
        script::openai::error(429, "requests", "rate_limit_exceeded").header("retry-after", "1"),
        script::openai::chat("model-a", "All is well."),
        script::anthropic::error(529, "overloaded_error"),
        script::anthropic::message("model-b", "All is well."),
        script::anthropic::error_first("overloaded_error"),
        script::anthropic::message_stream("model-b", words),
        Answer::nothing().reset(),
        script::openai::chat("model-a", "All is well."),
        script::openai::chat_stream("model-a", words).cut_after_events(3),
        script::openai::chat_stream("model-a", words),
    ]
}
