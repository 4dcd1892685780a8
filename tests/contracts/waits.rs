//! Waits, exact to the nanosecond of a paused clock.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, SystemTime};

use backstop::testing::{Outcome, Script, ScriptedService, script};
use backstop::vocabulary::{Guards, WallClock};
use backstop::{
    BackoffLayer, CallOptions, ClassifyLayer, Error, Jitter, Limit, OnExhausted, Schedule, Seed,
};
use bytes::Bytes;
use http::{Request, Response};
use http_body_util::Full;
use tokio::time::Instant;
use tower::{Layer, ServiceBuilder, ServiceExt};

use crate::support::{CHAT, exact_backoff, millis, post, secs};

/// When each attempt reached the provider, from the first.
fn gaps(service: &ScriptedService) -> Vec<Duration> {
    let calls = service.log();
    calls.windows(2).map(|pair| pair[1].at - pair[0].at).collect()
}

/// tokio's timers fire at the next whole millisecond.
fn whole_millis(wait: Duration) -> Duration {
    Duration::from_millis(wait.as_nanos().div_ceil(1_000_000).try_into().unwrap())
}

fn always(status: u16) -> Script<Outcome> {
    Script::new([]).then(Outcome::status(status))
}

/// The waits that a schedule gives with a seed, computed apart from any layer.
fn expected(schedule: &Schedule, seed: &Seed, retries: u32) -> Vec<Duration> {
    use backstop::vocabulary::{Bounds, Next, Retries};
    let mut guards = Guards::default();
    guards.max_retry_time = Limit::Unlimited;
    let bounds = Bounds::new(guards);
    let (mut state, now) = (Retries::new(), Instant::now().into_std());
    (0..retries)
        .map(|_| match state.next(schedule, &bounds, None, now, seed) {
            Next::Wait { wait, .. } => wait,
            Next::Stop(guard) => panic!("stopped by {guard}"),
        })
        .collect()
}

#[tokio::test(start_paused = true)]
async fn every_kind_of_jitter_waits_as_long_as_its_seed_says() {
    for jitter in [
        Jitter::None,
        Jitter::Additive(0.25),
        Jitter::Additive(1.0),
        Jitter::Full,
        Jitter::Equal,
        Jitter::Decorrelated,
    ] {
        let schedule = Schedule::default().with_jitter(jitter);
        for seed in 0..20 {
            let service = ScriptedService::new(always(503));
            let layer = BackoffLayer::builder()
                .schedule(schedule.clone())
                .max_retry_time(Limit::Unlimited)
                .seed(Seed::new(seed))
                .build()
                .unwrap();
            let start = Instant::now();
            let response = layer.layer(service.clone()).oneshot(post(CHAT)).await.unwrap();
            assert_eq!(response.status(), 503);
            let waits = expected(&schedule, &Seed::new(seed), 7);
            let whole: Vec<_> = waits.iter().copied().map(whole_millis).collect();
            assert_eq!(gaps(&service), whole, "{jitter:?}, seed {seed}");
            assert_eq!(start.elapsed(), whole.iter().sum(), "no wait after the last attempt");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn the_defaults_are_seven_retries_and_63_and_a_half_seconds() {
    let service = ScriptedService::new(always(500));
    let layer = exact_backoff().build().unwrap();
    let start = Instant::now();
    let response = layer.layer(service.clone()).oneshot(post(CHAT)).await.unwrap();
    assert_eq!((response.status().as_u16(), service.calls()), (500, 8));
    assert_eq!(start.elapsed(), millis(63_500));
    assert_eq!(gaps(&service), [500, 1_000, 2_000, 4_000, 8_000, 16_000, 32_000].map(millis));
}

#[tokio::test(start_paused = true)]
async fn both_presets_wait_as_document_a_says() {
    for (builder, waits) in [
        (BackoffLayer::anthropic(), [2, 4, 8, 16]),
        (BackoffLayer::gemini_free_tier(), [15, 30, 60, 60]),
    ] {
        let service = ScriptedService::new(always(529));
        let layer = builder.jitter(Jitter::None).build().unwrap();
        layer.layer(service.clone()).oneshot(post(CHAT)).await.unwrap();
        assert_eq!(gaps(&service), waits.map(secs), "five attempts");
    }
}

#[tokio::test(start_paused = true)]
async fn clones_of_one_stack_wait_alike_and_share_no_counters() {
    let service = ScriptedService::from_fn(|_| Outcome::status(503));
    let layer = exact_backoff().max_retries(3).build().unwrap();
    let main = layer.layer(service);
    let auxiliary = main.clone();
    let call = |stack: backstop::backoff::Backoff<ScriptedService>| async move {
        let start = Instant::now();
        stack.oneshot(post(CHAT)).await.unwrap();
        start.elapsed()
    };
    let (first, second) = tokio::join!(call(main.clone()), call(auxiliary.clone()));
    assert_eq!((first, second), (millis(3_500), millis(3_500)), "at the same time");
    assert_eq!(call(auxiliary).await, millis(3_500), "and one after the other");
    assert_eq!(call(main).await, millis(3_500));
}

/// The most memory that a call held at one time which failed `failures` times, and how long it took.
fn outlive(failures: usize) -> (u64, Duration) {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .start_paused(true)
        .build()
        .unwrap();
    let mut took = Duration::ZERO;
    let memory = allocation_counter::measure(|| {
        took = runtime.block_on(async {
            let seen = Arc::new(AtomicUsize::new(0));
            // Not a scripted service: its log would grow with every call.
            let provider = tower::service_fn(move |_: Request<backstop::RequestBody>| {
                let failed = seen.fetch_add(1, Ordering::Relaxed) < failures;
                let status = if failed { 503 } else { 200 };
                let answer = Response::builder().status(status).body(Full::new(Bytes::new()));
                std::future::ready(answer.map_err(backstop::vocabulary::BoxError::from))
            });
            let layer = BackoffLayer::builder()
                .max_retries(Limit::Unlimited)
                .max_retry_time(Limit::Unlimited)
                .jitter(Jitter::None)
                .build()
                .unwrap();
            let start = Instant::now();
            let response = layer.layer(provider).oneshot(post(CHAT)).await.unwrap();
            assert_eq!(response.status(), 200);
            start.elapsed()
        });
    });
    (memory.bytes_max, took)
}

#[test]
fn with_both_guards_off_it_goes_on_for_ten_thousand_retries_with_flat_memory() {
    let (few, _) = outlive(100);
    let (many, took) = outlive(10_000);
    let doubling: Duration =
        [500, 1_000, 2_000, 4_000, 8_000, 16_000, 32_000].map(millis).iter().sum();
    assert_eq!(took, doubling + secs(60) * 9_993);
    assert_eq!(few, many, "bytes held at most");
}

fn wall() -> SystemTime {
    httpdate::parse_http_date("Thu, 01 Jan 2026 00:00:00 GMT").unwrap()
}

#[tokio::test(start_paused = true)]
async fn a_dated_hint_is_exact_on_a_paused_clock_however_late_it_comes() {
    // The layer is built now; the answers come an hour later, with dates against that hour.
    let clock = WallClock::new(wall(), Instant::now().into_std());
    let service = ScriptedService::new([
        Outcome::status(503).header("retry-after", "Thu, 01 Jan 2026 01:00:07 GMT"),
        Outcome::status(503).header("retry-after", "Thu, 01 Jan 2026 01:00:07 GMT"),
        Outcome::status(200),
    ]);
    let layer = exact_backoff().wall_clock(clock).build().unwrap();
    tokio::time::sleep(secs(3_600)).await;
    layer.layer(service.clone()).oneshot(post(CHAT)).await.unwrap();
    assert_eq!(
        gaps(&service),
        [secs(7), secs(1)],
        "the second date has passed: the schedule's turn"
    );
}

/// Every case of the wire's collection that carries a hint, through the whole stack.
#[tokio::test(start_paused = true)]
async fn every_form_of_hint_is_waited_for_exactly() {
    let cases = std::fs::read_to_string("tests/data/wire-cases.jsonl").unwrap();
    let mut seen = 0;
    for case in cases.lines().map(|line| serde_json::from_str::<serde_json::Value>(line).unwrap()) {
        let known = ["openai", "anthropic", "gemini"].contains(&case["provider"].as_str().unwrap());
        let expect = &case["expect"];
        let plain = case["encoding"].is_null() && case["streaming"] == false;
        let Some(hint) = expect["retry_after_ms"].as_u64() else { continue };
        if !known || !plain || expect["retryable"] == false {
            continue;
        }
        seen += 1;
        let now = case["now"].as_str().map_or_else(wall, |now| {
            let date = now.replace('T', " ");
            assert!(date.starts_with("2026-01-01 00:00:00"), "{now}");
            wall()
        });
        let mut failure = Outcome::status(case["status"].as_u64().unwrap().try_into().unwrap());
        for (name, value) in case["headers"].as_object().unwrap() {
            failure = failure.header(name, value.as_str().unwrap());
        }
        let failure = failure.body(case["body"].as_str().unwrap().to_owned());
        let path = case["endpoint"].as_str().unwrap();
        let answer = match case["provider"].as_str().unwrap() {
            "openai" if path.ends_with("/responses") => script::openai::responses("m", "yes"),
            "openai" => script::openai::chat("m", "yes"),
            "anthropic" => script::anthropic::message("m", "yes"),
            _ => script::gemini::content("m", "yes"),
        };
        let service = ScriptedService::new([failure, Outcome::from(answer)]);
        let clock = WallClock::new(now, Instant::now().into_std());
        let stack = ServiceBuilder::new()
            .layer(exact_backoff().max_hint(Limit::Unlimited).wall_clock(clock).build().unwrap())
            .layer(ClassifyLayer::builder().wall_clock(clock).build().unwrap())
            .service(service.clone());
        stack.oneshot(post(path)).await.unwrap();
        // The schedule's first wait is half a second; a shorter hint does not shorten it.
        let wait = Duration::from_millis(hint).max(millis(500));
        assert_eq!(gaps(&service), [wait], "{}", case["id"]);
    }
    assert!(seen >= 12, "only {seen} cases with a hint: is the collection whole?");
}

#[tokio::test(start_paused = true)]
async fn a_hint_at_max_hint_is_slept_through_and_one_past_it_ends_the_rung_at_once() {
    for (hint, calls) in [("120", 2), ("120.001", 1), ("121", 1)] {
        let service = ScriptedService::new([
            Outcome::status(429).header("retry-after", hint).json(r#"{"why":"slow"}"#),
            Outcome::status(200),
        ]);
        let start = Instant::now();
        let layer = exact_backoff().build().unwrap();
        let response = layer.layer(service.clone()).oneshot(post(CHAT)).await.unwrap();
        assert_eq!(service.calls(), calls, "{hint}");
        let waited = if calls == 2 { secs(120) } else { Duration::ZERO };
        assert_eq!(start.elapsed(), waited);
        if calls == 1 {
            assert_eq!(
                (response.status().as_u16(), &response.headers()["retry-after"]),
                (429, &hint.parse().unwrap())
            );
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_deadline_that_the_wait_would_reach_ends_the_call_at_once() {
    for (deadline, calls) in [(millis(500), 1), (millis(501), 2)] {
        let service = ScriptedService::new([Outcome::status(503), Outcome::status(200)]);
        let start = Instant::now();
        let layer = exact_backoff().deadline(deadline).build().unwrap();
        let response = layer.layer(service.clone()).oneshot(post(CHAT)).await.unwrap();
        assert_eq!(service.calls(), calls, "{deadline:?}");
        assert_eq!(response.status().as_u16(), if calls == 1 { 503 } else { 200 });
        assert_eq!(start.elapsed(), if calls == 1 { Duration::ZERO } else { millis(500) });
    }
}

/// Document C: what giving up says.
#[tokio::test(start_paused = true)]
async fn giving_up_names_url_label_retries_waiting_and_guards() {
    let service = ScriptedService::from_fn(|_| {
        Outcome::status(529)
            .json(r#"{"type":"error","error":{"type":"overloaded_error","message":"Overloaded"}}"#)
    });
    let stack = ServiceBuilder::new()
        .layer(
            exact_backoff()
                .max_retry_time(Limit::Unlimited)
                .on_exhausted(OnExhausted::Error)
                .build()
                .unwrap(),
        )
        .layer(ClassifyLayer::new())
        .service(service);
    let mut request = Request::post("https://me:pw@api.example.com/v1/messages?key=SECRET")
        .body(Full::new(Bytes::from("{}")))
        .unwrap();
    request.extensions_mut().insert(CallOptions::new().run("run-1").node("node-7"));
    let error = stack.oneshot(request).await.map(Response::into_parts).unwrap_err();
    assert_eq!((error.kind(), error.status().as_u16()), ("timeout", 504));
    let Error::Exhausted(exhausted) = &error else { panic!("{error:?}") };
    assert_eq!(exhausted.url(), "https://api.example.com/v1/messages");
    assert_eq!(exhausted.label(), Some("node-7"));
    assert_eq!((exhausted.retries(), exhausted.waited()), (7, millis(63_500)));
    assert_eq!(exhausted.stopped_by().as_str(), "max_retries");
    assert_eq!(
        error.to_string(),
        "gave up on https://api.example.com/v1/messages for \"node-7\" after 7 retries and 63.5s of \
         waiting (ended by max_retries; switched off: max_retry_time); last failure: overloaded, \
         status 529, code overloaded_error: Overloaded"
    );
}
