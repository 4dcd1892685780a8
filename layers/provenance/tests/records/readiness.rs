//! The service that was polled ready is the one that is called.

use std::sync::Arc;
use std::task::{Context, Poll};

use backstop_backoff::BackoffLayer;
use backstop_core::{Jitter, RequestBody, Schedule};
use backstop_provenance::{AttemptLayer, Outcome, Provenance, ProvenanceLayer};
use http::{Request, Response};
use tokio::sync::watch;
use tower::limit::ConcurrencyLimitLayer;
use tower::{Layer, Service, ServiceBuilder, ServiceExt};

use crate::support::Piece::{Data, Hang, Later};
use crate::support::*;

/// Panics where it is called without having been polled ready; a clone is not ready.
struct Strict<S> {
    inner: S,
    is_ready: bool,
    ready: Arc<watch::Sender<usize>>,
}

impl<S> Strict<S> {
    fn new(inner: S) -> Self {
        Self { inner, is_ready: false, ready: Arc::new(watch::Sender::new(0)) }
    }
}

impl<S: Clone> Clone for Strict<S> {
    fn clone(&self) -> Self {
        Self { inner: self.inner.clone(), is_ready: false, ready: Arc::clone(&self.ready) }
    }
}

impl<B, S: Service<Request<B>>> Service<Request<B>> for Strict<S> {
    type Response = S::Response;
    type Error = S::Error;
    type Future = S::Future;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        let polled = self.inner.poll_ready(cx);
        if matches!(polled, Poll::Ready(Ok(()))) && !self.is_ready {
            self.is_ready = true;
            self.ready.send_modify(|ready| *ready += 1);
        }
        polled
    }

    fn call(&mut self, request: Request<B>) -> S::Future {
        assert!(std::mem::take(&mut self.is_ready), "called without having been polled ready");
        self.inner.call(request)
    }
}

#[tokio::test(start_paused = true)]
async fn three_attempts_on_one_permit_each_use_the_reservation_that_was_made() {
    let schedule = Schedule::new(secs(1), secs(60)).with_jitter(Jitter::None);
    let backoff = BackoffLayer::builder().max_retries(2).schedule(schedule).build().unwrap();
    for slow in [false, true] {
        let start = || if slow { Start::KeepAfter(ms(10)) } else { Start::Keep };
        let book = Book::scripted((0..4).map(|_| start()));
        let script = [answer(503, [Data("a")]), answer(503, [Data("a")]), answer(200, [Data("a")])];
        let strict =
            Strict::new(ConcurrencyLimitLayer::new(1).layer(Strict::new(Provider::new(script))));
        let ready = Arc::clone(&strict.ready);
        let service = ServiceBuilder::new()
            .layer(ProvenanceLayer::recording(book.clone()))
            .layer(&backoff)
            .layer(AttemptLayer::recording(book.clone()))
            .service(strict);
        let response = service.oneshot(ask(CHAT)).await.unwrap();
        read(response.into_body(), 9).await;
        assert_eq!(book.classes(), ["overloaded", "overloaded", "success"]);
        assert_eq!(*ready.borrow(), 3, "polled ready once for each attempt");
        assert_eq!(book.call().outcome, Outcome::Ok);
    }
}

#[tokio::test(start_paused = true)]
async fn a_slow_caller_holds_no_permit_and_is_polled_ready_again() {
    let book = Book::new();
    let limited = ConcurrencyLimitLayer::new(1)
        .layer(Strict::new(Provider::new([answer(200, []), answer(200, [])])));
    let service = ProvenanceLayer::recording(book.clone()).layer(Strict::new(limited));
    let slow = Request::post(CHAT).body(Pieces::new([Data("{"), Hang])).unwrap();
    let slow = tokio::spawn(service.clone().oneshot(slow));
    tokio::task::yield_now().await;
    let other = tokio::time::timeout(secs(1), service.oneshot(ask(CHAT))).await;
    assert!(other.unwrap().is_ok(), "the place is free");
    slow.abort();
}

#[tokio::test(start_paused = true)]
async fn a_call_that_is_left_before_its_service_is_ready_is_cancelled_once() {
    let limited = ConcurrencyLimitLayer::new(1).layer(Strict::new(Provider::new([])));
    let mut other = Box::pin(limited.clone().oneshot(ask(CHAT)));
    let book = Book::new();
    let provenance = Provenance::new();
    // The body is late, so that the reservation is gone; then somebody else has the place.
    let mut request = Request::post(CHAT).body(Pieces::new([Later, Data(ASK)])).unwrap();
    request.extensions_mut().insert(provenance.clone());
    let mut service = ProvenanceLayer::recording(book.clone()).layer(limited);
    std::future::poll_fn(|cx| Service::<Request<Pieces>>::poll_ready(&mut service, cx))
        .await
        .unwrap();
    let mut call = Box::pin(service.call(request));
    assert!(poll_once(&mut other).is_pending());
    assert!(poll_once(&mut call).is_pending());
    assert!(format!("{call:?}").contains("Readying"), "{call:?}");
    assert_eq!((book.calls_started().len(), book.calls().len()), (1, 0));
    drop(call);
    assert_eq!(book.call().outcome, Outcome::Cancelled);
    assert_eq!(provenance.outcome(), Some(Outcome::Cancelled));
}

#[derive(Clone)]
struct Unready;

impl<B> Service<Request<B>> for Unready {
    type Response = Response<RequestBody>;
    type Error = &'static str;
    type Future = std::future::Ready<Result<Self::Response, &'static str>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), &'static str>> {
        Poll::Ready(Err("the worker is gone"))
    }

    fn call(&mut self, _: Request<B>) -> Self::Future {
        unreachable!("it is never ready")
    }
}

#[tokio::test(start_paused = true)]
async fn a_call_whose_service_never_gets_ready_is_on_the_record() {
    let book = Book::new();
    let service = ServiceBuilder::new()
        .layer(ProvenanceLayer::recording(book.clone()))
        .layer(AttemptLayer::recording(book.clone()))
        .service(Unready);
    service.oneshot(ask(CHAT)).await.unwrap_err();
    let call = book.call();
    assert_eq!((call.outcome, call.attempts), (Outcome::Incomplete, 0));
    assert!(call.error.unwrap().contains("the worker is gone"));
    assert!(book.attempts_started().is_empty(), "nothing left");

    let provenance = Provenance::new();
    let mut request = ask(CHAT);
    request.extensions_mut().insert(provenance.clone());
    ProvenanceLayer::new().layer(Unready).oneshot(request).await.unwrap_err();
    assert_eq!(provenance.outcome(), Some(Outcome::Incomplete));
}
