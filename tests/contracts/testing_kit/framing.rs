//! What the bytes of an answer look like.

use std::time::Duration;

use backstop::testing::{Answer, ScriptedProvider};
use tokio::time::Instant;

use super::client::Client;

const TICK: Duration = Duration::from_millis(5);

async fn asked(answer: Answer) -> (ScriptedProvider, Client) {
    let provider = ScriptedProvider::start([answer, Answer::status(204)]).await.unwrap();
    let mut client = Client::to(&provider).await;
    client.post("{}").await;
    (provider, client)
}

#[tokio::test]
async fn a_body_is_sent_under_its_true_length_and_the_connection_is_kept() {
    let answer = Answer::status(200).header("X-Odd", "a b").body("hel").body("lo");
    let (_provider, mut client) = asked(answer).await;
    assert_eq!(client.head().await, "HTTP/1.1 200 OK\r\nX-Odd: a b\r\ncontent-length: 5\r\n\r\n");
    assert_eq!(client.until("hello").await, "hello");
    client.assert_silent().await;
    client.post("").await;
    assert_eq!(client.head().await, "HTTP/1.1 204 No Content\r\n\r\n");
}

#[tokio::test]
async fn a_status_without_a_name_is_sent_without_one() {
    let (_provider, mut client) = asked(Answer::status(529)).await;
    assert_eq!(client.head().await, "HTTP/1.1 529 \r\ncontent-length: 0\r\n\r\n");
}

#[tokio::test]
async fn a_lying_length_is_announced_and_the_rest_never_comes() {
    let (_provider, mut client) =
        asked(Answer::status(200).content_length(500).body("short")).await;
    assert!(client.head().await.contains("content-length: 500\r\n"));
    client.until("short").await;
    client.assert_silent().await;
}

#[tokio::test]
async fn a_length_given_as_a_header_is_the_only_one() {
    let answer = Answer::status(200).header("Content-Length", "2").body("short");
    let (_provider, mut client) = asked(answer).await;
    assert_eq!(client.head().await, "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n");
}

#[tokio::test]
async fn each_write_is_one_chunk() {
    let answer = Answer::status(200).chunked().body("one").body("").body("x".repeat(20)).body("3");
    let (_provider, mut client) = asked(answer).await;
    assert_eq!(client.head().await, "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n");
    let expected = format!("3\r\none\r\n14\r\n{}\r\n1\r\n3\r\n0\r\n\r\n", "x".repeat(20));
    assert_eq!(client.until("0\r\n\r\n").await, expected);
}

#[tokio::test]
async fn the_last_chunk_can_be_missing_with_and_without_a_fin() {
    let (_provider, mut client) = asked(Answer::sse().event("1").close()).await;
    client.head().await;
    assert_eq!(client.rest_then_fin().await, "9\r\ndata: 1\n\n\r\n");

    let (_provider, mut client) = asked(Answer::sse().event("1").without_last_chunk()).await;
    client.head().await;
    client.until("9\r\ndata: 1\n\n\r\n").await;
    client.assert_silent().await;
}

#[tokio::test]
async fn a_body_can_end_with_the_connection() {
    let (_provider, mut client) = asked(Answer::status(200).until_close().body("to the end")).await;
    assert_eq!(client.head().await, "HTTP/1.1 200 OK\r\nconnection: close\r\n\r\n");
    assert_eq!(client.rest_then_fin().await, "to the end");

    let (_provider, mut client) = asked(Answer::status(200).http10().body("to the end")).await;
    assert!(client.head().await.starts_with("HTTP/1.0 200 OK\r\n"));
    assert_eq!(client.rest_then_fin().await, "to the end");
}

#[tokio::test]
async fn a_connection_can_be_closed_after_a_whole_answer() {
    let (provider, mut client) = asked(Answer::status(200).connection_close().json("{}")).await;
    assert!(client.head().await.contains("connection: close\r\n"));
    assert_eq!(client.rest_then_fin().await, "{}");
    provider.wait_until_disconnected().await;
}

#[tokio::test]
async fn events_have_names_lines_and_comments() {
    let answer = Answer::sse().comment("keep-alive").named_event("ping", "{}").event("two\nlines");
    let (_provider, mut client) = asked(answer.until_close()).await;
    assert!(client.head().await.contains("content-type: text/event-stream\r\n"));
    let expected = ": keep-alive\n\nevent: ping\ndata: {}\n\ndata: two\ndata: lines\n\n";
    assert_eq!(client.rest_then_fin().await, expected);
}

#[tokio::test]
async fn a_cut_stream_ends_as_http_should_and_pauses_lie_between_events() {
    let answer = Answer::sse().event("1").comment("x").event("2").event("3").until_close();
    let start = Instant::now();
    let (_provider, mut client) = asked(answer.cut_after_events(2).pause_between(TICK * 4)).await;
    client.head().await;
    assert_eq!(client.rest_then_fin().await, "data: 1\n\n: x\n\ndata: 2\n\n");
    assert!(start.elapsed() >= TICK * 4);

    let (_provider, mut client) = asked(Answer::sse().event("1").cut_after_events(0)).await;
    client.head().await;
    assert_eq!(client.until("\r\n\r\n").await, "0\r\n\r\n");
}

#[tokio::test]
async fn heads_and_bodies_can_trickle() {
    let answer = Answer::status(200).trickle("0123456789", TICK);
    let (_provider, mut client) = asked(answer).await;
    client.head().await;
    let start = Instant::now();
    assert_eq!(client.until("9").await, "0123456789");
    // The first byte may have come with the head.
    assert!(start.elapsed() >= TICK * 8);

    let (_provider, mut client) = asked(Answer::status(200).trickle_head(TICK).body("x")).await;
    let start = Instant::now();
    let head = client.head().await;
    assert_eq!(head, "HTTP/1.1 200 OK\r\ncontent-length: 1\r\n\r\n");
    assert!(start.elapsed() >= TICK * u32::try_from(head.len() - 2).unwrap());
    client.until("x").await;
}

#[tokio::test]
async fn an_answer_can_wait_before_its_first_byte() {
    let start = Instant::now();
    let (provider, mut client) = asked(Answer::status(200).after(TICK * 4)).await;
    client.head().await;
    assert!(start.elapsed() >= TICK * 4);
    let seen = &provider.log()[0];
    assert!(seen.first_byte.unwrap() - seen.arrived >= TICK * 4);
}

#[tokio::test]
async fn a_client_that_waits_for_a_100_gets_it_before_it_sends_its_body() {
    let answer = Answer::status(200).interim(103);
    let provider = ScriptedProvider::start([answer]).await.unwrap();
    let mut client = Client::to(&provider).await;
    client.send("POST / HTTP/1.1\r\nexpect: 100-continue\r\ncontent-length: 4\r\n\r\n").await;
    assert_eq!(client.head().await, "HTTP/1.1 100 Continue\r\n\r\n");
    client.assert_silent().await;
    client.send("body").await;
    assert_eq!(client.head().await, "HTTP/1.1 103 Early Hints\r\n\r\n");
    assert!(client.head().await.starts_with("HTTP/1.1 200 OK\r\n"));
    assert_eq!(provider.log()[0].body, "body");
}

#[tokio::test]
async fn a_client_that_wants_no_more_is_closed_on() {
    for request in ["GET / HTTP/1.1\r\nconnection: Close\r\n\r\n", "GET / HTTP/1.0\r\n\r\n"] {
        let provider = ScriptedProvider::start([Answer::status(200).body("x")]).await.unwrap();
        let mut client = Client::to(&provider).await;
        client.send(request).await;
        client.head().await;
        assert_eq!(client.rest_then_fin().await, "x");
    }
}
