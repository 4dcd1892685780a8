//! Where a key may not be seen: B029. (B027 and B028 stand with the router's own tests.)

use std::fmt::Write as _;
use std::io;
use std::sync::Arc;

use backstop::dialect::Dialect;
use backstop::provenance::jsonl::{self, JsonlLedger};
use backstop::testing::{Answer, ScriptedProvider, script, unused_addr};
use backstop::{Chain, Profile, Rung, Stack};
use tower::{Layer, ServiceExt};
use tracing::instrument::WithSubscriber;

use crate::rig::{client, post, receive};

const SECRETS: [&str; 4] = [
    "KEY-A-0123456789abcdef",
    "KEY-B-0123456789abcdef",
    "KEY-C-0123456789abcdef",
    "S0VZLUEtMDEyMzQ1Njc4OWFiY2RlZg",
];

/// Everything that is logged, at every level.
#[derive(Clone, Default)]
#[expect(clippy::disallowed_types, reason = "a test's log, on no call's path")]
struct Log(Arc<std::sync::Mutex<Vec<u8>>>);

impl io::Write for Log {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap().write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

fn assert_clean(text: &str, what: &str) {
    for secret in SECRETS {
        assert!(!text.contains(secret), "{secret} in {what}:\n{text}");
    }
}

#[tokio::test]
async fn b029_no_log_record_error_or_debug_output_holds_a_key() {
    let echo = r#"{"error":{"message":"no such key: KEY-A-0123456789abcdef","type":"invalid_request_error","code":"invalid_api_key"}}"#;
    let provider = ScriptedProvider::start([
        script::openai::chat("m-2026", "fine"),
        Answer::status(401).json(echo),
        Answer::status(503).json(echo),
    ])
    .await
    .unwrap();
    let dead = unused_addr().unwrap();
    let profile = |id: &str, url: String, key: &str| {
        let profile = Profile::new(id, "m", id, Dialect::OPENAI).unwrap();
        profile.with_endpoint(url.parse().unwrap()).unwrap().with_api_key(key).unwrap()
    };
    let chain = Chain::new([
        Rung::new(profile("a", provider.url(), SECRETS[0]), 1).unwrap(),
        Rung::new(profile("b", dead.url(), SECRETS[1]), 1).unwrap(),
    ])
    .unwrap();
    let directory = std::path::Path::new(env!("CARGO_TARGET_TMPDIR")).join("b029");
    let _ = std::fs::remove_dir_all(&directory);
    std::fs::create_dir_all(&directory).unwrap();
    let path = directory.join("calls.jsonl");
    let ledger = JsonlLedger::open(&path).unwrap();
    let stack =
        Stack::builder(chain.clone()).ledger(ledger.clone()).answer_headers(true).build().unwrap();
    let log = Log::default();
    let writer = log.clone();
    let subscriber = tracing_subscriber::fmt()
        .with_max_level(tracing::Level::TRACE)
        .with_span_events(tracing_subscriber::fmt::format::FmtSpan::FULL)
        .with_writer(move || writer.clone())
        .finish();
    let mut seen = String::new();
    let service = stack.clone().layer(client());
    async {
        for _ in 0..3 {
            // The caller's own key, in the query.
            let url = format!("{}/v1/chat/completions?key={}", provider.url(), SECRETS[2]);
            match service.clone().oneshot(post(url, r#"{"model":"x"}"#)).await {
                Ok(response) => {
                    write!(seen, "{response:?}").unwrap();
                    let answer = receive(response).await;
                    write!(seen, "{:?} {:?} {:?}", answer.headers, answer.error, answer.cell)
                        .unwrap();
                }
                Err(error) => {
                    let mut error: Option<&dyn std::error::Error> = Some(&error);
                    while let Some(one) = error {
                        write!(seen, "{one} {one:?} {one:#?}").unwrap();
                        error = one.source();
                    }
                }
            }
        }
    }
    .with_subscriber(subscriber)
    .await;
    ledger.close().await.unwrap();
    write!(seen, "{chain:?} {:?} {stack:?} {service:?}", chain.rungs()).unwrap();
    assert_eq!(provider.requests(), 3);
    assert_clean(&seen, "what is printed");
    let logged = String::from_utf8_lossy(&log.0.lock().unwrap()).into_owned();
    assert!(logged.contains("llm call") && logged.contains("backstop::attempt"), "{logged}");
    assert_clean(&logged, "the log");
    let file = std::fs::read_to_string(&path).unwrap();
    assert_clean(&file, "the record");
    assert_eq!(jsonl::calls(&path).unwrap().calls.len(), 3);
    assert!(file.contains("invalid_api_key"), "the code is told, the key is not");
}
