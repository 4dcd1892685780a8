//! Real sockets, HTTP/2: a server of hyper's that counts the connections it accepts.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use backstop::testing::script::openai;
use backstop::testing::{Outcome, ScriptedService};
use backstop::{CallOptions, ClassifyLayer, Hold};
use http::Request;
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::net::TcpListener;
use tower::{ServiceBuilder, ServiceExt};

use super::{ask, client, quick_backoff};
use crate::support::read;

struct Server {
    addr: SocketAddr,
    connections: Arc<AtomicUsize>,
    requests: ScriptedService,
}

impl Server {
    async fn start(script: Vec<Outcome>) -> Self {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
        let addr = listener.local_addr().unwrap();
        let connections = Arc::new(AtomicUsize::new(0));
        let requests = ScriptedService::new(script);
        let (accepted, provider) = (Arc::clone(&connections), requests.clone());
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                accepted.fetch_add(1, Ordering::Relaxed);
                let provider = provider.clone();
                let answer = move |request: Request<Incoming>| provider.clone().oneshot(request);
                let serving = hyper::server::conn::http2::Builder::new(TokioExecutor::new());
                tokio::spawn(serving.serve_connection(TokioIo::new(stream), service_fn(answer)));
            }
        });
        Self { addr, connections, requests }
    }

    fn url(&self) -> String {
        format!("http://{}", self.addr)
    }

    fn connections(&self) -> usize {
        self.connections.load(Ordering::Relaxed)
    }
}

fn script() -> Vec<Outcome> {
    [
        openai::error(503, "server_error", None),
        openai::error_first("server_error", None),
        openai::chat_stream("m", ["a"]).cut_after_events(1),
        // Broken off: over HTTP/2 only its own stream is reset.
        openai::chat_stream("m", ["a", "b"]).cut_after_events(1).reset(),
        openai::chat_stream("m", ["a", "b"]),
    ]
    .map(Outcome::from)
    .into()
}

#[tokio::test]
async fn all_attempts_of_a_call_share_one_connection() {
    for hold in [Hold::FirstContent, Hold::Complete] {
        let server = Server::start(script()).await;
        let stack = ServiceBuilder::new()
            .layer(quick_backoff().build().unwrap())
            .layer(ClassifyLayer::new())
            .service(client(true));
        let mut request = ask(&server.url());
        request.extensions_mut().insert(CallOptions::new().hold(hold));
        let response = stack.oneshot(request).await.unwrap();
        assert_eq!(response.version(), http::Version::HTTP_2);
        assert!(read(response.into_body()).await.end.is_ok());
        assert_eq!((server.requests.calls(), server.connections()), (5, 1), "{hold:?}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn calls_side_by_side_share_it_too() {
    let script: Vec<_> = (0..20)
        .map(|n| match n % 2 {
            0 => openai::error(503, "server_error", None),
            _ => openai::chat_stream("m", ["a", "b"]),
        })
        .map(Outcome::from)
        .collect();
    let server = Server::start(script).await;
    let stack = ServiceBuilder::new()
        .layer(quick_backoff().max_retries(100).build().unwrap())
        .layer(ClassifyLayer::new())
        .service(client(true));
    // The first one opens the connection.
    let warm = stack.clone().oneshot(ask(&server.url())).await.unwrap();
    assert!(read(warm.into_body()).await.end.is_ok());
    let calls: Vec<_> =
        (0..9).map(|_| tokio::spawn(stack.clone().oneshot(ask(&server.url())))).collect();
    for call in calls {
        let response = call.await.unwrap().unwrap();
        assert!(read(response.into_body()).await.end.is_ok());
    }
    assert_eq!((server.requests.calls(), server.connections()), (20, 1));
}

#[tokio::test]
async fn a_large_failed_answer_is_let_go_without_the_connection() {
    let large = Outcome::status(500).body("x".repeat(300 * 1024));
    let good = Outcome::from(openai::chat_stream("m", ["a"]));
    let server = Server::start(vec![large, good]).await;
    let stack = ServiceBuilder::new().layer(quick_backoff().build().unwrap()).service(client(true));
    let response = stack.oneshot(ask(&server.url())).await.unwrap();
    assert_eq!(response.status(), 200);
    assert!(read(response.into_body()).await.end.is_ok());
    assert_eq!((server.requests.calls(), server.connections()), (2, 1));
}
