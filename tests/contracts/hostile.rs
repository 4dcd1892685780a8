//! Providers, callers and settings that mean no good, each found by attacking the layers.

use std::convert::Infallible;
use std::pin::Pin;
use std::task::{Context, Poll};

use backstop::classify::{Answer, Timeouts};
use backstop::testing::{Outcome, ReadinessProbe, ScriptedBody, ScriptedService, Step, script};
use backstop::vocabulary::{TimedOut, Unprocessed};
use backstop::{
    AttemptCell, BackoffLayer, CallContext, CallOptions, Class, ClassifyLayer, Hold, OnExhausted,
    RequestBody, Verdict,
};
use bytes::Bytes;
use http::{Request, Response};
use http_body::{Body, Frame, SizeHint};
use http_body_util::BodyExt;
use tokio::time::Instant;
use tower::{Layer, ServiceBuilder, ServiceExt};

use crate::rig::gzip;
use crate::support::{CHAT, exact_backoff, millis, post, read, secs, sse};

/// A body that never waits and never ends.
struct Endless {
    frame: &'static str,
    hint: SizeHint,
}

impl Endless {
    fn of(frame: &'static str) -> Self {
        Self { frame, hint: SizeHint::new() }
    }
}

impl Body for Endless {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        Poll::Ready(Some(Ok(Frame::data(Bytes::from_static(self.frame.as_bytes())))))
    }

    fn size_hint(&self) -> SizeHint {
        self.hint
    }
}

fn answers(
    status: u16,
    content_type: &'static str,
    body: impl Fn() -> Endless + Clone,
) -> impl tower::Service<
    Request<RequestBody>,
    Response = Response<Endless>,
    Error = http::Error,
    Future: Send,
> + Clone {
    tower::service_fn(move |_: Request<RequestBody>| {
        let response = Response::builder().status(status).header("content-type", content_type);
        std::future::ready(response.body(body()))
    })
}

const CONTENT: &str = "data: {\"choices\":[{\"index\":0,\"delta\":{\"content\":\"a\"}}]}\n\n";

#[tokio::test(start_paused = true)]
async fn a_stream_that_is_always_ahead_of_its_reader_is_cut_all_the_same() {
    for (timeouts, deadline, which) in [
        (Timeouts::none(), Some(millis(300)), TimedOut::Deadline),
        (Timeouts::none().attempt(Some(millis(300))), None, TimedOut::Attempt),
    ] {
        let service = answers(200, "text/event-stream", || Endless::of(CONTENT));
        let layer = ClassifyLayer::builder().timeouts(timeouts).build().unwrap();
        let mut request = post(CHAT).map(|_| RequestBody::empty());
        if let Some(deadline) = deadline {
            request.extensions_mut().insert(CallOptions::new().deadline(deadline));
        }
        let start = Instant::now();
        let response = layer.layer(service).oneshot(request).await.unwrap();
        let mut body = std::pin::pin!(response.into_body());
        let error = loop {
            tokio::time::sleep(millis(10)).await;
            if let Err(error) = body.as_mut().frame().await.unwrap() {
                break error;
            }
            assert!(start.elapsed() < secs(1), "{which:?}");
        };
        let source = std::error::Error::source(&error);
        assert_eq!(source.and_then(|e| e.downcast_ref()), Some(&which));
        assert!(start.elapsed() <= millis(320), "{:?}", start.elapsed());
    }
}

#[tokio::test]
async fn a_body_without_end_or_pause_lets_others_run() {
    // Empty frames fill no limit; only taking turns helps against them.
    let layer = ClassifyLayer::builder().hold(Hold::Complete).build().unwrap();
    for (status, kind) in [(200, "text/event-stream"), (200, "application/json"), (429, "a/b")] {
        let call = layer.layer(answers(status, kind, || Endless::of("")));
        let call = call.oneshot(post(CHAT).map(|_| RequestBody::empty()));
        let others = async {
            for _ in 0..10 {
                tokio::task::yield_now().await;
            }
        };
        tokio::select! {
            biased;
            _ = call => panic!("it has no end"),
            () = others => {}
        }
    }
}

#[tokio::test(start_paused = true)]
async fn an_answer_without_bytes_is_not_drained_for_ever() {
    let service = answers(503, "text/plain", || Endless::of(""));
    let start = Instant::now();
    let layer = exact_backoff().max_retries(2).build().unwrap();
    let response = layer.layer(service).oneshot(post(CHAT)).await.unwrap();
    assert_eq!((response.status().as_u16(), start.elapsed()), (503, millis(1_500)));
}

#[tokio::test(start_paused = true)]
async fn a_length_past_all_numbers_does_not_overflow() {
    let endless = || Endless { frame: CONTENT, hint: SizeHint::with_exact(u64::MAX) };
    let service = answers(200, "text/event-stream", endless);
    let request = post(CHAT).map(|_| RequestBody::empty());
    let response = ClassifyLayer::new().layer(service).oneshot(request).await.unwrap();
    assert_eq!(Verdict::of(&response).map(Verdict::class), Some(Class::Success));
}

/// A body that was begun and then falls silent, its connection open.
fn stalled(status: u16, begun: &'static str) -> Outcome {
    let body = ScriptedBody::new([Step::data(begun), Step::forever()]);
    Outcome::status(status).header("content-type", "application/json").body(body)
}

#[tokio::test(start_paused = true)]
async fn a_failure_whose_body_stalls_is_what_its_status_says() {
    for idle in [Some(secs(5)), Some(secs(300)), None] {
        for (status, class, calls) in [
            (400, Class::InvalidRequest, 1),
            (401, Class::Auth, 1),
            (429, Class::RateLimited, 3),
            (529, Class::Overloaded, 3),
        ] {
            let service = ScriptedService::from_fn(move |_| stalled(status, "{\"error\":{"));
            let stack = ServiceBuilder::new()
                .layer(exact_backoff().max_retries(2).build().unwrap())
                .layer(
                    ClassifyLayer::builder().timeouts(Timeouts::none().idle(idle)).build().unwrap(),
                )
                .service(service.clone());
            let response = stack.oneshot(post(CHAT)).await.unwrap();
            let verdict = Verdict::of(&response).unwrap();
            assert_eq!((verdict.class(), service.calls()), (class, calls), "{status} {idle:?}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_failure_that_has_explained_itself_needs_no_end_of_its_body() {
    let whole =
        r#"{"error":{"message":"m","type":"insufficient_quota","code":"insufficient_quota"}}"#;
    let service = ScriptedService::from_fn(move |_| stalled(429, whole));
    let stack = ServiceBuilder::new()
        .layer(exact_backoff().build().unwrap())
        .layer(ClassifyLayer::new())
        .service(service.clone());
    let response = stack.oneshot(post(CHAT)).await.unwrap();
    let verdict = Verdict::of(&response).unwrap();
    assert_eq!((verdict.class(), service.calls()), (Class::QuotaExhausted, 1));
}

fn packed(body: Bytes) -> Outcome {
    Outcome::from(script::openai::chat("m", "x")).header("content-encoding", "gzip").body(body)
}

#[tokio::test(start_paused = true)]
async fn a_classifier_of_ones_own_reads_text_and_never_packed_bytes() {
    let text = r#"{"choices":[{"index":0,"message":{"content":"hello"},"finish_reason":"stop"}]}"#;
    let seen = |answer: &Answer<'_>| {
        let has_text = answer.body().windows(5).any(|w| w == b"hello");
        (!has_text).then(|| Verdict::new(Class::Upstream))
    };
    let layer = ClassifyLayer::builder().classifier(seen).build().unwrap();
    for outcome in [packed(gzip(text)), Outcome::status(200).json(text)] {
        let response =
            layer.layer(ScriptedService::new([outcome])).oneshot(post(CHAT)).await.unwrap();
        assert_eq!(Verdict::of(&response).map(Verdict::class), Some(Class::Success));
    }
    let nothing =
        |answer: &Answer<'_>| (!answer.body().is_empty()).then(|| Verdict::new(Class::Upstream));
    let layer = ClassifyLayer::builder().classifier(nothing).build().unwrap();
    let unreadable = Outcome::status(200).header("content-encoding", "br").body("\x0b\x02");
    let service = ScriptedService::new([unreadable]);
    let response = layer.layer(service).oneshot(post(CHAT)).await.unwrap();
    assert_eq!(Verdict::of(&response).map(Verdict::class), Some(Class::Success));
}

#[tokio::test(start_paused = true)]
async fn a_packed_stream_that_cannot_be_unpacked_is_no_answer_wherever_it_comes_from() {
    let whole = gzip("data: one\n\ndata: two\n\n".repeat(50));
    let half = whole.slice(..whole.len() / 2);
    let cut = whole.slice(..whole.len() - 4);
    for body in [Bytes::from_static(b"this is no gzip"), half, cut] {
        for path in ["/x/unknown", CHAT] {
            let outcome = sse(ScriptedBody::full(body.clone())).header("content-encoding", "gzip");
            let layer = ClassifyLayer::builder().hold(Hold::Complete).build().unwrap();
            let response =
                layer.layer(ScriptedService::new([outcome])).oneshot(post(path)).await.unwrap();
            let class = Verdict::of(&response).map(Verdict::class);
            assert_eq!(class, Some(Class::Transient), "{path} {body:?}");
            assert!(read(response.into_body()).await.end.is_err());
        }
    }
}

#[tokio::test(start_paused = true)]
async fn what_unpacks_to_more_than_may_be_held_is_too_much_like_any_other() {
    let text =
        format!(r#"{{"error":{{"code":"insufficient_quota"}},"x":"{}"}}"#, "x".repeat(100_000));
    for body in [gzip(&text), Bytes::from(text.clone())] {
        let outcome =
            if body.starts_with(b"{") { Outcome::status(200).json(body) } else { packed(body) };
        let layer = ClassifyLayer::builder()
            .hold_limit(8_192)
            .hold_overflow(backstop::classify::HoldOverflow::Fail)
            .build()
            .unwrap();
        let pieces = ScriptedService::new([outcome]);
        let response = layer.layer(pieces).oneshot(post(CHAT)).await.unwrap();
        assert_ne!(Verdict::of(&response).map(Verdict::class), Some(Class::Success));
    }
}

#[tokio::test(start_paused = true)]
async fn a_classifiers_success_makes_an_ended_body_end_well_and_a_broken_one_never() {
    let good = |_: &Answer<'_>| Some(Verdict::new(Class::Success));
    let layer = ClassifyLayer::builder().hold(Hold::Complete).classifier(good).build().unwrap();
    let ended = sse(ScriptedBody::new([Step::data(CONTENT), Step::end()]));
    let response = layer.layer(ScriptedService::new([ended])).oneshot(post(CHAT)).await.unwrap();
    let cell = AttemptCell::of(&response).cloned().unwrap();
    assert!(read(response.into_body()).await.end.is_ok());
    assert_eq!(cell.last_verdict().map(Verdict::class), Some(Class::Success));

    let broken = sse(ScriptedBody::new([Step::data(CONTENT), Step::error("reset")]));
    let response = layer.layer(ScriptedService::new([broken])).oneshot(post(CHAT)).await.unwrap();
    let cell = AttemptCell::of(&response).cloned().unwrap();
    assert!(read(response.into_body()).await.end.is_err());
    assert_eq!(cell.verdict().map(Verdict::class), Some(Class::Success), "the user's word");
    assert_eq!(cell.last_verdict().map(Verdict::class), Some(Class::Transient), "and the truth");

    let error = "data: {\"error\":{\"message\":\"m\"}}\n\n";
    let ended = sse(ScriptedBody::new([Step::data(error), Step::end()]));
    let response = layer.layer(ScriptedService::new([ended])).oneshot(post(CHAT)).await.unwrap();
    let cell = AttemptCell::of(&response).cloned().unwrap();
    let end = read(response.into_body()).await.end;
    assert_eq!(cell.verdict().map(Verdict::class), Some(Class::Success));
    let last = cell.last_verdict().map(Verdict::class);
    assert_eq!(last.is_some_and(Class::is_failure), end.is_err(), "{last:?}");
}

#[tokio::test(start_paused = true)]
async fn a_context_from_above_outlives_a_deadline_from_here() {
    let context = CallContext::new(CallOptions::new().node("n"), None, None);
    context.set_rung(1);
    let mut request = post(CHAT);
    request.extensions_mut().insert(context.clone());
    let service = ScriptedService::new([Outcome::status(503), Outcome::status(200)]);
    let start = Instant::now();
    let layer = exact_backoff().deadline(secs(9)).build().unwrap();
    layer.layer(service.clone()).oneshot(request).await.unwrap();
    for call in service.log() {
        let below = call.head.extensions.get::<CallContext>().unwrap();
        assert_eq!((below.rung(), below.labels().node.as_deref()), (1, Some("n")));
        assert_eq!(below.deadline(), Some((start + secs(9)).into_std()));
    }
    assert_eq!((context.attempt(), context.waited()), (2, millis(500)));
}

#[tokio::test(start_paused = true)]
async fn where_no_second_attempt_is_allowed_there_is_none_however_it_is_given_up() {
    for on_exhausted in [OnExhausted::Last, OnExhausted::Error] {
        let service = ScriptedService::from_fn(|_| {
            Outcome::error_with(|| Box::new(Unprocessed("refused stream".into())))
        });
        let layer = BackoffLayer::builder().max_retries(0).on_exhausted(on_exhausted).build();
        let result = layer.unwrap().layer(service.clone()).oneshot(post(CHAT)).await;
        assert!(result.is_err());
        assert_eq!(service.calls(), 1, "{on_exhausted:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn an_error_of_ours_is_itself_through_two_classifiers() {
    let stream = sse(ScriptedBody::new([Step::data(CONTENT), Step::error("reset")]));
    let inner = ClassifyLayer::new().layer(ReadinessProbe::new(ScriptedService::new([stream])));
    let boxed = ServiceBuilder::new()
        .layer(ClassifyLayer::new())
        .map_response(|response: Response<_>| response.map(Box::pin))
        .service(inner);
    let response = boxed.oneshot(post(CHAT)).await.unwrap();
    let error = read(response.into_body()).await.end.unwrap_err();
    let text = error.to_string();
    assert_eq!(text.matches("the answer broke off").count(), 1, "{text}");
}

#[tokio::test(start_paused = true)]
async fn a_call_whose_time_is_over_before_it_begins_sends_nothing() {
    let past = CallContext::new(CallOptions::new(), None, Some(Instant::now().into_std()));
    for late in [true, false] {
        let service = ScriptedService::from_fn(|_| Outcome::status(200));
        let mut request = post(CHAT);
        if late {
            request.extensions_mut().insert(past.clone());
        } else {
            request.extensions_mut().insert(CallOptions::new().deadline(std::time::Duration::ZERO));
        }
        let error = exact_backoff().build().unwrap().layer(service.clone()).oneshot(request).await;
        let backstop::Error::Exhausted(exhausted) = error.unwrap_err() else { panic!("exhausted") };
        assert_eq!((exhausted.stopped_by().as_str(), exhausted.retries()), ("deadline", 0));
        assert_eq!(service.calls(), 0);
    }
}

#[tokio::test(start_paused = true)]
async fn a_stream_that_cannot_be_read_is_not_waited_for_by_its_content() {
    let steps = (0..20).flat_map(|_| [Step::data("x"), Step::pause(millis(100))]);
    let body = ScriptedBody::new(steps.chain([Step::end()]));
    let service = ScriptedService::new([sse(body).header("content-encoding", "br")]);
    let timeouts = Timeouts::none().first_content(Some(millis(300)));
    let layer = ClassifyLayer::builder().timeouts(timeouts).build().unwrap();
    let response = layer.layer(service).oneshot(post(CHAT)).await.unwrap();
    let body = read(response.into_body()).await;
    assert_eq!((body.bytes.len(), body.end.is_ok()), (20, true));
}
