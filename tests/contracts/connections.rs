//! What becomes of connections: used again where that costs nothing, let go where it would.

mod drained;
mod http1;
mod http2;
mod refused;
mod unprocessed;

use backstop::backoff::BackoffBuilder;
use backstop::{BackoffLayer, Jitter, RequestBody, Schedule};
use bytes::Bytes;
use http::Request;
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;

use crate::support::{CHAT, millis};

type Pooled = Client<HttpConnector, RequestBody>;

/// hyper's pooling client, which repeats nothing by itself.
fn client(http2: bool) -> Pooled {
    let mut builder = Client::builder(TokioExecutor::new());
    builder.retry_canceled_requests(false).http2_only(http2).build_http()
}

/// Waits of 60 ms: longer than a failed answer is drained for, and short.
fn quick_backoff() -> BackoffBuilder {
    let schedule = Schedule::new(millis(60), millis(60)).with_jitter(Jitter::None);
    BackoffLayer::builder().schedule(schedule)
}

fn ask(url: &str) -> Request<RequestBody> {
    Request::post(format!("{url}{CHAT}")).body(Bytes::from_static(b"{}").into()).unwrap()
}
