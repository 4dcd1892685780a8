//! The doubles as a usual client sees them.

use std::{error::Error, io, time::Duration};

use backstop::testing::{
    Answer, BoxError, ExchangeEnd, ScriptedBody, ScriptedProvider, Step, script::openai,
};
use bytes::Bytes;
use http::{Request, Response};
use http_body_util::{BodyExt, combinators::UnsyncBoxBody};
use hyper::body::Incoming;
use hyper_util::{client::legacy::Client, rt::TokioExecutor};

type Body = UnsyncBoxBody<Bytes, BoxError>;

fn client() -> Client<hyper_util::client::legacy::connect::HttpConnector, Body> {
    Client::builder(TokioExecutor::new()).build_http()
}

fn request(provider: &ScriptedProvider, body: Body) -> Request<Body> {
    Request::post(format!("{}/v1/chat/completions", provider.url())).body(body).unwrap()
}

fn small() -> Body {
    ScriptedBody::full("{}").boxed_unsync()
}

/// Data frames up to the end or the error, and whether it was the end.
async fn read(response: Response<Incoming>) -> (Vec<Bytes>, Result<(), hyper::Error>) {
    let (mut body, mut frames) = (response.into_body(), Vec::new());
    while let Some(frame) = body.frame().await {
        match frame {
            Ok(frame) => frames.extend(frame.into_data()),
            Err(error) => return (frames, Err(error)),
        }
    }
    (frames, Ok(()))
}

#[tokio::test]
async fn a_pooled_connection_is_used_again() {
    let script = [openai::chat("m", "a"), openai::chat_stream("m", ["b"]), openai::chat("m", "c")];
    let provider = ScriptedProvider::start(script).await.unwrap();
    let client = client();
    for _ in 0..3 {
        let response = client.request(request(&provider, small())).await.unwrap();
        read(response).await.1.unwrap();
    }
    assert_eq!(provider.connections(), 1);
    assert!(provider.log().iter().all(|seen| matches!(seen.end, Some(ExchangeEnd::Answered(_)))));
}

#[tokio::test]
async fn a_stream_that_is_reset_gives_its_events_and_then_an_error() {
    let answer = openai::chat_stream("m", ["The ", "quick ", "brown "])
        .cut_after_events(4)
        .pause_between(Duration::from_millis(5))
        .reset();
    let provider = ScriptedProvider::start([answer]).await.unwrap();
    let response = client().request(request(&provider, small())).await.unwrap();
    assert_eq!(response.status(), 200);
    let (frames, end) = read(response).await;
    assert_eq!(frames.len(), 4);
    assert!(end.is_err());
}

#[tokio::test]
async fn cut_lengths_and_missing_last_chunks_are_errors() {
    for answer in [
        Answer::status(200).content_length(500).body("x".repeat(200)).close(),
        openai::chat_stream("m", ["a", "b"]).cut_after_events(3).close(),
    ] {
        let provider = ScriptedProvider::start([answer]).await.unwrap();
        let response = client().request(request(&provider, small())).await.unwrap();
        let error = read(response).await.1.unwrap_err();
        let cause = error.source().unwrap().downcast_ref::<io::Error>();
        assert_eq!(cause.unwrap().kind(), io::ErrorKind::UnexpectedEof);
    }
}

#[tokio::test]
async fn a_stream_without_its_end_can_end_well_for_http() {
    let answer = openai::chat_stream("m", ["a", "b"]).cut_after_events(3);
    let provider = ScriptedProvider::start([answer]).await.unwrap();
    let response = client().request(request(&provider, small())).await.unwrap();
    let (frames, end) = read(response).await;
    end.unwrap();
    assert!(!frames.concat().ends_with(b"[DONE]\n\n"));
}

#[tokio::test]
async fn garbage_and_early_closes_fail_the_request() {
    for answer in
        [Answer::raw("220 smtp ready\r\n"), Answer::nothing().close(), Answer::nothing().reset()]
    {
        let provider = ScriptedProvider::start([answer]).await.unwrap();
        let failed = client().request(request(&provider, small())).await.unwrap_err();
        assert!(!failed.is_connect());
    }
}

#[tokio::test]
async fn a_client_that_stops_reading_is_seen_to_go() {
    let answer =
        openai::chat_stream("m", ["a", "b", "c"]).pause_between(Duration::from_millis(5)).silence();
    let provider = ScriptedProvider::start([answer]).await.unwrap();
    let mut response = client().request(request(&provider, small())).await.unwrap();
    response.frame().await.unwrap().unwrap();
    drop(response);
    provider.wait_until_disconnected().await;
    assert!(matches!(provider.log()[0].end, Some(ExchangeEnd::PeerGone(_))));
}

#[tokio::test]
async fn an_answer_before_the_body_reaches_a_client_that_is_still_sending() {
    let script = [Answer::status(503).before_body(), Answer::status(200)];
    let provider = ScriptedProvider::start(script).await.unwrap();
    // The second half comes only after the answer.
    let half = [Step::data("one"), Step::pause(Duration::from_millis(50)), Step::data("two")];
    let client = client();
    let response =
        client.request(request(&provider, ScriptedBody::new(half).boxed_unsync())).await.unwrap();
    assert_eq!(response.status(), 503);
    assert!(!provider.log()[0].body_complete);
    read(response).await.1.unwrap();
    let response = client.request(request(&provider, small())).await.unwrap();
    assert_eq!(response.status(), 200);
}
