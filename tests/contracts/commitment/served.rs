//! Answers handed on by hyper's server over a real socket: a broken one must look broken to its client.

use std::net::SocketAddr;

use backstop::classify::ClassifyBody;
use backstop::testing::{BoxError, Outcome, ScriptedBody, ScriptedService, Step};
use backstop::{ClassifyLayer, Error, Hold};
use http::{Request, Response};
use http_body_util::BodyExt;
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::client::legacy::Client;
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tower::{ServiceBuilder, ServiceExt};

use super::wires::{HOLDS, WIRES, Way, Wire};
use crate::support::{frames, millis, post, secs};

/// Serves `answer`, classified, to every request.
async fn serve(hold: Hold, answer: Outcome) -> SocketAddr {
    let layer = ClassifyLayer::builder().hold(hold).build().unwrap();
    let stack = ServiceBuilder::new()
        .layer(layer)
        .service(ScriptedService::from_fn(move |_| answer.clone()));
    let listener = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
    let addr = listener.local_addr().unwrap();
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let stack = stack.clone();
            let answer = move |request: Request<Incoming>| {
                let stack = stack.clone();
                async move { answer_with(stack.oneshot(request).await) }
            };
            let serving = hyper::server::conn::http1::Builder::new();
            tokio::spawn(serving.serve_connection(TokioIo::new(stream), service_fn(answer)));
        }
    });
    addr
}

type Answered = Result<Response<ClassifyBody<ScriptedBody>>, Error>;

fn answer_with(answered: Answered) -> Answered {
    answered
}

/// Every byte of an answer, and whether its framing says that it is whole.
async fn raw(addr: SocketAddr, path: &str) -> (String, Vec<u8>, bool) {
    let mut stream = TcpStream::connect(addr).await.unwrap();
    let request = format!(
        "POST {path} HTTP/1.1\r\nhost: a\r\nconnection: close\r\ncontent-length: 2\r\n\r\n{{}}"
    );
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut bytes = Vec::new();
    // A reset is an end like a FIN here: the framing has to tell.
    let _ = tokio::time::timeout(secs(5), stream.read_to_end(&mut bytes)).await.unwrap();
    let split = bytes.windows(4).position(|window| window == b"\r\n\r\n");
    let Some(split) = split else { return (String::new(), bytes, false) };
    let body = bytes.split_off(split + 4);
    let head = String::from_utf8(bytes).unwrap().to_ascii_lowercase();
    let length = head
        .split("content-length: ")
        .nth(1)
        .map(|rest| rest.split("\r\n").next().unwrap().parse::<usize>().unwrap());
    let whole = match length {
        Some(length) => body.len() == length,
        None => head.contains("transfer-encoding: chunked") && body.ends_with(b"0\r\n\r\n"),
    };
    (head, body, whole)
}

/// The same answer to hyper's own client: whether it comes to its end.
async fn hyper_reads_it(addr: SocketAddr, path: &str) -> Result<bytes::Bytes, BoxError> {
    let client = Client::builder(TokioExecutor::new()).build_http();
    let (mut head, body) = post(path).into_parts();
    head.uri = format!("http://{addr}{path}").parse().unwrap();
    let response = client.request(Request::from_parts(head, body)).await?;
    Ok(response.into_body().collect().await?.to_bytes())
}

/// Whether an error says that the message broke off, and not something else.
fn is_incomplete(error: &(dyn std::error::Error + 'static)) -> bool {
    let mut causes = std::iter::successors(Some(error), |error| (**error).source());
    causes.any(|cause| {
        let hyper = cause.downcast_ref::<hyper::Error>();
        let io = cause.downcast_ref::<std::io::Error>();
        hyper.is_some_and(hyper::Error::is_incomplete_message)
            || io.is_some_and(|io| io.kind() == std::io::ErrorKind::UnexpectedEof)
    })
}

/// Chunked, with a length in the head, and with a length that only the body knows.
fn framings(wire: &Wire, pieces: &[String], way: Way) -> [(&'static str, Outcome); 3] {
    let length = pieces.concat().len();
    let body = || ScriptedBody::new(frames(pieces.to_vec()).into_iter().chain(way.step()));
    let announced = if way == Way::Broken { length + 100 } else { length };
    [
        ("chunked", wire.answer(body().unknown_size())),
        (
            "content-length",
            wire.answer(body().content_length(announced as u64))
                .header("content-length", &announced.to_string()),
        ),
        ("known to the body", wire.answer(body())),
    ]
}

#[tokio::test]
async fn a_whole_stream_arrives_whole_however_it_is_framed() {
    for wire in [&WIRES[0], &WIRES[3]] {
        for hold in HOLDS {
            let good = wire.good("only");
            for (framing, answer) in framings(wire, &wire.events("only"), Way::Eof) {
                let addr = serve(hold, answer).await;
                let case = format!("{} {hold:?} {framing}", wire.name);
                let (head, body, whole) = raw(addr, wire.path).await;
                assert!(whole && head.starts_with("http/1.1 200"), "{case}: {head}");
                if framing == "content-length" {
                    assert_eq!(String::from_utf8(body).unwrap(), good, "{case}");
                }
                assert_eq!(hyper_reads_it(addr, wire.path).await.unwrap(), good, "{case}");
            }
        }
    }
}

#[tokio::test]
async fn a_stream_that_fails_is_an_incomplete_message_to_its_client() {
    for wire in [&WIRES[0], &WIRES[3], &WIRES[4]] {
        for hold in HOLDS {
            for kept in [1, wire.until_content, wire.until_content + 1] {
                for way in [Way::Eof, Way::ErrorEvent, Way::Broken] {
                    let sent = wire.sent("only", kept, way);
                    for (framing, answer) in framings(wire, &sent, way) {
                        let addr = serve(hold, answer).await;
                        let case = format!("{} {hold:?} {kept} {way:?} {framing}", wire.name);
                        let (head, body, whole) = raw(addr, wire.path).await;
                        assert!(!whole, "{case}: {head}{}", String::from_utf8_lossy(&body));
                    }
                }
            }
        }
    }
}

#[tokio::test]
async fn hypers_client_gets_an_error_in_place_of_the_end_of_a_stream_that_failed() {
    let wire = &WIRES[0];
    for hold in HOLDS {
        let sent = wire.sent("only", 3, Way::Eof);
        // The pause lets out what comes before the failure.
        let steps = frames(sent).into_iter().chain([Step::pause(millis(20))]);
        let addr = serve(hold, wire.answer(ScriptedBody::new(steps).unknown_size())).await;
        let error = hyper_reads_it(addr, wire.path).await.unwrap_err();
        assert!(is_incomplete(error.as_ref()), "{hold:?}: {error:?}");
    }
}
