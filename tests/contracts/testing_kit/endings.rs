//! How a connection ends in the middle of things.

use std::time::Duration;

use backstop::testing::{Answer, ExchangeEnd, ScriptedProvider};
use tokio::{io::AsyncWriteExt, time::Instant};

use super::client::Client;

async fn started(answer: Answer) -> (ScriptedProvider, Client) {
    let provider = ScriptedProvider::start([answer, Answer::status(204)]).await.unwrap();
    let client = Client::to(&provider).await;
    (provider, client)
}

#[tokio::test]
async fn a_reset_is_a_reset_after_what_was_sent() {
    let answer = Answer::sse().event("1").event("2").reset();
    let (provider, mut client) = started(answer).await;
    client.post("").await;
    client.head().await;
    assert_eq!(client.rest_then_reset().await, "9\r\ndata: 1\n\n\r\n9\r\ndata: 2\n\n\r\n");
    provider.wait_until_idle().await;
    assert!(matches!(provider.log()[0].end, Some(ExchangeEnd::Reset(_))));
}

#[tokio::test]
async fn a_reset_can_come_instead_of_an_answer() {
    let (provider, mut client) = started(Answer::nothing().reset()).await;
    client.post("{}").await;
    assert_eq!(client.rest_then_reset().await, "");
    let seen = &provider.log()[0];
    assert_eq!((seen.written, seen.first_byte), (0, None));
}

#[tokio::test]
async fn an_early_close_is_a_fin() {
    let answer = Answer::status(200).content_length(500).body("x".repeat(200)).close();
    let (provider, mut client) = started(answer).await;
    client.post("{}").await;
    assert!(client.head().await.contains("content-length: 500\r\n"));
    assert_eq!(client.rest_then_fin().await.len(), 200);
    provider.wait_until_idle().await;
    assert!(matches!(provider.log()[0].end, Some(ExchangeEnd::Closed(_))));
}

#[tokio::test]
async fn an_early_close_is_a_fin_although_more_of_the_body_has_come() {
    let (provider, mut client) = started(Answer::nothing().close().before_body()).await;
    client.post(&"x".repeat(30_000)).await;
    assert_eq!(client.rest_then_fin().await, "");
    assert_eq!(provider.requests(), 1);
}

#[tokio::test]
async fn silence_lasts_until_the_peer_goes() {
    let (provider, mut client) = started(Answer::sse().event("1").silence()).await;
    client.post("").await;
    client.head().await;
    client.until("data: 1\n\n\r\n").await;
    client.assert_silent().await;
    assert_eq!(provider.log()[0].end, None);
    assert_eq!(provider.open_connections(), 1);
    let left = Instant::now();
    drop(client);
    provider.wait_until_idle().await;
    provider.wait_until_disconnected().await;
    let Some(ExchangeEnd::PeerGone(at)) = provider.log()[0].end else {
        panic!("{:?}", provider.log());
    };
    assert!(at >= left);
}

#[tokio::test]
async fn a_peer_that_resets_during_a_pause_is_seen_to_go() {
    let (provider, mut client) =
        started(Answer::status(200).pause(Duration::from_secs(3600))).await;
    client.post("").await;
    client.head().await;
    client.stream.set_zero_linger().unwrap();
    drop(client);
    provider.wait_until_idle().await;
    assert!(matches!(provider.log()[0].end, Some(ExchangeEnd::PeerGone(_))));
}

#[tokio::test]
async fn a_half_close_ends_one_way_only() {
    let (provider, mut client) =
        started(Answer::status(200).until_close().body("x").half_close()).await;
    client.post("").await;
    client.head().await;
    assert_eq!(client.rest_then_fin().await, "x");
    for _ in 0..3 {
        // A closed socket would answer this with a reset, and the next write would fail.
        client.send("still here").await;
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    assert_eq!(provider.open_connections(), 1);
    client.stream.shutdown().await.unwrap();
    provider.wait_until_disconnected().await;
    assert!(matches!(provider.log()[0].end, Some(ExchangeEnd::Closed(_))));
}

#[tokio::test]
async fn an_answer_can_come_before_the_body_and_the_connection_goes_on() {
    let (provider, mut client) = started(Answer::status(503).before_body()).await;
    client.send("POST / HTTP/1.1\r\ncontent-length: 9\r\n\r\none").await;
    assert!(client.head().await.starts_with("HTTP/1.1 503 "));
    assert!(!provider.log()[0].body_complete);
    client.send("two").await;
    client.send("six").await;
    provider.wait_until_idle().await;
    let seen = provider.log().remove(0);
    assert!(seen.body_complete && seen.body == "onetwosix");
    assert!(matches!(seen.end, Some(ExchangeEnd::Answered(_))));
    client.post("").await;
    assert!(client.head().await.starts_with("HTTP/1.1 204 "));
    assert_eq!(provider.connections(), 1);
}

#[tokio::test]
async fn garbage_comes_instead_of_http() {
    let (_provider, mut client) = started(Answer::raw("220 smtp ready\r\n").close()).await;
    client.post("").await;
    assert_eq!(client.rest_then_fin().await, "220 smtp ready\r\n");
}

#[tokio::test]
async fn a_server_can_speak_first_and_the_next_connection_is_a_usual_one() {
    let (provider, mut client) = started(Answer::raw("220 smtp ready\r\n").on_accept()).await;
    client.until("220 smtp ready\r\n").await;
    client.post("").await;
    client.assert_silent().await;
    let mut second = Client::to(&provider).await;
    second.post("").await;
    assert!(second.head().await.starts_with("HTTP/1.1 204 "));
    assert_eq!((provider.requests(), provider.connections()), (1, 2));
}

#[tokio::test]
async fn a_connection_can_be_closed_as_soon_as_it_is_accepted() {
    let (provider, mut client) = started(Answer::accept_then_close()).await;
    assert_eq!(client.rest_then_fin().await, "");
    let mut second = Client::to(&provider).await;
    second.post("").await;
    assert!(second.head().await.starts_with("HTTP/1.1 204 "));
    assert_eq!((provider.requests(), provider.connections()), (1, 2));
}
