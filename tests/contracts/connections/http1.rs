//! Real sockets, HTTP/1.1.

use backstop::testing::script::openai;
use backstop::testing::{Answer, ScriptedProvider};
use backstop::{CallOptions, ClassifyLayer, Hold};
use tower::{Layer, ServiceBuilder, ServiceExt};

use super::{ask, client, quick_backoff};
use crate::support::{millis, read, secs};

/// One call through both layers; the connection of each attempt, by its number.
async fn connections_of(hold: Hold, script: Vec<Answer>) -> Vec<usize> {
    let attempts = script.len();
    let provider = ScriptedProvider::start(script).await.unwrap();
    let stack = ServiceBuilder::new()
        .layer(quick_backoff().build().unwrap())
        .layer(ClassifyLayer::new())
        .service(client(false));
    let mut request = ask(&provider.url());
    request.extensions_mut().insert(CallOptions::new().hold(hold));
    let response = stack.oneshot(request).await.unwrap();
    assert_eq!(response.status(), 200);
    assert!(read(response.into_body()).await.end.is_ok());
    let log = provider.log();
    assert_eq!((log.len(), provider.exhausted()), (attempts, 0));
    log.iter().map(|seen| seen.connection).collect()
}

fn good() -> Answer {
    openai::chat_stream("m", ["a", "b"])
}

#[tokio::test]
async fn all_attempts_of_a_call_share_a_connection_where_the_failed_answers_were_complete() {
    for hold in [Hold::FirstContent, Hold::Complete] {
        let script = vec![
            openai::error(503, "server_error", None),
            openai::error(500, "server_error", None).chunked(),
            // A stream that fails by its own words, or lacks its end, and is complete for HTTP.
            openai::error_first("server_error", None),
            openai::chat_stream("m", ["a"]).cut_after_events(1),
            Answer::status(200).json(openai::error_body("server_error", None)),
            Answer::status(200).json(""),
            good(),
        ];
        assert_eq!(connections_of(hold, script).await, [0; 7], "{hold:?}");
    }
}

#[tokio::test]
async fn streams_that_failed_after_content_share_it_too_where_they_were_held() {
    let script = vec![
        openai::error_mid_stream("m", ["a", "b"], "server_error", None),
        openai::chat_stream("m", ["a", "b"]).cut_after_events(3),
        good(),
    ];
    assert_eq!(connections_of(Hold::Complete, script).await, [0; 3]);
}

#[tokio::test]
async fn the_backoff_alone_drains_small_answers_for_the_same() {
    let script = [
        openai::error(503, "server_error", None),
        openai::error(500, "server_error", None).chunked(),
        // Not all of it is there at once.
        Answer::status(500).chunked().body("x").pause(millis(20)).body("y"),
        good(),
    ];
    let provider = ScriptedProvider::start(script).await.unwrap();
    let stack = quick_backoff().build().unwrap().layer(client(false));
    let response = stack.oneshot(ask(&provider.url())).await.unwrap();
    assert_eq!(response.status(), 200);
    assert!(read(response.into_body()).await.end.is_ok());
    assert_eq!((provider.requests(), provider.connections()), (4, 1));
}

#[tokio::test]
async fn many_calls_one_after_the_other_share_a_connection() {
    let script: Vec<_> =
        (0..5).flat_map(|_| [openai::error(503, "server_error", None), good()]).collect();
    let provider = ScriptedProvider::start(script).await.unwrap();
    let stack = ServiceBuilder::new()
        .layer(quick_backoff().build().unwrap())
        .layer(ClassifyLayer::new())
        .service(client(false));
    for _ in 0..5 {
        let response = stack.clone().oneshot(ask(&provider.url())).await.unwrap();
        assert!(read(response.into_body()).await.end.is_ok());
    }
    assert_eq!((provider.requests(), provider.connections()), (10, 1));
}

#[tokio::test]
async fn an_answer_too_large_to_drain_costs_its_connection_and_nothing_else() {
    let large = "x".repeat(300 * 1024);
    let script = [Answer::status(500).body(large), good()];
    let provider = ScriptedProvider::start(script).await.unwrap();
    let stack = quick_backoff().build().unwrap().layer(client(false));
    let response = stack.oneshot(ask(&provider.url())).await.unwrap();
    assert_eq!(response.status(), 200);
    assert!(read(response.into_body()).await.end.is_ok());
    assert_eq!((provider.requests(), provider.connections()), (2, 2));
}

#[tokio::test]
async fn an_answer_that_stalls_costs_its_connection_and_nothing_else() {
    let script = [Answer::status(500).content_length(100).body("x").silence(), good()];
    let provider = ScriptedProvider::start(script).await.unwrap();
    let stack = quick_backoff().build().unwrap().layer(client(false));
    let response = stack.oneshot(ask(&provider.url())).await.unwrap();
    assert_eq!(response.status(), 200);
    assert!(read(response.into_body()).await.end.is_ok());
    let log = provider.log();
    assert_eq!(provider.connections(), 2);
    let between = log[1].arrived - log[0].arrived;
    assert!(between >= millis(60), "{between:?}");
    assert!(between < secs(10), "the stall, which has no end, delays nothing: {between:?}");
}

#[tokio::test]
async fn a_connection_that_broke_is_replaced() {
    let script = vec![
        Answer::nothing().reset(),
        openai::chat_stream("m", ["a", "b"]).cut_after_events(1).reset(),
        Answer::status(500).content_length(100).body("x").close(),
        good(),
    ];
    assert_eq!(connections_of(Hold::Complete, script).await, [0, 1, 2, 3]);
}
