//! What a stack is made of, and what it costs in copies.

use std::convert::Infallible;
use std::future::{Future, Ready, ready};
use std::task::{Context, Poll, Waker};

use backstop::dialect::Dialect;
use backstop::stack::StackService;
use backstop::{Chain, Profile, RequestBody, Rung, Stack};
use bytes::Bytes;
use http::{Request, Response};
use http_body_util::Full;
use tower::{Layer, Service};

/// Answers at once.
#[derive(Clone)]
struct Provider;

impl Service<Request<RequestBody>> for Provider {
    type Response = Response<Full<Bytes>>;
    type Error = Infallible;
    type Future = Ready<Result<Self::Response, Infallible>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, _: Request<RequestBody>) -> Self::Future {
        ready(Ok(Response::new(Full::new(Bytes::from_static(GOOD)))))
    }
}

const GOOD: &[u8] = br#"{"choices":[{"message":{"content":"hi"},"finish_reason":"stop"}]}"#;

fn rung(id: &str, attempts: u32) -> Rung {
    let profile = Profile::new(id, id, id, Dialect::OPENAI).unwrap();
    Rung::new(profile, attempts).unwrap()
}

#[test]
fn the_future_is_send_the_service_is_clone_and_the_body_is_sync() {
    fn all<S>()
    where
        S: Service<Request<Full<Bytes>>> + Clone + Send + Sync + 'static,
        S::Future: Send + 'static,
        S::Response: Send + Sync,
        S::Error: Send + Sync,
    {
    }
    all::<StackService<Provider>>();
    all::<StackService<Provider, backstop::provenance::MemoryLedger>>();
    all::<StackService<crate::rig::Client, backstop::provenance::MemoryLedger>>();
}

/// How many more bytes a call allocates whose head has a hundred headers than one whose head has one: what
/// the copies of the head take, since nothing else depends on the number of headers.
fn copies_of_the_head(chain: Chain) -> u64 {
    let mut stack = Stack::new(chain).layer(Provider);
    let mut cost = |lists: u32| {
        let mut request = Request::post("/v1/chat/completions")
            .body(RequestBody::from(r#"{"model":"x"}"#))
            .unwrap();
        // Each value owns its bytes: who copies the head shares them, at an allocation once.
        for n in 0..lists {
            let value = http::HeaderValue::from_str(&"x".repeat(100 + n as usize)).unwrap();
            let name = http::HeaderName::try_from(format!("x-own-{n}")).unwrap();
            request.headers_mut().insert(name, value);
        }
        let cost = allocation_counter::measure(|| {
            let call = std::pin::pin!(stack.call(request));
            assert!(call.poll(&mut Context::from_waker(Waker::noop())).is_ready());
        });
        cost.bytes_total
    };
    cost(1);
    cost(100) - cost(1)
}

#[test]
fn one_copy_of_the_head_serves_a_call_and_none_is_made_where_no_second_try_can_come() {
    let none = copies_of_the_head(Chain::new([rung("a", 1)]).unwrap());
    let repeats = copies_of_the_head(Chain::new([rung("a", 3)]).unwrap());
    let falls_back = copies_of_the_head(Chain::new([rung("a", 1), rung("b", 1)]).unwrap());
    let both = copies_of_the_head(Chain::new([rung("a", 3), rung("b", 1)]).unwrap());
    assert_eq!(none, 0, "no second try, no copy");
    assert!(repeats > 0);
    assert_eq!((repeats, repeats), (falls_back, both), "one copy, whoever needs it");
}
