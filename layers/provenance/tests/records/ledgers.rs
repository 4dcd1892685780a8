//! Ledgers that are slow, fail, and work again.

use backstop_core::Error;
use backstop_provenance::{
    AttemptLayer, Finished, NoLedger, OnFailure, Outcome, Provenance, ProvenanceLayer,
};
use tower::{Layer, ServiceBuilder, ServiceExt};

use crate::support::Piece::Data;
use crate::support::*;

fn calls(book: &Book, on_failure: OnFailure) -> ProvenanceLayer<Book> {
    ProvenanceLayer::builder().ledger(book.clone()).on_failure(on_failure).build().unwrap()
}

fn attempts(book: &Book, on_failure: OnFailure) -> AttemptLayer<Book> {
    AttemptLayer::builder().ledger(book.clone()).on_failure(on_failure).build().unwrap()
}

#[tokio::test(start_paused = true)]
async fn what_cannot_be_recorded_is_not_sent() {
    for start in [Start::Fail, Start::Hang] {
        let book = Book::scripted([start]);
        let provider = Provider::new([answer(200, [])]);
        let service = calls(&book, OnFailure::Refuse).layer(provider.clone());
        let provenance = Provenance::new();
        let mut request = ask(CHAT);
        request.extensions_mut().insert(provenance.clone());
        let began = tokio::time::Instant::now();
        let error = service.oneshot(request).await.unwrap_err();
        assert!(matches!(error, Error::Ledger(_)), "{error}");
        assert_eq!(provider.calls(), 0);
        assert!(book.entries().is_empty());
        assert_eq!(provenance.outcome(), Some(Outcome::Rejected));
        let waited = if matches!(start, Start::Hang) { secs(5) } else { secs(0) };
        assert_eq!(began.elapsed(), waited, "{start:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn an_attempt_that_cannot_be_recorded_does_not_leave_and_ends_the_call() {
    let book = Book::scripted([Start::Keep, Start::Fail]);
    let provider = Provider::new([answer(200, [])]);
    let service = ServiceBuilder::new()
        .layer(calls(&book, OnFailure::Refuse))
        .layer(backstop_backoff::BackoffLayer::new())
        .layer(attempts(&book, OnFailure::Refuse))
        .service(provider.clone());
    let error = service.oneshot(ask(CHAT)).await.unwrap_err();
    assert!(matches!(error, Error::Ledger(_)), "{error}");
    assert_eq!(provider.calls(), 0);
    assert_eq!((book.attempts_started().len(), book.attempts().len()), (0, 0));
    let call = book.call();
    assert_eq!((call.outcome, call.attempts), (Outcome::Rejected, 0));
    assert!(call.error.unwrap().contains("no space left on the device"));
}

#[tokio::test(start_paused = true)]
async fn a_loss_is_counted_and_the_call_goes_on() {
    let book = Book::scripted([Start::Fail, Start::Hang, Start::Keep, Start::Fail]);
    let script = (0..4).map(|_| answer(200, [Data("{}")]));
    let layer = calls(&book, OnFailure::Continue);
    let service = layer.layer(Provider::new(script));
    for (n, losses) in [1, 2, 2, 3].into_iter().enumerate() {
        let response = service.clone().oneshot(ask(CHAT)).await.unwrap();
        let provenance = Provenance::of(&response).unwrap().clone();
        read(response.into_body(), 9).await;
        assert_eq!(provenance.outcome(), Some(Outcome::Ok), "{n}");
        assert_eq!(layer.losses(), losses, "{n}");
        assert_eq!(layer.clone().losses(), losses, "shared by clones");
    }
    assert_eq!((book.calls_started().len(), book.calls().len()), (1, 1));
}

#[tokio::test(start_paused = true)]
async fn a_lost_attempt_is_counted_by_its_own_layer_and_still_an_attempt() {
    let book = Book::scripted([Start::Keep, Start::Fail]);
    let (calls, attempts) = (calls(&book, OnFailure::Refuse), attempts(&book, OnFailure::Continue));
    let service = ServiceBuilder::new()
        .layer(&calls)
        .layer(&attempts)
        .service(Provider::new([answer(200, [])]));
    read(service.oneshot(ask(CHAT)).await.unwrap().into_body(), 9).await;
    assert_eq!((calls.losses(), attempts.losses()), (0, 1));
    assert!(book.attempts().is_empty());
    assert_eq!(book.call().attempts, 1);
}

#[tokio::test(start_paused = true)]
async fn nothing_is_sent_before_the_start_is_kept() {
    let book = Book::scripted([Start::KeepAfter(secs(2)), Start::KeepAfter(secs(3))]);
    let provider = Provider::new([answer(200, [])]);
    let service = ServiceBuilder::new()
        .layer(calls(&book, OnFailure::Refuse))
        .layer(attempts(&book, OnFailure::Refuse))
        .service(provider.clone());
    let began = tokio::time::Instant::now();
    let call = tokio::spawn(service.oneshot(ask(CHAT)));
    tokio::time::sleep(ms(4999)).await;
    assert_eq!((provider.calls(), book.calls_started().len()), (0, 1));
    let response = call.await.unwrap().unwrap();
    assert_eq!((provider.calls(), began.elapsed()), (1, secs(5)));
    read(response.into_body(), 9).await;
    assert_eq!(book.attempt().duration, secs(0), "the ledger's time is not the provider's");
    assert_eq!(book.call().duration, secs(5), "but it is the caller's");
}

#[tokio::test(start_paused = true)]
async fn the_time_for_a_start_is_exact() {
    for (time, is_kept) in [(ms(1999), true), (ms(2001), false)] {
        let book = Book::scripted([Start::KeepAfter(time)]);
        let layer = ProvenanceLayer::builder().ledger(book.clone()).ledger_timeout(secs(2)).build();
        let service = layer.unwrap().layer(Provider::new([answer(200, [])]));
        let began = tokio::time::Instant::now();
        assert_eq!(service.oneshot(ask(CHAT)).await.is_ok(), is_kept, "{time:?}");
        assert_eq!(began.elapsed(), time.min(secs(2)));
    }
}

#[tokio::test(start_paused = true)]
async fn an_attempts_record_is_finished_before_its_calls() {
    let book = Book::new();
    let service = ServiceBuilder::new()
        .layer(calls(&book, OnFailure::Refuse))
        .layer(attempts(&book, OnFailure::Refuse))
        .service(Provider::new([answer(200, [Data("a")])]));
    // Read to the end, and dropped.
    for frames in [9, 0] {
        let before = book.entries().len();
        let service = service.clone();
        let service = if frames == 0 {
            ServiceBuilder::new()
                .layer(calls(&book, OnFailure::Refuse))
                .layer(attempts(&book, OnFailure::Refuse))
                .service(Provider::new([answer(200, [Data("a")])]))
        } else {
            service
        };
        read(service.oneshot(ask(CHAT)).await.unwrap().into_body(), frames).await;
        let kinds: Vec<_> = book.entries()[before..]
            .iter()
            .map(|entry| format!("{entry:?}"))
            .map(|text| text.chars().filter(|c| c.is_alphabetic()).take(15).collect::<String>())
            .collect();
        assert_eq!(
            kinds,
            ["StartedCallCall", "StartedAttemptA", "FinishedAttempt", "FinishedCallCal"]
        );
    }
}

#[tokio::test(start_paused = true)]
async fn an_attempt_in_flight_is_finished_before_the_call_that_is_left() {
    let book = Book::new();
    let service = ServiceBuilder::new()
        .layer(calls(&book, OnFailure::Refuse))
        .layer(backstop_backoff::BackoffLayer::new())
        .layer(attempts(&book, OnFailure::Refuse))
        .service(Provider::new([]));
    assert!(tokio::time::timeout(secs(1), service.oneshot(ask(CHAT))).await.is_err());
    assert_eq!((book.call().outcome, book.attempt().class), (Outcome::Cancelled, "cancelled"));
    let last = book.entries().pop();
    assert!(matches!(last, Some(Entry::Finished(Finished::Call(_)))), "{last:?}");
}

#[tokio::test(start_paused = true)]
async fn without_a_ledger_the_answer_tells_all_the_same() {
    let service = ServiceBuilder::new()
        .layer(ProvenanceLayer::new())
        .layer(AttemptLayer::<NoLedger>::new())
        .service(Provider::new([answer(200, [Data("a")])]));
    let response = service.oneshot(ask(CHAT)).await.unwrap();
    let provenance = Provenance::of(&response).unwrap().clone();
    assert_eq!((provenance.attempts(), provenance.outcome()), (1, None));
    read(response.into_body(), 9).await;
    assert_eq!(provenance.outcome(), Some(Outcome::Ok));
}
