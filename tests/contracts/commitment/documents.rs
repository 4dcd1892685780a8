//! Answers that are no streams: held until they are whole, whatever holds of streams.

use std::io::ErrorKind;

use backstop::testing::script::{anthropic, gemini, openai};
use backstop::testing::{Answer, Outcome, ScriptedBody, ScriptedService, Step};
use backstop::{ClassifyLayer, Hold};
use bytes::Bytes;
use http_body_util::BodyExt;
use tower::{ServiceBuilder, ServiceExt};

use super::wires::{HOLDS, IDLE};
use crate::support::{exact_backoff, millis, post, read};

/// A good document of every endpoint that has answers.
pub(super) fn documents(mark: &str) -> [(&'static str, Answer); 6] {
    [
        ("/v1/chat/completions", openai::chat(mark, "grüße 🙂")),
        ("/v1/responses", openai::responses(mark, "grüße 🙂")),
        ("/v1/embeddings", openai::embeddings(mark)),
        ("/v1/messages", anthropic::message(mark, "grüße 🙂")),
        ("/v1/messages/count_tokens", anthropic::count_tokens(12)),
        ("/v1beta/models/m:generateContent", gemini::content(mark, "grüße 🙂")),
    ]
}

/// The body of an answer.
pub(super) async fn bytes_of(answer: Answer) -> Bytes {
    let service = ScriptedService::new([Outcome::from(answer)]);
    let body = service.oneshot(post("/")).await.unwrap().into_body();
    body.collect().await.unwrap().to_bytes()
}

fn json(body: ScriptedBody) -> Outcome {
    Outcome::status(200).json(body)
}

/// The three ways in which a document of `length` bytes stays without its end.
fn cut_ways(part: &Bytes, length: usize) -> [(&'static str, Outcome); 3] {
    let announced = |last: Step| {
        let body = ScriptedBody::new([Step::data(part.clone()), last]);
        json(body.content_length(length as u64)).header("content-length", &length.to_string())
    };
    [
        ("clean end", json(ScriptedBody::new([Step::data(part.clone())]).unknown_size())),
        ("early close", announced(Step::io_error(ErrorKind::UnexpectedEof))),
        ("silence", announced(Step::forever())),
    ]
}

/// Backoff over Classify as they are: attempts, bytes, time.
async fn call(path: &str, script: [Outcome; 2]) -> (usize, Bytes, std::time::Duration) {
    let provider = ScriptedService::new(script);
    let stack = ServiceBuilder::new()
        .layer(exact_backoff().build().unwrap())
        .layer(ClassifyLayer::new())
        .service(provider.clone());
    let start = tokio::time::Instant::now();
    let response = stack.oneshot(post(path)).await.unwrap();
    assert_eq!(response.status(), 200);
    let body = response.into_body().collect().await.unwrap().to_bytes();
    (provider.calls(), body, start.elapsed())
}

#[tokio::test(start_paused = true)]
async fn a_document_cut_at_any_byte_in_any_way_is_retried_and_never_seen() {
    let second = documents("second");
    for ((path, first), (_, second)) in documents("first").into_iter().zip(second) {
        let (first, second) = (bytes_of(first).await, bytes_of(second).await);
        for cut in 0..first.len() {
            for (way, cut_answer) in cut_ways(&first.slice(..cut), first.len()) {
                let good = json(ScriptedBody::full(second.clone()));
                let (attempts, body, elapsed) = call(path, [cut_answer, good]).await;
                assert_eq!((attempts, &body), (2, &second), "{path} cut at {cut}, {way}");
                let own = if way == "silence" { IDLE } else { millis(0) };
                assert_eq!(elapsed, own + millis(500), "{path} cut at {cut}, {way}");
            }
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_good_document_is_handed_on_byte_for_byte_in_every_mode() {
    for (path, answer) in documents("only") {
        let document = bytes_of(answer).await;
        let thirds = document.chunks(document.len().div_ceil(3)).map(Bytes::copy_from_slice);
        let thirds: Vec<_> = thirds.map(Step::data).collect();
        for hold in HOLDS {
            for body in [
                ScriptedBody::new(thirds.clone()),
                ScriptedBody::new(thirds.clone()).unknown_size(),
            ] {
                let provider = ScriptedService::new([json(body)]);
                let layer = ClassifyLayer::builder().hold(hold).build().unwrap();
                let stack = ServiceBuilder::new().layer(layer).service(provider);
                let response = stack.oneshot(post(path)).await.unwrap();
                assert_eq!(response.headers()["content-type"], "application/json");
                assert_eq!(response.headers().len(), 1, "{:?}", response.headers());
                let body = read(response.into_body()).await;
                assert_eq!(body.bytes, document, "{path} {hold:?}");
                assert!(body.end.is_ok(), "{path} {hold:?}");
            }
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_document_handed_on_at_its_head_ends_abnormally_where_its_connection_does() {
    for (path, answer) in documents("only") {
        let document = bytes_of(answer).await;
        for cut in [0, 1, document.len() / 2, document.len() - 1] {
            for (way, answer) in
                cut_ways(&document.slice(..cut), document.len()).into_iter().skip(1)
            {
                let provider = ScriptedService::new([answer]);
                let layer = ClassifyLayer::builder().hold(Hold::Headers).build().unwrap();
                let stack = ServiceBuilder::new().layer(layer).service(provider);
                let body = read(stack.oneshot(post(path)).await.unwrap().into_body()).await;
                assert_eq!(body.bytes, document[..cut], "{path} cut at {cut}, {way}");
                assert!(body.end.is_err(), "{path} cut at {cut}, {way}");
            }
        }
    }
}
