//! What the contracts' tests have in common.

use std::time::Duration;

use backstop::backoff::BackoffBuilder;
use backstop::testing::{Outcome, ScriptedBody, Step};
use backstop::{BackoffLayer, Jitter};
use bytes::Bytes;
use http::Request;
use http_body::Body;
use http_body_util::{BodyExt, Full};
use tower::{Service, ServiceExt};

pub(crate) const CHAT: &str = "/v1/chat/completions";
pub(crate) const RESPONSES: &str = "/v1/responses";

pub(crate) const fn secs(n: u64) -> Duration {
    Duration::from_secs(n)
}

pub(crate) const fn millis(n: u64) -> Duration {
    Duration::from_millis(n)
}

/// A small request of one frame.
pub(crate) fn post(path: &str) -> Request<Full<Bytes>> {
    post_body(path, "{}")
}

pub(crate) fn post_body(path: &str, body: &'static str) -> Request<Full<Bytes>> {
    let body = Full::new(Bytes::from_static(body.as_bytes()));
    Request::post(format!("http://provider.test{path}")).body(body).unwrap()
}

/// A service that is ready for such a request.
pub(crate) async fn ready<S>(service: &mut S) -> &mut S
where
    S: Service<Request<Full<Bytes>>>,
    S::Error: std::fmt::Debug,
{
    service.ready().await.unwrap()
}

/// Fails a test that would wait for ever: under the paused clock nothing else would end it.
pub(crate) async fn bounded<F: Future>(wait: F) -> F::Output {
    tokio::time::timeout(secs(10_000_000), wait).await.expect("it never ends")
}

/// Waits of exactly 0.5, 1, 2, … seconds.
pub(crate) fn exact_backoff() -> BackoffBuilder {
    BackoffLayer::builder().jitter(Jitter::None)
}

/// A 200 whose head is that of server-sent events.
pub(crate) fn sse(body: ScriptedBody) -> Outcome {
    Outcome::status(200).header("content-type", "text/event-stream").body(body)
}

/// One frame for each piece.
pub(crate) fn frames<D: Into<Bytes>>(pieces: impl IntoIterator<Item = D>) -> Vec<Step> {
    pieces.into_iter().map(Step::data).collect()
}

/// What a caller sees of a body: its bytes, and the error in which it ended.
#[derive(Debug)]
pub(crate) struct Read<E> {
    pub(crate) bytes: Vec<u8>,
    pub(crate) end: Result<(), E>,
}

impl<E> Read<E> {
    pub(crate) fn text(&self) -> String {
        String::from_utf8_lossy(&self.bytes).into_owned()
    }
}

/// Reads a body to its end, of whichever kind; nothing may come after it.
pub(crate) async fn read<B: Body<Data = Bytes>>(body: B) -> Read<B::Error> {
    let mut body = std::pin::pin!(body);
    let mut bytes = Vec::new();
    loop {
        match body.as_mut().frame().await {
            Some(Ok(frame)) => bytes.extend(frame.into_data().unwrap_or_default()),
            Some(Err(error)) => {
                assert!(body.as_mut().frame().await.is_none(), "something came after the error");
                return Read { bytes, end: Err(error) };
            }
            None => return Read { bytes, end: Ok(()) },
        }
    }
}

/// The code in an error object of any dialect, in lower case, and its message: what an SDK shows.
pub(crate) fn error_of(body: &[u8]) -> (String, String) {
    let body: serde_json::Value = serde_json::from_slice(body).expect("an error object");
    let error = &body["error"];
    let code = [&error["code"], &error["details"]["error_code"], &error["details"][0]["reason"]];
    let code = code.iter().find_map(|code| code.as_str()).unwrap_or_default();
    (code.to_ascii_lowercase(), error["message"].as_str().unwrap_or_default().to_owned())
}
