//! What the layers cost where there is nothing to record, and what they are.
#![expect(
    clippy::unwrap_used,
    reason = "clippy's allowance for tests does not reach the helpers of an integration test"
)]

use std::fmt::Debug;
use std::future::Future;
use std::hint::black_box;
use std::pin::pin;
use std::task::{Context, Poll, Waker};

use backstop_classify::{ClassifyBody, ClassifyLayer};
use backstop_core::{CallContext, CallOptions, RequestBody};
use backstop_provenance::{
    AttemptBody, AttemptFuture, AttemptLayer, AttemptService, Finished, Ledger, Provenance,
    ProvenanceBody, ProvenanceFuture, ProvenanceLayer, ProvenanceService, Slot, Started,
};
use http::{Request, Response};
use http_body::Body;
use tower::{Layer, Service};

use support::*;

#[path = "support/mod.rs"]
mod support;

/// Keeps nothing, at once: what records cost to make.
#[derive(Clone, Copy, Debug)]
struct Sink;

impl Ledger for Sink {
    type Slot = Self;
    type Error = std::convert::Infallible;
    type Starting = std::future::Ready<Result<Self, std::convert::Infallible>>;

    fn started(&self, started: Started) -> Self::Starting {
        drop(black_box(started));
        std::future::ready(Ok(Self))
    }
}

impl Slot for Sink {
    fn finish(self, finished: Finished) {
        drop(black_box(finished));
    }
}

fn request() -> Request<RequestBody> {
    let mut body = String::from(r#"{"model":"m","messages":[{"role":"user","content":""#);
    body.push_str(&"x".repeat(1000));
    body.push_str("\"}]}");
    Request::post("https://provider.test/v1/chat/completions")
        .header("authorization", "Bearer k")
        .header("content-type", "application/json")
        .body(RequestBody::from(body))
        .unwrap()
}

/// One call, its answer read to the end.
fn run<S, RB>(service: &mut S, request: Request<RequestBody>)
where
    S: Service<Request<RequestBody>, Response = Response<RB>, Error: Debug>,
    RB: Body<Error: Debug>,
{
    let mut cx = Context::from_waker(Waker::noop());
    assert!(service.poll_ready(&mut cx).is_ready());
    let Poll::Ready(response) = pin!(service.call(request)).poll(&mut cx) else {
        unreachable!("everything is ready at once")
    };
    let mut body = pin!(response.unwrap().into_body());
    while let Poll::Ready(Some(frame)) = body.as_mut().poll_frame(&mut cx) {
        drop(black_box(frame.unwrap()));
    }
}

fn allocations<S, RB>(mut service: S) -> u64
where
    S: Service<Request<RequestBody>, Response = Response<RB>, Error: Debug>,
    RB: Body<Error: Debug>,
{
    run(&mut service, request());
    let request = request();
    allocation_counter::measure(|| run(&mut service, request)).count_total
}

#[test]
fn without_a_ledger_an_attempt_costs_no_allocation() {
    assert_eq!(allocations(AttemptLayer::new().layer(Plain)), allocations(Plain));
}

#[test]
fn without_a_ledger_a_call_costs_what_tells_of_it() {
    // The context and the handle, and for each of them the place in the extensions: what makes a map of
    // a request's, and one of a response's.
    let context = allocation_counter::measure(|| {
        let mut extensions = http::Extensions::new();
        extensions.insert(black_box(CallContext::new(CallOptions::new(), None, None)));
        black_box(extensions);
    });
    let handle = allocation_counter::measure(|| {
        let mut extensions = http::Extensions::new();
        extensions.insert(black_box(Provenance::new()));
        black_box(extensions);
    });
    let bare = allocations(Plain);
    let ours = allocations(ProvenanceLayer::new().layer(Plain));
    assert_eq!(ours - bare, context.count_total + handle.count_total, "{context:?} {handle:?}");
}

/// `cargo test --release -p backstop-provenance --test cost -- --ignored --nocapture`
#[test]
#[ignore = "prints times"]
#[expect(clippy::disallowed_methods, reason = "measures real time")]
fn times() {
    fn time<S, RB>(name: &str, mut service: S)
    where
        S: Service<Request<RequestBody>, Response = Response<RB>, Error: Debug>,
        RB: Body<Error: Debug>,
    {
        let n = 1000;
        let mut best = u128::MAX;
        for _ in 0..200 {
            let requests: Vec<_> = (0..n).map(|_| request()).collect();
            let began = std::time::Instant::now();
            for request in requests {
                run(&mut service, request);
            }
            best = best.min(began.elapsed().as_nanos() / n);
        }
        println!("{name}: {best} ns, {} allocations", allocations(service));
    }
    time("nothing", Plain);
    time("attempt, no ledger", AttemptLayer::new().layer(Plain));
    time("attempt, sink", AttemptLayer::recording(Sink).layer(Plain));
    time("provenance, no ledger", ProvenanceLayer::new().layer(Plain));
    time("provenance, sink", ProvenanceLayer::recording(Sink).layer(Plain));
    let both = AttemptLayer::new().layer(Plain);
    time("both, no ledger", ProvenanceLayer::new().layer(both));
    let both = AttemptLayer::recording(Sink).layer(Plain);
    time("both, sink", ProvenanceLayer::recording(Sink).layer(both));
    println!(
        "sizes: provenance future {} body {}, attempt future {} body {}",
        size_of::<ProvenanceFuture<Plain, RequestBody, Sink>>(),
        size_of::<ProvenanceBody<RequestBody, Sink>>(),
        size_of::<AttemptFuture<Plain, RequestBody, Sink>>(),
        size_of::<AttemptBody<RequestBody, Sink>>(),
    );
}

#[test]
fn what_has_to_cross_threads_does() {
    fn send<T: Send>() {}
    fn sync<T: Send + Sync>() {}
    fn shared<T: Send + Sync + Clone + Debug + 'static>() {}
    shared::<ProvenanceLayer<Sink>>();
    shared::<AttemptLayer<Sink>>();
    shared::<ProvenanceLayer>();
    shared::<AttemptLayer>();
    shared::<ProvenanceService<Plain, Sink>>();
    shared::<AttemptService<Plain, Sink>>();
    shared::<Provenance>();
    sync::<ProvenanceBody<AttemptBody<ClassifyBody<RequestBody>, Sink>, Sink>>();
    sync::<ProvenanceFuture<Plain, RequestBody, Sink>>();
    sync::<AttemptFuture<Plain, RequestBody, Sink>>();
    // This ledger's starts are `Send` alone.
    send::<ProvenanceFuture<Plain, RequestBody, Book>>();
    send::<AttemptFuture<Plain, RequestBody, Book>>();
    sync::<ProvenanceBody<RequestBody, Book>>();
    let stack = ProvenanceLayer::recording(Sink).layer(AttemptLayer::recording(Sink).layer(Plain));
    fn clonable<S: Clone + Send + Sync + 'static>(_: &S) {}
    clonable(&stack);
    clonable(&ProvenanceLayer::new().layer(ClassifyLayer::new().layer(Plain)));
}
