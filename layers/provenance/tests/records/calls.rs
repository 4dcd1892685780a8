//! A ProvenanceLayer alone, and over a classifier.

use std::time::Duration;

use backstop_classify::ClassifyLayer;
use backstop_core::error::Error;
use backstop_core::{
    Action, BufferLimit, CallId, CallOptions, Class, Hold, RequestBody, Seed, Usage,
};
use backstop_provenance::{Outcome, Provenance, ProvenanceLayer};
use http::{Request, Response};
use http_body_util::BodyExt;
use tower::{Layer, ServiceBuilder, ServiceExt, service_fn};

use crate::support::Piece::{Data, Error as Break, Hang, Last};
use crate::support::chat::{DELTA, DONE, STOP, WHOLE};
use crate::support::*;

/// Sends one request through a ProvenanceLayer over `provider` and reads `frames` frames.
async fn outcome_of(response: Response<Pieces>, frames: usize) -> (Outcome, Book) {
    let book = Book::new();
    let service = ProvenanceLayer::recording(book.clone()).layer(Provider::new([response]));
    let response = service.oneshot(ask(CHAT)).await.unwrap();
    let provenance = Provenance::of(&response).unwrap().clone();
    read(response.into_body(), frames).await;
    let outcome = book.call().outcome;
    assert_eq!(provenance.outcome(), Some(outcome));
    (outcome, book)
}

/// The same over a classifier.
async fn classified(hold: Hold, response: Response<Pieces>, frames: usize) -> (Outcome, Book) {
    let book = Book::new();
    let service = ServiceBuilder::new()
        .layer(ProvenanceLayer::recording(book.clone()))
        .layer(ClassifyLayer::builder().hold(hold).build().unwrap())
        .service(Provider::new([response]));
    let response = service.oneshot(ask(CHAT)).await.unwrap();
    read(response.into_body(), frames).await;
    (book.call().outcome, book)
}

#[tokio::test(start_paused = true)]
async fn without_a_classifier_the_status_and_the_bodys_own_end_decide() {
    for (response, frames, expected) in [
        (answer(200, [Data("a"), Data("b")]), 9, Outcome::Ok),
        (answer(200, [Data("a"), Last("b")]), 2, Outcome::Ok),
        (answer(200, [Data("a"), Last("b")]), 1, Outcome::Cancelled),
        (answer(200, [Data("a"), Data("b")]), 2, Outcome::Cancelled),
        (answer(200, [Data("a")]), 0, Outcome::Cancelled),
        (answer(200, [Last("")]), 0, Outcome::Ok),
        (answer(200, [Data("a"), Break]), 9, Outcome::Incomplete),
        (answer(200, [Break]), 9, Outcome::Incomplete),
        (answer(503, [Data("a")]), 9, Outcome::Incomplete),
        (answer(503, [Data("a")]), 0, Outcome::Incomplete),
        (answer(400, [Data("a")]), 9, Outcome::Rejected),
        (answer(400, [Data("a"), Break]), 9, Outcome::Rejected),
        (answer(404, [Data("a")]), 0, Outcome::Incomplete),
        (answer(304, [Data("a")]), 9, Outcome::Ok),
    ] {
        let shown = format!("{response:?} {frames}");
        assert_eq!(outcome_of(response, frames).await.0, expected, "{shown}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_length_that_the_head_announces_is_an_end_for_readers_who_stop_there() {
    for (frames, expected) in [(1, Outcome::Cancelled), (2, Outcome::Ok)] {
        let mut response = answer(200, [Data("a"), Data("b"), Hang]);
        response.headers_mut().insert("content-length", 2.into());
        assert_eq!(outcome_of(response, frames).await.0, expected, "{frames} frames");
    }
}

#[tokio::test(start_paused = true)]
async fn a_call_is_ok_once_its_readers_have_the_dialects_own_end() {
    let good = || stream([Data(DELTA), Data(DELTA), Data(STOP), Data(DONE), Hang]);
    for hold in [Hold::Headers, Hold::FirstContent, Hold::Complete] {
        for (frames, expected) in
            [(0, Outcome::Cancelled), (1, Outcome::Cancelled), (4, Outcome::Ok)]
        {
            let (outcome, _) = classified(hold, good(), frames).await;
            assert_eq!(outcome, expected, "{hold:?}, {frames} frames");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn an_answer_that_is_whole_in_our_hands_is_not_yet_in_the_callers() {
    let (first, second) = WHOLE.split_at(50);
    let held = || answer(200, [Data(first), Data(second)]);
    for (frames, expected) in [(0, Outcome::Cancelled), (1, Outcome::Ok)] {
        let (outcome, book) = classified(Hold::Complete, held(), frames).await;
        assert_eq!(outcome, expected, "{frames} frames, which are joined");
        assert_eq!(book.call().usage, Some(Usage::new(9, 4)), "it was made and paid for");
    }
}

#[tokio::test(start_paused = true)]
async fn a_stream_that_breaks_is_incomplete_whenever_its_reader_leaves() {
    let error = "data: {\"error\":{\"message\":\"boom\",\"type\":\"server_error\"}}\n\n";
    for response in [
        stream([Data(DELTA), Data(DELTA)]),
        stream([Data(DELTA), Break]),
        stream([Data(DELTA), Data(error)]),
        stream([Data(DELTA), Data(error), Data(DONE)]),
    ] {
        let shown = format!("{response:?}");
        let (outcome, book) = classified(Hold::FirstContent, response, 9).await;
        assert_eq!(outcome, Outcome::Incomplete, "{shown}");
        assert!(book.call().error.is_some(), "{shown}");
        assert_eq!(book.call().produced_by, None, "{shown}");
    }
    let seen = stream([Data(DELTA), Data(error), Hang]);
    assert_eq!(classified(Hold::FirstContent, seen, 2).await.0, Outcome::Incomplete);
}

#[tokio::test(start_paused = true)]
async fn errors_are_told_by_whose_fault_they_are() {
    for (kind, expected) in [
        ("refused", Outcome::Rejected),
        ("full", Outcome::Rejected),
        ("ledger", Outcome::Rejected),
        ("invalid", Outcome::Rejected),
        ("transient", Outcome::Incomplete),
        ("foreign", Outcome::Incomplete),
    ] {
        let book = Book::new();
        let failing = service_fn(move |_: Request<RequestBody>| async move {
            let verdict = |class| backstop_core::Verdict::new(class);
            let error: backstop_core::BoxError = match kind {
                "refused" => Error::refused("because").into(),
                "full" => Error::RequestBody("broken".into()).into(),
                "ledger" => Error::Ledger("full".into()).into(),
                "invalid" => Error::attempt(verdict(Class::InvalidRequest), "no").into(),
                "transient" => Error::attempt(verdict(Class::Transient), "no").into(),
                _ => "no".into(),
            };
            Err::<Response<RequestBody>, _>(error)
        });
        let service = ProvenanceLayer::recording(book.clone()).layer(failing);
        let provenance = Provenance::new();
        let mut request = ask(CHAT);
        request.extensions_mut().insert(provenance.clone());
        service.oneshot(request).await.unwrap_err();
        assert_eq!(book.call().outcome, expected, "{kind}");
        assert!(book.call().error.is_some(), "{kind}");
        assert_eq!(provenance.outcome(), Some(expected), "{kind}");
        assert_eq!(provenance.id(), Some(book.call().call), "{kind}");
    }
}

#[tokio::test(start_paused = true)]
async fn what_is_returned_and_what_is_tried_again_can_be_set() {
    let book = Book::new();
    let layer = ProvenanceLayer::builder()
        .ledger(book.clone())
        .on(Class::InvalidRequest, Action::Retry)
        .on(Class::NotFound, Action::Return)
        .build()
        .unwrap();
    for (status, expected) in [(400, Outcome::Incomplete), (404, Outcome::Rejected)] {
        let service = layer.layer(Provider::new([answer(status, [])]));
        read(service.oneshot(ask(CHAT)).await.unwrap().into_body(), 9).await;
        assert_eq!(book.calls().last().unwrap().outcome, expected, "{status}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_body_that_is_too_large_or_breaks_off_is_on_the_record_and_goes_nowhere() {
    let provider = Provider::new([]);
    let book = Book::new();
    let layer = ProvenanceLayer::builder()
        .ledger(book.clone())
        .body_limit(ASK.len() as u64)
        .build()
        .unwrap();
    let send = |pieces: Vec<Piece>| {
        let request = Request::post(CHAT).body(Pieces::new(pieces)).unwrap();
        layer.layer(provider.clone()).oneshot(request)
    };
    let error = send(vec![Data(ASK), Data("x")]).await.unwrap_err();
    assert!(matches!(error, Error::TooLarge { .. }), "{error}");
    let error = send(vec![Data("{"), Break]).await.unwrap_err();
    assert!(matches!(error, Error::RequestBody(_)), "{error}");
    assert_eq!(book.calls_started().len(), 2);
    let outcomes: Vec<_> = book.calls().iter().map(|call| call.outcome).collect();
    assert_eq!(outcomes, [Outcome::Rejected; 2]);
    assert_eq!(provider.calls(), 0);
    assert_eq!(ASK.len(), 63, "the fixture stands at the bound");
    drop(send(vec![Data(ASK)]));
}

#[tokio::test(start_paused = true)]
async fn a_request_counts_in_the_buffers_until_its_answer_is_there() {
    let limit = BufferLimit::new(ASK.len() as u64);
    let layer = ProvenanceLayer::builder().buffer_limit(limit.clone()).build().unwrap();
    let service = layer.layer(Provider::new([answer(200, [Data("a"), Hang])]));
    let response = service.clone().oneshot(ask(CHAT)).await.unwrap();
    assert_eq!(limit.used(), 0, "the answer is there");
    let mut waiting = Box::pin(service.clone().oneshot(ask(CHAT)));
    assert!(poll_once(&mut waiting).is_pending());
    assert_eq!(limit.used(), ASK.len() as u64);
    let error = service.oneshot(ask(CHAT)).await.unwrap_err();
    assert!(matches!(error, Error::Full { .. }), "{error}");
    drop((response, waiting));
    assert_eq!(limit.used(), 0);
}

#[tokio::test(start_paused = true)]
async fn a_call_that_is_left_in_any_state_is_cancelled_once() {
    // The caller's body, the ledger, the service, the answer: each hangs in turn.
    let hanging = || Request::post(CHAT).body(Pieces::new([Data("{"), Hang])).unwrap();
    let whole = || Request::post(CHAT).body(Pieces::new([Data(ASK)])).unwrap();
    for (name, request, starts, answers, records) in [
        ("collecting", hanging(), vec![], vec![], 0),
        ("starting", whole(), vec![Start::Hang], vec![], 0),
        ("calling", whole(), vec![], vec![], 1),
        ("reading", whole(), vec![], vec![answer(200, [Data("a"), Hang])], 1),
    ] {
        let book = Book::scripted(starts);
        let provider = Provider::new(answers);
        let service = ProvenanceLayer::recording(book.clone()).layer(provider);
        let provenance = Provenance::new();
        let mut request = request;
        request.extensions_mut().insert(provenance.clone());
        let call = async {
            let response = service.oneshot(request).await.unwrap();
            assert_eq!(provenance.outcome(), None);
            read(response.into_body(), 9).await;
        };
        tokio::time::timeout(ms(100), call).await.unwrap_err();
        assert_eq!(provenance.outcome(), Some(Outcome::Cancelled), "{name}");
        assert_eq!(book.calls_started().len(), records, "{name}");
        let outcomes: Vec<_> = book.calls().iter().map(|call| call.outcome).collect();
        assert_eq!(outcomes, vec![Outcome::Cancelled; records], "{name}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_call_that_was_never_polled_is_left_too() {
    let provenance = Provenance::new();
    let mut request = ask(CHAT);
    request.extensions_mut().insert(provenance.clone());
    let mut service = ProvenanceLayer::new().layer(Provider::new([]));
    drop(tower::Service::call(&mut service, request));
    assert_eq!(provenance.outcome(), Some(Outcome::Cancelled));
}

#[tokio::test(start_paused = true)]
async fn the_record_holds_what_was_asked_and_what_came() {
    let book = Book::new();
    let layer = ProvenanceLayer::builder()
        .ledger(book.clone())
        .wall_clock(clock())
        .seed(Seed::new(7))
        .build()
        .unwrap();
    let provider = service_fn(|_: Request<RequestBody>| async {
        tokio::time::sleep(ms(1500)).await;
        Ok::<_, &str>(answer(200, [Data(WHOLE)]))
    });
    let service = ServiceBuilder::new().layer(layer).layer(ClassifyLayer::new()).service(provider);
    tokio::time::advance(secs(3)).await;
    let mut request = ask(CHAT);
    request.headers_mut().insert("x-stainless-retry-count", 2.into());
    request.extensions_mut().insert(CallOptions::new().run("r1").node("n1").lane("benchmark"));
    let response = service.oneshot(request).await.unwrap();
    let body = response.into_body().collect().await.unwrap().to_bytes();
    assert_eq!(body, WHOLE, "not a byte is changed");
    let started = &book.calls_started()[0];
    assert_eq!(started.at, new_year() + secs(3));
    assert_eq!(started.path, "/v1/chat/completions".into());
    assert_eq!(started.requested_model.as_deref(), Some("alias-x"));
    assert_eq!(started.caller_retry, Some(2));
    assert_eq!(started.body.to_bytes(), ASK);
    assert_eq!(started.labels.run.as_deref(), Some("r1"));
    assert_eq!(started.labels.lane.as_deref(), Some("benchmark"));
    let expected = CallId::new(new_year() + secs(3), Seed::new(7).split().bits());
    let finished = book.call();
    assert_eq!((finished.call, started.call), (expected, expected));
    assert_eq!(finished.outcome, Outcome::Ok);
    assert_eq!(finished.duration, ms(1500));
    assert_eq!(finished.reported_model.as_deref(), Some("model-a-1"));
    assert_eq!(finished.usage, Some(Usage::new(9, 4)));
    assert_eq!(finished.produced_by, Some(0));
    assert_eq!((finished.attempts, finished.waited), (0, Duration::ZERO), "nobody counts");
    assert!(finished.planned_chain.is_none() && finished.error.is_none());
    assert!(finished.decisions.is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_panic_below_leaves_the_record_unfinished() {
    let book = Book::new();
    let provenance = Provenance::new();
    let mut request = ask(CHAT);
    request.extensions_mut().insert(provenance.clone());
    let panics = service_fn(|_: Request<RequestBody>| async {
        if true {
            panic!("below");
        }
        Ok::<_, &str>(answer(200, []))
    });
    let service = ProvenanceLayer::recording(book.clone()).layer(panics);
    let call = tokio::spawn(async move { service.oneshot(request).await.map(drop) });
    assert!(call.await.unwrap_err().is_panic());
    assert_eq!((book.calls_started().len(), book.calls().len()), (1, 0));
    assert_eq!(provenance.outcome(), Some(Outcome::Interrupted));
}

#[test]
fn settings_that_make_no_sense_are_refused() {
    let error = ProvenanceLayer::builder().ledger_timeout(Duration::ZERO).build().unwrap_err();
    assert_eq!(error.key(), "ledger.timeout");
    let error = ProvenanceLayer::builder().body_limit(0).build().unwrap_err();
    assert_eq!(error.key(), "body_limit");
}
