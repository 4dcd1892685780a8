//! What a layer adds to a call that succeeds at once, beside `tower::retry`, in one run.
//!
//! `cargo bench --bench layers`; where a machine is not quiet, `--bench beside` compares better. Every stack
//! gets the same inner service and the same request: a POST of 2 KiB with six headers, answered by a ready 200 with 1 KiB of JSON. The inner service does
//! nothing, so that what differs is the layer.
//!
//! Two groups. In `call` every call has a request that was just built, as calls have; its building is
//! part of the time. In `call, cloned request` it is a clone of one request, whose header values are
//! shared already, so that the layers' own copy costs less, and the rest of them shows more.

use std::future::Future;
use std::hint::black_box;
use std::task::{Context, Waker};

use backstop_backoff::BackoffLayer;
use backstop_benches::{Provider, headers_only, no_retry, request, tower_retry};
use backstop_classify::ClassifyLayer;
use backstop_core::RequestBody;
use criterion::{Criterion, criterion_group, criterion_main};
use http::Request;
use tower::{Layer, Service};

fn calls(c: &mut Criterion) {
    measure(c, "call", request);
    let template = request();
    measure(c, "call, cloned request", || template.clone());
}

fn measure(c: &mut Criterion, group: &str, request: impl Fn() -> Request<RequestBody>) {
    let mut cx = Context::from_waker(Waker::noop());
    let mut group = c.benchmark_group(group);
    macro_rules! stack {
        ($name:literal, $service:expr) => {
            let mut service = $service;
            group.bench_function($name, |b| {
                b.iter(|| {
                    // Everything is ready at once: no runtime is needed, and none is measured.
                    let call = std::pin::pin!(service.call(request()));
                    black_box(call.poll(&mut cx).is_ready())
                });
            });
        };
    }
    stack!("bare", Provider::new());
    stack!("tower-retry", tower_retry());
    stack!("backoff", BackoffLayer::new().layer(Provider::new()));
    stack!("backoff, max_retries = 0", no_retry().layer(Provider::new()));
    stack!("classify, hold = headers", headers_only().layer(Provider::new()));
    stack!("classify", ClassifyLayer::new().layer(Provider::new()));
    stack!(
        "backoff over classify, hold = headers",
        BackoffLayer::new().layer(headers_only().layer(Provider::new()))
    );
    stack!(
        "backoff over classify",
        BackoffLayer::new().layer(ClassifyLayer::new().layer(Provider::new()))
    );
    group.finish();
}

criterion_group!(layers, calls);
criterion_main!(layers);
