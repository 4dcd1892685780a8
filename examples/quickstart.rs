//! The main job, on real sockets: a provider that fails in every way that providers do, and a client that
//! gets its answers all the same. No keys, no network.
//!
//! `cargo run --example quickstart --features testing`

use std::time::Duration;

use backstop::dialect::Dialect;
use backstop::provenance::{CallRecord, MemoryLedger};
use backstop::testing::{Answer, BoxError, ScriptedProvider, script};
use backstop::{
    CallOptions, Chain, Hold, Outcome, Profile, Provenance, RequestBody, Rung, Schedule, Stack,
};
use bytes::Bytes;
use http::Request;
use http_body_util::{BodyExt, Full};
use hyper_util::client::legacy::Client;
use hyper_util::rt::TokioExecutor;
use tokio::time::Instant;
use tower::{Layer, ServiceExt};

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), BoxError> {
    let provider = ScriptedProvider::start(weather()).await?;
    // Any HTTP client that is a tower service; here hyper's. One attempt is to be one request.
    let client = Client::builder(TokioExecutor::new())
        .retry_canceled_requests(false)
        .build_http::<RequestBody>();

    // Three attempts on a primary, then one on a fallback. Nothing else is ever asked.
    let chain = |dialect, primary, fallback| {
        Chain::new([
            Rung::new(Profile::new("primary", primary, "one", dialect)?, 3)?,
            Rung::new(Profile::new("fallback", fallback, "two", dialect)?, 1)?,
        ])
    };
    let chat = chain(Dialect::OPENAI, "model-a", "model-c")?;
    let messages = chain(Dialect::ANTHROPIC, "model-b", "model-d")?;

    let ledger = MemoryLedger::new();
    // Shorter waits than the default half second, since nobody wants to wait for an example.
    let quick = Schedule::new(Duration::from_millis(100), Duration::from_secs(60));
    let stack = Stack::builder(chat.clone())
        .ledger(ledger.clone())
        .hold(Hold::Complete)
        .backoff(|backoff| backoff.schedule(quick))
        .build()?
        .layer(client);

    let mut good = 0;
    for (what, path, body) in CALLS {
        println!("\n{what}");
        let start = Instant::now();
        let chain = if path == "/v1/messages" { &messages } else { &chat };
        let mut request = Request::post(format!("{}{path}", provider.url()))
            .header("content-type", "application/json")
            .body(Full::new(Bytes::from_static(body.as_bytes())))?;
        request.extensions_mut().insert(CallOptions::new().chain(chain.clone()).node(what));
        let response = stack.clone().oneshot(request).await?;
        let status = response.status();
        let who = Provenance::of(&response).ok_or("nobody knows who answered")?.clone();
        let text = response.into_body().collect().await?.to_bytes();
        good += usize::from(who.outcome() == Some(Outcome::Ok));
        if let Some(record) = ledger.calls().iter().find(|call| call.node.as_deref() == Some(what))
        {
            tell(record);
        }
        println!(
            "  the caller got: {}, {} bytes, from {} ({}), after {:.1} s",
            status.as_u16(),
            text.len(),
            who.reported_model().unwrap_or("nobody"),
            if who.fallback_used() { "the fallback" } else { "the primary" },
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

/// Prints what the record knows of each attempt.
fn tell(record: &CallRecord) {
    for attempt in &record.attempts {
        print!("  attempt {}", attempt.attempt);
        if let (Some(wait), Some(reason)) = (attempt.wait_ms, &attempt.wait_reason) {
            print!(", after {wait} ms ({reason})");
        }
        print!(", {}: ", attempt.model.as_deref().unwrap_or("?"));
        match attempt.status {
            Some(status) => print!("{status}: {}", attempt.class),
            None => print!("no answer: {}", attempt.class),
        }
        if let Some(code) = &attempt.code {
            print!(", {code}");
        }
        if let Some(end) = &attempt.stream_end {
            print!(", stream {end}");
        }
        println!();
    }
}

const CALLS: [(&str, &str, &str); 6] = [
    ("A rate limit that says when to come back", "/v1/chat/completions", CHAT),
    ("An overloaded provider", "/v1/messages", MESSAGES),
    ("An error as the first event of a 200 stream", "/v1/messages", MESSAGES),
    ("A connection that is reset before the answer", "/v1/chat/completions", CHAT),
    ("A stream that breaks off in the middle", "/v1/chat/completions", CHAT),
    ("An account that is empty, which no wait mends", "/v1/chat/completions", CHAT),
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
        script::openai::error(429, "insufficient_quota", "insufficient_quota"),
        script::openai::chat("model-c", "All is well."),
    ]
}
