//! Which answer a request gets, and on which connection.

use std::{io, time::Duration};

use backstop::testing::{Answer, Script, ScriptedProvider, unused_addr};
use tokio::{net::TcpStream, task::JoinSet, time::Instant};

use super::client::Client;

const IDLE: Duration = Duration::from_millis(50);

#[tokio::test]
async fn answers_come_in_the_order_of_the_script_over_all_connections() {
    let script = [Answer::status(200), Answer::status(429), Answer::status(503)];
    let provider = ScriptedProvider::start(script).await.unwrap();
    let (mut one, mut two) = (Client::to(&provider).await, Client::to(&provider).await);
    one.post("a").await;
    assert_eq!(one.head().await, "HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n");
    two.post("b").await;
    assert_eq!(two.head().await, "HTTP/1.1 429 Too Many Requests\r\ncontent-length: 0\r\n\r\n");
    one.post("c").await;
    assert_eq!(one.head().await, "HTTP/1.1 503 Service Unavailable\r\ncontent-length: 0\r\n\r\n");
    let log = provider.log();
    assert_eq!(log.iter().map(|seen| seen.index).collect::<Vec<_>>(), [0, 1, 2]);
    assert_eq!(log[0].connection, log[2].connection);
    assert_ne!(log[0].connection, log[1].connection);
    assert_eq!((provider.connections(), provider.open_connections()), (2, 2));
}

#[tokio::test]
async fn a_request_past_the_end_of_the_script_gets_a_500_that_says_so() {
    let provider = ScriptedProvider::start([Answer::status(200)]).await.unwrap();
    let mut client = Client::to(&provider).await;
    client.post("").await;
    client.head().await;
    assert_eq!(provider.exhausted(), 0);
    client.post("").await;
    assert!(client.head().await.starts_with("HTTP/1.1 500 "));
    assert!(client.until("}}").await.contains("script_exhausted"));
    assert_eq!(provider.exhausted(), 1);
}

#[tokio::test]
async fn a_script_can_go_on_after_its_last_answer() {
    let repeated = Script::new([Answer::status(503), Answer::status(200)]).repeat_last();
    let followed = Script::new([Answer::status(503)]).then(Answer::status(204));
    let provider =
        ScriptedProvider::builder().script(repeated).route("/v1", followed).start().await.unwrap();
    let mut client = Client::to(&provider).await;
    for (path, statuses) in [("/", [503, 200, 200]), ("/v1/x", [503, 204, 204])] {
        for status in statuses {
            client.send(format!("GET {path} HTTP/1.1\r\n\r\n")).await;
            assert!(client.head().await.starts_with(&format!("HTTP/1.1 {status} ")));
        }
    }
    assert_eq!(provider.exhausted(), 0);
}

#[tokio::test]
async fn a_function_answers_first_then_the_longest_route_then_the_script() {
    let provider = ScriptedProvider::builder()
        .on_request(|seen| (seen.body == "ask").then(|| Answer::status(201)))
        .route("/v1", [Answer::status(202)])
        .route("/v1/messages", [Answer::status(203)])
        .script([Answer::status(200)])
        .start()
        .await
        .unwrap();
    let mut client = Client::to(&provider).await;
    for (path, body, status) in [
        ("/v1/messages", "ask", 201),
        ("/v1/messages?beta=1", "xyz", 203),
        ("/v1/embeddings", "xyz", 202),
        ("/other", "xyz", 200),
    ] {
        client.send(format!("POST {path} HTTP/1.1\r\ncontent-length: 3\r\n\r\n{body}")).await;
        assert!(client.head().await.starts_with(&format!("HTTP/1.1 {status} ")), "{path}");
    }
    assert_eq!(provider.exhausted(), 0);
}

#[tokio::test]
async fn an_idle_connection_is_closed_after_the_limit() {
    let provider = ScriptedProvider::builder()
        .script([Answer::status(200), Answer::status(200)])
        .close_idle_after(IDLE)
        .start()
        .await
        .unwrap();
    let mut client = Client::to(&provider).await;
    // Before its first request a connection may wait as long as it likes.
    tokio::time::sleep(IDLE * 2).await;
    for _ in 0..2 {
        client.post("").await;
        client.head().await;
    }
    let answered = Instant::now();
    assert_eq!(client.rest_then_fin().await, "");
    // The limit runs from when the provider had written, which is a little before we had read.
    assert!(answered.elapsed() >= IDLE / 2);
    provider.wait_until_disconnected().await;
}

#[tokio::test]
async fn a_request_on_a_stale_connection_is_reset_unread() {
    let provider = ScriptedProvider::builder()
        .script(Script::new([Answer::status(200)]).repeat_last())
        .reset_idle_after(IDLE)
        .start()
        .await
        .unwrap();
    let mut client = Client::to(&provider).await;
    client.post("").await;
    client.head().await;
    tokio::time::sleep(IDLE * 2).await;
    client.post("").await;
    client.rest_then_reset().await;
    assert_eq!((provider.requests(), provider.stale_resets()), (1, 1));
}

#[tokio::test]
async fn a_dropped_provider_closes_its_port_and_its_connections() {
    let provider = ScriptedProvider::start([Answer::status(200).silence()]).await.unwrap();
    let addr = provider.addr();
    let mut client = Client::to(&provider).await;
    client.post("").await;
    client.head().await;
    drop(provider);
    let _ = client.rest().await;
    // The connection ended when the task that accepts was dropped, and the port with it.
    let refused = TcpStream::connect(addr).await.unwrap_err();
    assert_eq!(refused.kind(), io::ErrorKind::ConnectionRefused);
}

#[tokio::test]
async fn shutdown_returns_when_the_port_is_closed() {
    let provider = ScriptedProvider::start([Answer::status(200)]).await.unwrap();
    let addr = provider.addr();
    let mut client = Client::to(&provider).await;
    client.post("").await;
    client.head().await;
    provider.shutdown().await;
    assert_eq!(client.rest_then_fin().await, "");
    let refused = TcpStream::connect(addr).await.unwrap_err();
    assert_eq!(refused.kind(), io::ErrorKind::ConnectionRefused);
}

#[tokio::test]
async fn an_unused_address_refuses() {
    let unused = unused_addr().unwrap();
    for _ in 0..3 {
        let refused = TcpStream::connect(unused.addr()).await.unwrap_err();
        assert_eq!(refused.kind(), io::ErrorKind::ConnectionRefused);
    }
    assert_eq!(unused.url(), format!("http://{}", unused.addr()));
}

#[tokio::test]
async fn what_is_no_request_is_refused_and_counted() {
    let provider = ScriptedProvider::start([Answer::status(200)]).await.unwrap();
    for (bytes, status) in [
        ("EHLO there\r\n\r\n".to_owned(), 400),
        ("POST / HTTP/1.1\r\ntransfer-encoding: chunked\r\n\r\nxyz\r\n".to_owned(), 400),
        (format!("GET / HTTP/1.1\r\nx: {}", "y".repeat(64 * 1024)), 431),
    ] {
        let mut client = Client::to(&provider).await;
        client.send(bytes).await;
        assert!(client.rest_then_fin().await.starts_with(&format!("HTTP/1.1 {status} ")));
    }
    assert_eq!(provider.malformed(), 3);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_nth_request_gets_the_nth_answer_however_many_come_at_once() {
    const CLIENTS: usize = 20;
    const EACH: usize = 25;
    let script = (0..CLIENTS * EACH).map(|n| Answer::status(200).header("x-n", n.to_string()));
    let provider = ScriptedProvider::start(script.collect::<Vec<_>>()).await.unwrap();
    let mut clients = JoinSet::new();
    for name in 0..CLIENTS {
        let mut client = Client::to(&provider).await;
        clients.spawn(async move {
            let mut got = Vec::new();
            for n in 0..EACH {
                let body = format!("{name}/{n}");
                client.post(&body).await;
                let head = client.head().await;
                let index = head.lines().find_map(|line| line.strip_prefix("x-n: ")).unwrap();
                got.push((index.parse::<usize>().unwrap(), body));
            }
            got
        });
    }
    let mut got = clients.join_all().await.concat();
    got.sort();
    provider.wait_until_disconnected().await;
    let log = provider.log();
    assert_eq!(log.len(), CLIENTS * EACH);
    for (seen, (index, body)) in log.iter().zip(&got) {
        assert_eq!((seen.index, &seen.body[..]), (*index, body.as_bytes()));
    }
    assert_eq!((provider.connections(), provider.exhausted()), (CLIENTS, 0));
}
