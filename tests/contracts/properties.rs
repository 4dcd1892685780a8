//! What the types promise, checked by the compiler.

use backstop::backoff::Backoff;
use backstop::classify::{ClassifyBody, ClassifyService};
use backstop::testing::ScriptedService;
use backstop::{
    AttemptCell, BackoffLayer, CallContext, CallOptions, ClassifyLayer, Error, RequestBody, Verdict,
};
use bytes::Bytes;
use http::Request;
use http_body_util::Full;
use http_body_util::combinators::{BoxBody, UnsyncBoxBody};
use tower::Service;

fn is_send_static<T: Send + 'static>() {}
fn is_send_sync<T: Send + Sync + 'static>() {}
fn is_service<T: Clone + Send + Sync + 'static>() {}

type Stack = Backoff<ClassifyService<ScriptedService>>;
type Future<S, B> = <S as Service<Request<B>>>::Future;
type Sent = BoxBody<Bytes, std::convert::Infallible>;
type Unsync = UnsyncBoxBody<Bytes, std::convert::Infallible>;

#[test]
fn futures_are_send_bodies_are_sync_and_services_are_clone() {
    is_send_static::<Future<Stack, Full<Bytes>>>();
    is_send_static::<Future<Stack, Sent>>();
    is_send_static::<Future<Stack, Unsync>>();
    is_send_static::<Future<Backoff<ScriptedService>, RequestBody>>();
    is_send_static::<Future<ClassifyService<ScriptedService>, RequestBody>>();
    is_send_sync::<ClassifyBody<Full<Bytes>>>();
    is_send_sync::<ClassifyBody<ClassifyBody<Full<Bytes>>>>();
    is_send_sync::<RequestBody>();
    is_service::<Stack>();
    is_service::<Backoff<ScriptedService>>();
    is_service::<BackoffLayer>();
    is_service::<ClassifyLayer>();
    is_send_sync::<Error>();
    is_send_sync::<Verdict>();
    is_send_sync::<AttemptCell>();
    is_send_sync::<CallContext>();
    is_send_sync::<CallOptions>();
}
