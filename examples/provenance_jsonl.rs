//! Calls that leave a record in a file: begun before each attempt leaves, so that it outlives the process.
//!
//! `cargo run --example provenance_jsonl --features testing`

use std::time::Duration;

use backstop::dialect::Dialect;
use backstop::provenance::jsonl::{self, JsonlLedger};
use backstop::testing::{Answer, BoxError, ScriptedProvider, script};
use backstop::{CallOptions, Chain, Outcome, Profile, RequestBody, Rung, Schedule, Stack};
use http::Request;
use http_body_util::BodyExt;
use hyper_util::client::legacy::Client;
use hyper_util::rt::TokioExecutor;
use tower::{Layer, ServiceExt};

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), BoxError> {
    let provider = ScriptedProvider::start([
        script::openai::error(503, "server_error", "server_is_overloaded"),
        script::openai::chat("model-a-2026", "the first answer"),
        Answer::nothing().silence(),
    ])
    .await?;
    let path = std::env::temp_dir().join(format!("backstop-{}.jsonl", std::process::id()));

    let ledger = JsonlLedger::open(&path)?;
    let profile = Profile::new("primary", "model-a", "openai", Dialect::OPENAI)?;
    let quick = Schedule::new(Duration::from_millis(50), Duration::from_secs(60));
    let stack = Stack::builder(Chain::new([Rung::new(profile, 3)?])?)
        .ledger(ledger.clone())
        .backoff(|backoff| backoff.schedule(quick))
        .build()?;
    let client = Client::builder(TokioExecutor::new())
        .retry_canceled_requests(false)
        .build_http::<RequestBody>();
    let llm = stack.layer(client);

    for node in ["node-1", "node-2"] {
        let mut request = Request::post(format!("{}/v1/chat/completions", provider.url()))
            .body(RequestBody::from(r#"{"model":"any","messages":[]}"#))?;
        request.extensions_mut().insert(CallOptions::new().run("nightly").node(node));
        let answer = async { llm.clone().oneshot(request).await?.into_body().collect().await };
        // The second one leaves before an answer came.
        match tokio::time::timeout(Duration::from_millis(500), answer).await {
            Ok(answer) => println!("{node}: {} bytes", answer?.to_bytes().len()),
            Err(_) => println!("{node}: left"),
        }
    }
    // Everything that is under way is written.
    ledger.close().await?;

    println!("\nthe file, line by line:");
    for line in std::fs::read_to_string(&path)?.lines() {
        println!("  {}", line.chars().take(150).collect::<String>());
    }
    println!("\njoined:");
    let told = jsonl::calls(&path)?;
    for call in &told.calls {
        let node = call.node.as_deref().unwrap_or_default();
        let producer = call.produced_by.as_ref().and_then(|own| own.reported_model.as_deref());
        println!(
            "  {node}: {:?}, {} attempts, produced by {}, body {}",
            call.outcome,
            call.attempts.len(),
            producer.unwrap_or("nobody"),
            call.request_sha256.as_deref().unwrap_or("without a digest")
        );
    }
    let outcomes: Vec<_> = told.calls.iter().map(|call| call.outcome).collect();
    assert_eq!(outcomes, [Outcome::Ok, Outcome::Cancelled]);
    assert!(told.damaged.is_empty());
    std::fs::remove_file(path)?;
    Ok(())
}
