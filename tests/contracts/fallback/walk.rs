//! Waits between rungs, the deadline, bodies and readiness on the way along a chain.

use backstop::dialect::Dialect;
use backstop::testing::{Outcome, ReadinessProbe, Script, ScriptedService};
use backstop::{
    Action, BackoffLayer, CallContext, CallOptions, Chain, Class, ClassifyLayer, Error,
    FallbackRouterLayer, Jitter, Profile, RequestBody, Rung, Schedule, Verdict,
};
use tokio::time::Instant;
use tower::{Layer, Service, ServiceExt};

use crate::rig::{ASK, CHAT, GENERATE, MESSAGES, ms, post, receive, secs, waits};

/// Rungs without endpoints, so that one scripted service serves them all; `provider` of each is given.
fn rungs(providers: &[&str]) -> Chain {
    rungs_of(Dialect::OPENAI, providers)
}

fn rungs_of(dialect: Dialect, providers: &[&str]) -> Chain {
    let rungs = providers.iter().enumerate().map(|(n, provider)| {
        let profile = Profile::new(format!("id-{n}"), format!("model-{n}"), *provider, dialect);
        Rung::new(profile.unwrap(), 1).unwrap()
    });
    Chain::new(rungs).unwrap()
}

fn models(service: &ScriptedService) -> Vec<String> {
    let model = |call: &backstop::testing::SeenCall| {
        let body: serde_json::Value = serde_json::from_slice(&call.body).unwrap();
        body["model"].as_str().unwrap_or_default().to_owned()
    };
    service.log().iter().map(model).collect()
}

async fn ready<S>(service: &mut S) -> &mut S
where
    S: Service<http::Request<RequestBody>>,
    S::Error: std::fmt::Debug,
{
    service.ready().await.unwrap()
}

fn exact() -> Schedule {
    Schedule::new(ms(500), secs(60)).with_jitter(Jitter::None)
}

fn good() -> Outcome {
    Outcome::status(200)
        .json(r#"{"choices":[{"message":{"content":"hi"},"finish_reason":"stop"}]}"#)
}

#[tokio::test(start_paused = true)]
async fn b026_another_provider_is_asked_at_once_whatever_the_failure_looked_like() {
    let failures = [
        Outcome::status(429).json("{}"),
        Outcome::status(429).header("retry-after", "1"),
        Outcome::status(503),
        Outcome::io_error(std::io::ErrorKind::ConnectionRefused),
        Outcome::error("invalid HTTP version parsed"),
        Outcome::status(408),
    ];
    for failure in failures {
        for with_classify in [false, true] {
            let service = ScriptedService::new(Script::new([failure.clone(), good()]));
            let router = FallbackRouterLayer::new(rungs(&["p", "q"]));
            let request = post(CHAT, ASK);
            let start = Instant::now();
            let status = if with_classify {
                let stack = router.layer(ClassifyLayer::new().layer(service.clone()));
                stack.oneshot(request).await.unwrap().status()
            } else {
                router.layer(service.clone()).oneshot(request).await.unwrap().status()
            };
            assert_eq!(status, 200);
            assert_eq!(models(&service), ["model-0", "model-1"]);
            assert_eq!(start.elapsed(), ms(0), "no wait before the first send to Q");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn the_same_provider_is_left_alone_as_long_as_it_asked() {
    // Status, hint in seconds, and the wait before the next rung.
    let cases = [
        (429, None, ms(500)),
        (529, None, ms(500)),
        (429, Some("7"), secs(7)),
        (429, Some("120"), secs(120)),
        // Nobody asked for anything.
        (500, Some("7"), secs(0)),
        (503, Some("7"), secs(7)),
    ];
    for (status, hint, wait) in cases {
        let mut failure = Outcome::status(status);
        if let Some(hint) = hint {
            failure = failure.header("retry-after", hint);
        }
        let service = ScriptedService::new(Script::new([failure, good()]));
        let router =
            FallbackRouterLayer::builder(rungs(&["p", "p"])).schedule(exact()).build().unwrap();
        let answer = router.layer(service.clone()).oneshot(post(CHAT, ASK)).await.unwrap();
        assert_eq!(answer.status(), 200);
        assert_eq!(waits(&service), [wait], "{status} {hint:?}");
        let context = service.log()[1].head.extensions.get::<CallContext>().unwrap().clone();
        assert_eq!((context.attempt(), context.rung(), context.waited()), (2, 1, wait));
    }
}

#[tokio::test(start_paused = true)]
async fn a_rung_whose_provider_asks_for_too_long_a_wait_is_skipped_and_it_is_said_so() {
    let too_long = Outcome::status(429).header("retry-after", "121");
    let service = ScriptedService::new(Script::new([too_long, good()]));
    let router = FallbackRouterLayer::new(rungs(&["p", "p", "q"]));
    let answer = router.layer(service.clone()).oneshot(post(CHAT, ASK)).await.unwrap();
    assert_eq!(answer.status(), 200);
    assert_eq!(models(&service), ["model-0", "model-2"]);
    let context = service.log()[1].head.extensions.get::<CallContext>().unwrap().clone();
    let said: Vec<_> = context.decisions().map(|decision| decision.what.clone()).collect();
    assert_eq!(said.len(), 1);
    assert!(said[0].contains("id-1") && said[0].contains("max_hint"), "{said:?}");
}

#[tokio::test(start_paused = true)]
async fn the_deadline_spans_all_rungs_and_cuts_the_one_in_flight() {
    let slow = Outcome::status(500).after(secs(4));
    let service = ScriptedService::new(Script::new([slow]).repeat_last());
    let router = FallbackRouterLayer::builder(rungs(&["a", "b", "c", "d", "e"]));
    let router = router.deadline(secs(10)).build().unwrap();
    let start = Instant::now();
    let error = router.layer(service.clone()).oneshot(post(CHAT, ASK)).await.unwrap_err();
    assert_eq!((start.elapsed(), service.calls()), (secs(10), 3));
    assert_eq!(error.verdict().map(Verdict::class), Some(Class::Timeout));
    // The call's own comes first, and none is sent that could not be answered.
    let mut request = post(CHAT, ASK);
    request.extensions_mut().insert(CallOptions::new().deadline(secs(0)));
    let error = router.layer(service.clone()).oneshot(request).await.unwrap_err();
    assert_eq!((error.status().as_u16(), service.calls()), (504, 3));
    // A wait that it cannot hold is not begun.
    let busy = Outcome::status(429).header("retry-after", "11").body("busy");
    let service = ScriptedService::new(Script::new([busy]).repeat_last());
    let router =
        FallbackRouterLayer::builder(rungs(&["p", "p"])).deadline(secs(10)).build().unwrap();
    let start = Instant::now();
    let answer = router.layer(service.clone()).oneshot(post(CHAT, ASK)).await.unwrap();
    assert_eq!((answer.status().as_u16(), service.calls(), start.elapsed()), (429, 1, secs(0)));
}

#[tokio::test(start_paused = true)]
async fn the_last_answer_is_handed_on_and_a_failed_200_as_the_failure_it_was() {
    let hidden = r#"{"error":{"message":"boom","type":"server_error","code":"server_error"}}"#;
    let service = ScriptedService::new(Script::new([
        Outcome::status(503).body("first"),
        Outcome::status(200).json(hidden),
    ]));
    let router = FallbackRouterLayer::new(rungs(&["p", "q"]));
    let stack = router.layer(ClassifyLayer::new().layer(service));
    let answer = receive(stack.oneshot(post(CHAT, ASK)).await.unwrap()).await;
    assert!(answer.status.is_server_error(), "{}", answer.status);
    assert_eq!(answer.text(), hidden);
}

#[tokio::test(start_paused = true)]
async fn a_body_without_a_model_is_sent_to_the_primary_as_it_is_and_to_no_other() {
    for body in ["not json", r#"{"model":"a","model":"b"}"#, "{}"] {
        let service = ScriptedService::new(Script::new([Outcome::status(500)]).repeat_last());
        let router = FallbackRouterLayer::new(rungs(&["p", "q"]));
        let answer = router.layer(service.clone()).oneshot(post(CHAT, body)).await.unwrap();
        assert_eq!(answer.status(), 500);
        let log = service.log();
        assert_eq!((log.len(), &log[0].body[..]), (1, body.as_bytes()));
        let context = log[0].head.extensions.get::<CallContext>().unwrap();
        assert!(context.decisions().next().is_some_and(|d| d.what.contains("names no model")));
    }
}

#[tokio::test(start_paused = true)]
async fn each_dialects_model_and_effort_reach_the_wire() {
    let bodies = [
        (Dialect::OPENAI, CHAT, r#"{"reasoning_effort":"high","model":"declared"}"#),
        (Dialect::ANTHROPIC, MESSAGES, r#"{"output_config":{"effort":"high"},"model":"declared"}"#),
        (
            Dialect::GEMINI,
            GENERATE,
            r#"{"generationConfig":{"thinkingConfig":{"thinkingLevel":"high"}},"model":"declared"}"#,
        ),
    ];
    for (dialect, url, expected) in bodies {
        // Named after one model, and declares another: the declared one is sent.
        let profile = Profile::new("gpt-5.5", "declared", "p", dialect).unwrap();
        let router = FallbackRouterLayer::single(profile.with_reasoning("high"));
        let service = ScriptedService::new(Script::new([good()]));
        router.layer(service.clone()).oneshot(post(url, r#"{"model":"gpt-5.5"}"#)).await.unwrap();
        let log = service.log();
        assert_eq!(log[0].body, expected);
        let in_path = log[0].head.uri.path().contains("/models/declared:");
        assert_eq!(in_path, dialect == Dialect::GEMINI, "{}", log[0].head.uri);
    }
}

#[tokio::test(start_paused = true)]
async fn a_body_that_continues_state_goes_to_no_other_rung_unless_it_may() {
    let body = r#"{"model":"a","previous_response_id":"r"}"#;
    for (status, may, calls) in [(500, false, 1), (500, true, 2), (429, false, 2), (401, false, 2)]
    {
        let service = ScriptedService::new(Script::new([Outcome::status(status)]).repeat_last());
        let router = FallbackRouterLayer::builder(rungs(&["p", "q"])).retry_stateful(may);
        let stack = router.build().unwrap().layer(service.clone());
        stack.oneshot(post("http://p.test/v1/responses", body)).await.unwrap();
        assert_eq!(service.calls(), calls, "{status}");
    }
}

#[tokio::test(start_paused = true)]
async fn every_rung_gets_a_service_that_was_polled_ready_and_none_is_held_while_waiting() {
    let failing = Script::new([Outcome::status(529)]).repeat_last();
    let probe = ReadinessProbe::new(ScriptedService::new(failing));
    let limited = tower::limit::ConcurrencyLimit::new(probe.clone(), 1);
    let router = FallbackRouterLayer::new(rungs(&["p", "p", "p", "q"]));
    let mut stack = router.layer(limited);
    for _ in 0..3 {
        let answer = ready(&mut stack).await.call(post(CHAT, ASK)).await.unwrap();
        assert_eq!(answer.status(), 529);
    }
    // While one waits, another gets the only permit.
    let mut other = stack.clone();
    let waiting = tokio::spawn(stack.clone().oneshot(post(CHAT, ASK)));
    tokio::time::sleep(ms(100)).await;
    let begun = Instant::now();
    ready(&mut other).await;
    assert!(begun.elapsed() < ms(100), "the waiting call holds no permit");
    drop(other);
    assert_eq!(waiting.await.unwrap().unwrap().status(), 529);
}

#[tokio::test(start_paused = true)]
async fn actions_can_be_set_and_the_calls_own_chain_and_attempts_count() {
    let service = ScriptedService::new(Script::new([Outcome::status(400)]).repeat_last());
    let router = FallbackRouterLayer::builder(rungs(&["p", "q"]))
        .on(Class::InvalidRequest, Action::Next)
        .build()
        .unwrap();
    router.layer(service.clone()).oneshot(post(CHAT, ASK)).await.unwrap();
    assert_eq!(models(&service), ["model-0", "model-1"]);
    let service = ScriptedService::new(Script::new([Outcome::status(500)]).repeat_last());
    let backoff = BackoffLayer::builder().schedule(exact()).build().unwrap();
    let stack = FallbackRouterLayer::new(rungs(&["p"])).layer(backoff.layer(service.clone()));
    let mut request = post(CHAT, ASK);
    let own = CallOptions::new().chain(rungs(&["a", "b", "c"])).max_attempts(3);
    request.extensions_mut().insert(own);
    stack.oneshot(request).await.unwrap();
    let expected = ["model-0", "model-0", "model-0", "model-1", "model-2"];
    assert_eq!(models(&service), expected, "the caller's number counts for the primary");
    let log = service.log();
    let numbers = log.iter().map(|call| call.head.extensions.get::<CallContext>().unwrap());
    assert_eq!(numbers.last().map(|context| (context.attempt(), context.rung())), Some((5, 2)));
}

#[tokio::test(start_paused = true)]
async fn b024_a_chain_is_walked_once_and_never_starts_over() {
    let service = ScriptedService::from_fn(|call| {
        let is_first = call.body.windows(7).any(|word| word == b"model-0");
        Outcome::status(503).body(if is_first { r#"{"who":"P"}"# } else { r#"{"who":"Q"}"# })
    });
    let (p, q) =
        (rungs(&["p", "q"]).rungs()[0].profile().clone(), rungs(&["p", "q"]).rungs()[1].clone());
    let chain = Chain::new([Rung::new(p, 2).unwrap(), q]).unwrap();
    let backoff = BackoffLayer::builder().schedule(Schedule::new(ms(50), secs(1))).build().unwrap();
    let stack = FallbackRouterLayer::new(chain.clone()).layer(backoff.layer(service.clone()));
    for _ in 0..100 {
        let answer = receive(stack.clone().oneshot(post(CHAT, ASK)).await.unwrap()).await;
        assert_eq!((answer.status.as_u16(), answer.text().as_str()), (503, r#"{"who":"Q"}"#));
    }
    assert_eq!(service.calls(), 300);
    for call in models(&service).chunks(3) {
        assert_eq!(call, ["model-0", "model-0", "model-1"]);
    }
    // A profile that stands twice in a chain, under its own or another name, is refused at the start.
    let again = chain.rungs()[0].clone();
    let twice = Chain::new(chain.rungs().iter().cloned().chain([again]));
    assert!(twice.is_err());
}

#[tokio::test(start_paused = true)]
async fn a_call_that_is_dropped_in_any_state_leaves_nothing_in_flight() {
    let slow = Outcome::status(529).after(secs(1));
    for after in [ms(0), ms(500), ms(1_200), ms(1_700), ms(2_700)] {
        let service = ScriptedService::new(Script::new([slow.clone()]).repeat_last());
        let router = FallbackRouterLayer::builder(rungs(&["p", "p", "p"]))
            .schedule(exact())
            .build()
            .unwrap();
        let call = router.layer(service.clone()).oneshot(post(CHAT, ASK));
        let _ = tokio::time::timeout(after, call).await.unwrap_err();
        let sent = service.calls();
        tokio::time::sleep(secs(60)).await;
        assert_eq!(service.calls(), sent, "dropped after {after:?}");
        assert!(service.log().iter().all(|call| call.ended_at().is_some()));
    }
}

#[tokio::test(start_paused = true)]
async fn our_own_refusals_from_below_end_the_call_at_once() {
    let service = ScriptedService::new(Script::new([
        Outcome::error_with(|| Box::new(Error::refused("because"))),
        good(),
    ]));
    let router = FallbackRouterLayer::new(rungs(&["p", "q"]));
    let error = router.layer(service.clone()).oneshot(post(CHAT, ASK)).await.unwrap_err();
    assert!(matches!(error, Error::Refused { .. }), "{error}");
    assert_eq!(service.calls(), 1);
    let large = RequestBody::from(vec![b' '; 11]);
    let router = FallbackRouterLayer::builder(rungs(&["p", "q"])).body_limit(10).build().unwrap();
    let error = router.layer(service.clone()).oneshot(post(CHAT, large)).await.unwrap_err();
    assert!(matches!(error, Error::TooLarge { .. }), "{error}");
    assert_eq!(service.calls(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_context_that_serves_two_requests_never_mixes_their_bodies() {
    for shares in [false, true] {
        let service = ScriptedService::new(Script::new([Outcome::status(500)]).repeat_last());
        let router = FallbackRouterLayer::builder(rungs(&["p", "q"])).share_original(shares);
        let backoff = BackoffLayer::builder().max_retries(1).schedule(exact()).build().unwrap();
        let stack = router.build().unwrap().layer(backoff.layer(service.clone()));
        let context = CallContext::new(CallOptions::new(), None, None);
        for n in 1..=2 {
            let mut request = post(CHAT, format!(r#"{{"model":"x","request":{n}}}"#));
            request.extensions_mut().insert(context.clone());
            let before = service.calls();
            stack.clone().oneshot(request).await.unwrap();
            let log = service.log();
            assert!(log.len() > before + 1, "it was repeated, or fell back");
            for call in &log[before..] {
                let body = String::from_utf8(call.body.to_vec()).unwrap();
                assert!(body.contains(&format!(r#""request":{n}"#)), "{body}");
            }
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_call_that_is_sent_this_way_again_begins_at_the_primary_and_says_so() {
    let service = ScriptedService::new(Script::new([Outcome::status(500)]).repeat_last());
    let router = FallbackRouterLayer::new(rungs(&["p", "q"])).layer(service.clone());
    let backoff = BackoffLayer::builder().max_retries(2).schedule(exact()).build().unwrap();
    let mut request = post(CHAT, ASK);
    request.extensions_mut().insert(CallContext::new(CallOptions::new(), None, None));
    backoff.layer(router).oneshot(request).await.unwrap();
    let expected: Vec<_> = ["model-0", "model-1"].into_iter().cycle().take(6).collect();
    assert_eq!(models(&service), expected, "every pass goes to its end");
    let context = service.log()[0].head.extensions.get::<CallContext>().unwrap().clone();
    assert_eq!((context.attempt(), context.rung()), (6, 1));
}

#[tokio::test(start_paused = true)]
async fn a_layer_between_can_forbid_fallback_too() {
    let service = ScriptedService::new(Script::new([Outcome::status(500)]).repeat_last());
    let router = FallbackRouterLayer::new(rungs(&["p", "q"])).layer(service.clone());
    let mut request = post(CHAT, ASK);
    request.extensions_mut().insert(CallContext::new(CallOptions::new(), None, None));
    request.extensions_mut().insert(CallOptions::new().forbid_fallback());
    let error = router.oneshot(request).await.unwrap_err();
    assert!(matches!(error, Error::Refused { .. }), "{error}");
    assert_eq!(service.calls(), 0);
}

#[tokio::test(start_paused = true)]
async fn what_a_caller_puts_beside_its_handle_goes_away_with_the_call() {
    #[derive(Clone)]
    #[expect(dead_code, reason = "they are held, and not read")]
    struct State(backstop::Provenance, std::sync::Arc<()>);
    let service = ScriptedService::new(Script::new([good()]).repeat_last());
    let stack = backstop::Stack::new(rungs(&["p", "q"])).layer(service);
    let mark = std::sync::Arc::new(());
    for _ in 0..3 {
        let who = backstop::Provenance::new();
        let mut request = post(CHAT, ASK);
        request.extensions_mut().insert(who.clone());
        request.extensions_mut().insert(State(who, mark.clone()));
        receive(stack.clone().oneshot(request).await.unwrap()).await;
    }
    // The scripted service keeps what it saw; with it goes all of it.
    drop(stack);
    assert_eq!(std::sync::Arc::strong_count(&mark), 1);
}
