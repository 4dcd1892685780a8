//! What the provider writes down.

use std::time::Duration;

use backstop::testing::{Answer, ExchangeEnd, ScriptedProvider};
use bytes::Bytes;

use super::client::Client;

#[tokio::test]
async fn a_request_is_logged_as_it_was_sent() {
    let provider = ScriptedProvider::start([Answer::status(200).body("12345")]).await.unwrap();
    let mut client = Client::to(&provider).await;
    client
        .send(b"POST /v1/m?beta=true&x HTTP/1.1\r\nHOST: a\r\nX-b:  two words \r\nx-B: \xff\r\nContent-Length: 2\r\n\r\n{}")
        .await;
    client.until("12345").await;
    provider.wait_until_idle().await;
    let seen = provider.log().remove(0);
    assert_eq!((seen.method.as_str(), seen.target.as_str()), ("POST", "/v1/m?beta=true&x"));
    assert_eq!(seen.path(), "/v1/m");
    let names = seen.headers.iter().map(|(name, _)| name.as_str()).collect::<Vec<_>>();
    assert_eq!(names, ["HOST", "X-b", "x-B", "Content-Length"]);
    assert_eq!(seen.headers[1].1, "two words");
    assert_eq!((seen.header("x-b"), seen.header("x-c")), (Some("two words"), None));
    assert_eq!((seen.body, seen.body_len, seen.body_complete), (Bytes::from("{}"), 2, true));
    let head = "HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\n";
    assert_eq!(seen.written, head.len() as u64 + 5);
    let Some(ExchangeEnd::Answered(end)) = seen.end else { panic!("{:?}", seen.end) };
    assert!(seen.arrived <= seen.first_byte.unwrap() && seen.first_byte.unwrap() <= end);
}

#[tokio::test]
async fn a_chunked_request_body_is_logged_without_its_framing() {
    let provider =
        ScriptedProvider::start([Answer::status(200), Answer::status(200)]).await.unwrap();
    let mut client = Client::to(&provider).await;
    client.send("POST / HTTP/1.1\r\ntransfer-encoding: chunked\r\n\r\n5;x=y\r\nwh").await;
    tokio::time::sleep(Duration::from_millis(10)).await;
    client.send("at \r\n3\r\nnow\r\n0\r\ntrailer: t\r\n\r\n").await;
    client.head().await;
    client.post("next").await;
    client.head().await;
    let log = provider.log();
    assert_eq!((&log[0].body[..], &log[1].body[..]), (&b"what now"[..], &b"next"[..]));
}

#[tokio::test]
async fn a_body_that_breaks_off_is_logged_as_far_as_it_came() {
    let provider = ScriptedProvider::start([Answer::status(200)]).await.unwrap();
    let mut client = Client::to(&provider).await;
    client.send("POST / HTTP/1.1\r\ncontent-length: 100\r\n\r\nonly this").await;
    provider.wait_for_requests(1).await;
    drop(client);
    provider.wait_until_idle().await;
    let seen = provider.log().remove(0);
    assert_eq!((&seen.body[..], seen.body_complete), (&b"only this"[..], false));
    assert!(matches!(seen.end, Some(ExchangeEnd::PeerGone(_))));
    assert_eq!(seen.first_byte, None);
}

#[tokio::test]
async fn a_body_over_the_limit_is_counted_and_cut() {
    let provider = ScriptedProvider::builder()
        .script([Answer::status(200), Answer::status(200)])
        .max_body(8)
        .start();
    let provider = provider.await.unwrap();
    let mut client = Client::to(&provider).await;
    for body in ["12345678", "123456789"] {
        client.post(body).await;
        client.head().await;
    }
    let log = provider.log();
    assert_eq!((&log[0].body[..], log[0].body_len), (&b"12345678"[..], 8));
    assert_eq!((&log[1].body[..], log[1].body_len), (&b"12345678"[..], 9));
    assert!(log[1].body_complete);
}

#[tokio::test]
async fn a_function_sees_the_whole_request() {
    let provider = ScriptedProvider::builder()
        .on_request(|seen| {
            assert!(seen.body_complete && seen.end.is_none());
            Answer::status(200).body(seen.body.clone())
        })
        .start()
        .await
        .unwrap();
    let mut client = Client::to(&provider).await;
    client.post("echo").await;
    client.until("echo").await;
}

#[tokio::test]
async fn one_can_wait_for_the_nth_request() {
    let script = backstop::testing::Script::new([Answer::status(200)]).repeat_last();
    let provider = ScriptedProvider::start(script).await.unwrap();
    let mut client = Client::to(&provider).await;
    let asking = async {
        for _ in 0..3 {
            client.post("").await;
            client.head().await;
        }
    };
    let waiting = async {
        provider.wait_for_requests(3).await;
        assert_eq!(provider.requests(), 3);
    };
    tokio::join!(waiting, asking);
    // A fourth does not come.
    let fourth =
        tokio::time::timeout(Duration::from_millis(20), provider.wait_for_requests(4)).await;
    assert!(fourth.is_err());
}
