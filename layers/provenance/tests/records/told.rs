//! What a call tells: downwards, to its caller, and in the answer's head.

use backstop_classify::ClassifyLayer;
use backstop_core::{CallContext, CallId, CallOptions, RequestBody};
use backstop_provenance::{Provenance, ProvenanceLayer};
use http::Request;
use tower::{Layer, ServiceBuilder, ServiceExt, service_fn};

use crate::support::Piece::{Data, Hang};
use crate::support::chat::{DELTA, WHOLE};
use crate::support::*;

#[tokio::test(start_paused = true)]
async fn one_context_serves_the_call_and_the_callers_options_are_in_it() {
    let seen = std::sync::Arc::new(tokio::sync::watch::Sender::new(None));
    let told = std::sync::Arc::clone(&seen);
    let inner = service_fn(move |request: Request<RequestBody>| {
        assert!(request.extensions().get::<CallOptions>().is_none(), "they have moved");
        assert!(request.extensions().get::<Provenance>().is_none(), "it is the caller's");
        told.send_replace(CallContext::of(&request).cloned());
        async { Ok::<_, &str>(answer(200, [])) }
    });
    let service = ProvenanceLayer::new().layer(inner);
    let start = tokio::time::Instant::now().into_std();
    let mut request = ask(CHAT);
    request.extensions_mut().insert(CallOptions::new().node("n").deadline(secs(9)));
    service.clone().oneshot(request).await.unwrap();
    let context = seen.borrow().clone().unwrap();
    assert_eq!(context.labels().node.as_deref(), Some("n"));
    assert_eq!((context.started(), context.deadline()), (Some(start), Some(start + secs(9))));
    assert!(context.id().is_some());

    let own = CallContext::new(CallOptions::new().deadline(secs(5)), None, None);
    let id = CallId::new(new_year(), 1);
    own.set_id(id);
    let mut request = ask(CHAT);
    request.extensions_mut().insert(own.clone());
    let response = service.oneshot(request).await.unwrap();
    assert_eq!(Provenance::of(&response).unwrap().id(), Some(id), "the one that is there is used");
    assert_eq!(own.deadline(), Some(start + secs(5)));
}

#[tokio::test(start_paused = true)]
async fn a_handle_serves_the_first_call_that_takes_it() {
    let service = ProvenanceLayer::new().layer(Provider::new([answer(200, []), answer(503, [])]));
    let provenance = Provenance::new();
    assert_eq!((provenance.id(), provenance.outcome(), provenance.attempts()), (None, None, 0));
    let mut answers = Vec::new();
    for _ in 0..2 {
        let mut request = ask(CHAT);
        request.extensions_mut().insert(provenance.clone());
        answers.push(service.clone().oneshot(request).await.unwrap());
    }
    let ids: Vec<_> = answers.iter().map(|answer| Provenance::of(answer).unwrap().id()).collect();
    assert_eq!(provenance.id(), ids[0]);
    assert_ne!(ids[0], ids[1]);
}

#[tokio::test(start_paused = true)]
async fn the_answers_head_tells_where_it_comes_from_if_asked_to() {
    let layer = ProvenanceLayer::builder().answer_headers(true).build().unwrap();
    for (response, outcome, model) in [
        (answer(200, [Data(WHOLE)]), "ok", "model-a-1"),
        (stream([Data(DELTA), Hang]), "open", "model-a-1"),
        (
            stream([Data("data: {\"choices\":[{\"delta\":{\"content\":\"x\"}}]}\n\n")]),
            "open",
            "alias-x",
        ),
        (answer(503, [Data("{}")]), "incomplete", "alias-x"),
        (answer(400, [Data("{}")]), "rejected", "alias-x"),
    ] {
        let shown = format!("{response:?}");
        let service = ServiceBuilder::new()
            .layer(&layer)
            .layer(ClassifyLayer::new())
            .service(Provider::new([response]));
        let response = service.oneshot(ask(CHAT)).await.unwrap();
        let id = Provenance::of(&response).unwrap().id().unwrap().to_string();
        let headers = response.headers();
        assert_eq!(headers["x-backstop-outcome"], outcome, "{shown}");
        assert_eq!(headers["x-backstop-model"], model, "{shown}");
        assert_eq!(headers["x-backstop-call"], *id);
        assert_eq!(headers["x-backstop-attempts"], "0");
        assert_eq!(headers["x-backstop-fallback"], "false");
        assert_eq!(headers["x-backstop-waited-ms"], "0");
        assert!(!headers.contains_key("x-backstop-profile"));
    }
    let mut nested = answer(200, []);
    nested.headers_mut().insert("x-backstop-profile", "theirs".parse().unwrap());
    let response = layer.layer(Provider::new([nested])).oneshot(ask(CHAT)).await.unwrap();
    assert!(!response.headers().contains_key("x-backstop-profile"), "not ours to tell");
    let service = ProvenanceLayer::new().layer(Provider::new([answer(200, [])]));
    let response = service.oneshot(ask(CHAT)).await.unwrap();
    assert!(!response.headers().keys().any(|name| name.as_str().starts_with("x-backstop")));
}
