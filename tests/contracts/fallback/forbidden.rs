//! Where fallback is forbidden, it fails closed: declared, per call, on streams before and after their
//! first byte.

use backstop::testing::{Answer, Script, ScriptedProvider};
use backstop::{
    BackoffLayer, CallOptions, ClassifyLayer, Error, FallbackRouterLayer, Hold, Jitter, Schedule,
};
use tower::{Layer, ServiceExt};

use super::{chain, profile};
use crate::rig::{ASK, client, ms, post, receive};

const URL: &str = "http://nobody.test/v1/chat/completions";

#[test]
fn a_layer_that_forbids_what_its_chain_declares_is_not_built() {
    let both = chain([(profile("p", "http://p.test"), 3), (profile("q", "http://q.test"), 1)]);
    let error = FallbackRouterLayer::builder(both).forbid_fallback().build().unwrap_err();
    assert_eq!(error.key(), "fallback");
    assert!(error.to_string().contains('q'), "{error}");
    let alone = chain([(profile("p", "http://p.test"), 3)]);
    assert!(FallbackRouterLayer::builder(alone).forbid_fallback().build().is_ok());
}

#[tokio::test]
async fn a_call_that_forbids_it_is_refused_before_anything_is_sent() {
    let provider = ScriptedProvider::start(Script::new([])).await.unwrap();
    let both = chain([(profile("p", &provider.url()), 3), (profile("q", &provider.url()), 1)]);
    let alone = chain([(profile("p", &provider.url()), 3)]);
    let allows = FallbackRouterLayer::new(both.clone()).layer(client());
    let forbids = FallbackRouterLayer::builder(alone).forbid_fallback().build().unwrap();
    let forbids = forbids.layer(client());
    let mut by_the_call = post(URL, ASK);
    by_the_call.extensions_mut().insert(CallOptions::new().forbid_fallback());
    let mut by_the_layer = post(URL, ASK);
    by_the_layer.extensions_mut().insert(CallOptions::new().chain(both));
    for (router, request) in [(allows, by_the_call), (forbids, by_the_layer)] {
        let error = router.oneshot(request).await.unwrap_err();
        assert!(matches!(error, Error::Refused { .. }), "{error}");
        assert_eq!((error.status().as_u16(), error.kind()), (403, "refused"));
        assert!(error.to_string().contains('q'), "it names the chain: {error}");
    }
    assert_eq!((provider.requests(), provider.connections()), (0, 0));
}

/// B023: the switch is obeyed wherever the primary fails.
#[tokio::test]
async fn b023_no_fallback_is_obeyed_before_the_stream_and_while_it_runs() {
    let q = ScriptedProvider::start(Script::new([])).await.unwrap();
    let delta = r#"{"choices":[{"index":0,"delta":{"content":"a"}}]}"#;
    let failures = [
        Answer::accept_then_close(),
        Answer::status(503),
        Answer::sse().event(r#"{"error":{"message":"boom","type":"server_error"}}"#),
        Answer::sse().event(delta).event(delta).reset(),
        Answer::sse().event(delta).event(delta).silence(),
    ];
    for (run, failure) in failures.into_iter().enumerate() {
        for hold in [Hold::Headers, Hold::FirstContent, Hold::Complete] {
            let p = ScriptedProvider::start(Script::new([failure.clone()]).repeat_last())
                .await
                .unwrap();
            // Q is known, and may be asked by others; this call may not.
            let alone = chain([(profile("p", &p.url()), 2)]);
            let timeouts = backstop::Timeouts::none().idle(Some(ms(150)));
            let classify = ClassifyLayer::builder().hold(hold).timeouts(timeouts).build().unwrap();
            let quick = Schedule::new(ms(1), ms(2)).with_jitter(Jitter::None);
            let backoff = BackoffLayer::builder().schedule(quick).build().unwrap();
            let stack =
                FallbackRouterLayer::new(alone).layer(backoff.layer(classify.layer(client())));
            let mut request = post(URL, ASK);
            request.extensions_mut().insert(CallOptions::new().forbid_fallback());
            let failed = match stack.oneshot(request).await {
                Ok(response) => {
                    let answer = receive(response).await;
                    answer.status != 200 || answer.error.is_some()
                }
                Err(_) => true,
            };
            assert!(failed, "run {run}, {hold:?}: the failure reaches the caller");
            assert!(p.connections() > 0);
            assert_eq!(q.connections(), 0, "run {run}, {hold:?}");
        }
    }
}
