//! Fallback, and calls that forbid it.

use backstop_core::{CallContext, CallOptions, Error, RequestBody};
use backstop_provenance::{AttemptLayer, Outcome, Provenance, ProvenanceLayer};
use http::Request;
use tower::{Layer, ServiceExt, service_fn};

use crate::support::Piece::Data;
use crate::support::*;

fn forbidding(provenance: &Provenance) -> Request<RequestBody> {
    let mut request = ask(CHAT);
    request.extensions_mut().insert(CallOptions::new().forbid_fallback());
    request.extensions_mut().insert(provenance.clone());
    request
}

#[tokio::test(start_paused = true)]
async fn a_fallbacks_answer_is_thrown_away_where_the_call_forbids_it() {
    for (first, is_forbidden) in [(200, false), (503, true)] {
        let book = Book::new();
        let provider = Provider::new([answer(first, [Data("a")]), answer(200, [Data("b")])]);
        let router = Router { inner: provider.clone(), chain: chain(1) };
        let service = ProvenanceLayer::recording(book.clone()).layer(router);
        let provenance = Provenance::new();
        let result = service.oneshot(forbidding(&provenance)).await;
        if !is_forbidden {
            assert!(!provenance.fallback_used());
            read(result.unwrap().into_body(), 9).await;
            assert_eq!(book.call().outcome, Outcome::Ok);
            continue;
        }
        let error = result.map(drop).unwrap_err();
        assert!(matches!(error, Error::Refused { answered: true, .. }), "{error}");
        assert!(error.to_string().ends_with("the answer was thrown away"), "{error}");
        assert_eq!(provider.calls(), 2, "the router did not obey");
        let call = book.call();
        assert_eq!((call.outcome, call.produced_by), (Outcome::Rejected, None));
        let what: Vec<_> = call.decisions.iter().map(|decision| &*decision.what).collect();
        assert_eq!(what, ["an answer of rung 1 was thrown away: the call forbids fallback"]);
        assert!(provenance.fallback_used(), "it was observed");
        assert_eq!(provenance.outcome(), Some(Outcome::Rejected));
    }
}

#[tokio::test(start_paused = true)]
async fn an_attempt_on_a_fallback_does_not_leave_where_the_call_forbids_it() {
    let book = Book::new();
    let provider = Provider::new([answer(503, [Data("a")]), answer(200, [Data("b")])]);
    let attempts = AttemptLayer::recording(book.clone());
    let router = Router { inner: attempts.layer(provider.clone()), chain: chain(1) };
    let service = ProvenanceLayer::recording(book.clone()).layer(router);
    let provenance = Provenance::new();
    let error = service.oneshot(forbidding(&provenance)).await.map(drop).unwrap_err();
    assert!(matches!(error, Error::Refused { answered: false, .. }), "{error}");
    assert_eq!(provider.calls(), 1);
    assert_eq!(book.attempt().class, "overloaded", "the refused one is no attempt");
    let call = book.call();
    assert_eq!((call.outcome, call.attempts), (Outcome::Rejected, 1));
    assert_eq!(call.decisions.len(), 1);
    assert!(call.decisions[0].what.starts_with("an attempt on rung 1 was refused"));
}

#[tokio::test(start_paused = true)]
async fn forbidding_says_nothing_of_the_primary() {
    let context = CallContext::new(CallOptions::new().forbid_fallback(), None, None);
    let mut request = ask(CHAT);
    request.extensions_mut().insert(context.clone());
    let service = AttemptLayer::new().layer(Provider::new([answer(200, [])]));
    assert!(service.clone().oneshot(request.clone()).await.is_ok());
    context.set_rung(1);
    assert!(service.oneshot(request).await.is_err());
}

#[tokio::test(start_paused = true)]
async fn the_rung_is_the_one_that_answered() {
    let inner = service_fn(|request: Request<RequestBody>| async move {
        let context = CallContext::of(&request).unwrap();
        context.plan(chain(1));
        context.set_rung(1);
        Ok::<_, &str>(answer(200, [Data("a"), Data("b")]))
    });
    let book = Book::new();
    let layer = ProvenanceLayer::builder().ledger(book.clone()).answer_headers(true);
    let response = layer.build().unwrap().layer(inner).oneshot(ask(CHAT)).await.unwrap();
    assert_eq!(response.headers()["x-backstop-profile"], "gpt");
    assert_eq!(response.headers()["x-backstop-model"], "model-b", "the one sent");
    assert_eq!(response.headers()["x-backstop-fallback"], "true");
    let provenance = Provenance::of(&response).unwrap().clone();
    assert_eq!(provenance.profile().map(|profile| profile.id()), Some("gpt"));
    assert_eq!(provenance.requested_model(), Some("alias-x"));
    assert_eq!(provenance.planned_chain(), Some(&chain(1)));
    read(response.into_body(), 1).await;
    let call = book.call();
    assert_eq!((call.outcome, call.produced_by), (Outcome::Cancelled, Some(1)), "a part of it");
}
