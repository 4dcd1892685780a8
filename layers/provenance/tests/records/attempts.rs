//! An AttemptLayer alone, over a classifier, and under a backoff.

use std::time::Duration;

use backstop_backoff::BackoffLayer;
use backstop_classify::ClassifyLayer;
use backstop_core::{
    CallContext, CallOptions, Class, Error, HintSource, Hold, Jitter, RequestBody, Schedule,
    StreamEnd, Unprocessed, Usage, Verdict, WaitReason,
};
use backstop_provenance::{AttemptLayer, Outcome, Provenance, ProvenanceLayer};
use http::{Request, Response, StatusCode};
use http_body_util::Full;
use tower::{Layer, ServiceBuilder, ServiceExt, service_fn};

use crate::support::Piece::{Data, Error as Break, Hang, Last};
use crate::support::messages::{BEGIN, DELTA, EVENT, STOP};
use crate::support::*;

async fn class_of(response: Response<Pieces>, frames: usize) -> (&'static str, Book) {
    let book = Book::new();
    let service = AttemptLayer::recording(book.clone()).layer(Provider::new([response]));
    let response = service.oneshot(ask(CHAT)).await.unwrap();
    read(response.into_body(), frames).await;
    (book.attempt().class, book)
}

#[tokio::test(start_paused = true)]
async fn without_a_classifier_the_status_and_the_bodys_own_end_decide() {
    for (response, frames, class) in [
        (answer(200, [Data("a"), Data("b")]), 9, "success"),
        (answer(200, [Data("a"), Last("b")]), 2, "success"),
        (answer(200, [Data("a"), Last("b")]), 1, "cancelled"),
        (answer(200, [Last("")]), 0, "success"),
        (answer(200, [Data("a"), Break]), 9, "transient"),
        (answer(429, [Data("a")]), 9, "rate_limited"),
        (answer(429, [Data("a")]), 0, "rate_limited"),
        (answer(429, [Data("a"), Break]), 9, "rate_limited"),
    ] {
        let shown = format!("{response:?} {frames}");
        assert_eq!(class_of(response, frames).await.0, class, "{shown}");
    }
}

#[tokio::test(start_paused = true)]
async fn alone_it_is_the_first_attempt_of_a_call_that_nobody_knows() {
    let book = Book::new();
    let layer = AttemptLayer::builder().ledger(book.clone()).wall_clock(clock()).build().unwrap();
    let service = layer.layer(Provider::new([answer(200, [Data("ab"), Data("c")])]));
    tokio::time::advance(secs(2)).await;
    let response = service.oneshot(ask(CHAT)).await.unwrap();
    read(response.into_body(), 9).await;
    let started = &book.attempts_started()[0];
    assert_eq!((started.call, started.attempt, started.rung), (None, 1, 0));
    assert!(started.chain.is_none() && started.wait.is_none() && started.profile().is_none());
    assert_eq!(started.model.as_deref(), Some("alias-x"));
    assert_eq!(&*started.endpoint, "https://provider.test/v1/chat/completions");
    assert_eq!(started.request_bytes, ASK.len() as u64);
    assert_eq!(started.at, new_year() + secs(2));
    let finished = book.attempt();
    assert_eq!((finished.call, finished.attempt, finished.bytes), (None, 1, 3));
    assert_eq!(finished.status, Some(StatusCode::OK));
    assert_eq!(finished.error, None);
}

#[tokio::test(start_paused = true)]
async fn it_passes_requests_of_any_type_and_reads_those_of_ours() {
    let book = Book::new();
    let service = AttemptLayer::recording(book.clone()).layer(Provider::new([answer(200, [])]));
    let request = ask(MESSAGES).map(|body| Full::new(body.to_bytes()));
    service.oneshot(request).await.unwrap();
    let started = &book.attempts_started()[0];
    assert_eq!((started.model.as_deref(), started.request_bytes), (None, ASK.len() as u64));
}

#[tokio::test(start_paused = true)]
async fn the_classifiers_facts_are_in_the_record() {
    let book = Book::new();
    let provider = service_fn(|_: Request<RequestBody>| async {
        tokio::time::sleep(ms(250)).await;
        let mut response = stream([Data(BEGIN), Data(EVENT), Data(DELTA), Data(STOP)]);
        response.headers_mut().insert("request-id", "req_1".parse().unwrap());
        Ok::<_, &str>(response)
    });
    let service = ServiceBuilder::new()
        .layer(AttemptLayer::recording(book.clone()))
        .layer(ClassifyLayer::new())
        .service(provider);
    let response = service.oneshot(ask(MESSAGES)).await.unwrap();
    tokio::time::advance(secs(1)).await;
    read(response.into_body(), 9).await;
    let finished = book.attempt();
    assert_eq!(finished.class, "success");
    assert_eq!(finished.reported_model.as_deref(), Some("claude-x"));
    assert_eq!(finished.usage, Some(Usage::new(9, 4)));
    assert_eq!(finished.request_id.as_deref(), Some("req_1"));
    assert_eq!(finished.stream_end, Some(StreamEnd::Complete));
    assert_eq!((finished.head, finished.first_byte), (Some(ms(250)), Some(ms(250))));
    assert_eq!(finished.first_content, Some(ms(250)));
    assert_eq!(finished.duration, ms(1250));
    assert_eq!(finished.bytes, (BEGIN.len() + EVENT.len() + DELTA.len() + STOP.len()) as u64);
}

#[tokio::test(start_paused = true)]
async fn an_error_is_the_end_of_an_attempt() {
    for (unprocessed, class) in [(false, "transient"), (true, "transient")] {
        let book = Book::new();
        let failing = service_fn(move |_: Request<RequestBody>| async move {
            let reset = std::io::Error::from(std::io::ErrorKind::ConnectionReset);
            let error: backstop_core::BoxError =
                if unprocessed { Unprocessed(reset.into()).into() } else { reset.into() };
            Err::<Response<Pieces>, _>(error)
        });
        let service = AttemptLayer::recording(book.clone()).layer(failing);
        let error = service.oneshot(ask(CHAT)).await.unwrap_err();
        assert!(matches!(error, Error::Attempt(_)), "{error}");
        let finished = book.attempt();
        assert_eq!((finished.class, finished.unprocessed), (class, unprocessed));
        assert_eq!((finished.status, finished.head), (None, None));
        assert!(finished.error.unwrap().contains("the attempt failed"));
    }
}

#[tokio::test(start_paused = true)]
async fn an_attempt_that_is_left_in_any_state_is_finished_once() {
    for (name, starts, answers, records) in [
        ("starting", vec![Start::Hang], vec![], 0),
        ("calling", vec![], vec![], 1),
        ("reading", vec![], vec![answer(200, [Data("a"), Hang])], 1),
    ] {
        let book = Book::scripted(starts);
        let service = AttemptLayer::recording(book.clone()).layer(Provider::new(answers));
        let call = async { read(service.oneshot(ask(CHAT)).await.unwrap().into_body(), 9).await };
        tokio::time::timeout(ms(100), call).await.unwrap_err();
        assert_eq!(book.attempts_started().len(), records, "{name}");
        assert_eq!(book.classes(), vec!["cancelled"; records], "{name}");
        assert!(book.attempts().iter().all(|attempt| attempt.error.is_none()), "{name}");
    }
}

#[tokio::test(start_paused = true)]
async fn an_attempt_that_the_deadline_cut_took_too_long() {
    let book = Book::new();
    let service = ServiceBuilder::new()
        .layer(BackoffLayer::builder().deadline(secs(3)).build().unwrap())
        .layer(AttemptLayer::recording(book.clone()))
        .service(Provider::new([]));
    service.oneshot(ask(CHAT)).await.unwrap_err();
    assert_eq!(book.attempt().class, "timeout");
    assert_eq!(book.attempt().duration, secs(3));
}

fn backoff(retries: u32) -> BackoffLayer {
    let schedule = Schedule::new(secs(1), secs(60)).with_jitter(Jitter::None);
    BackoffLayer::builder().max_retries(retries).schedule(schedule).build().unwrap()
}

#[tokio::test(start_paused = true)]
async fn an_answer_that_is_thrown_away_for_a_retry_keeps_its_class() {
    let long = "x".repeat(5000).leak();
    for hold in [None, Some(Hold::Headers), Some(Hold::Complete)] {
        let book = Book::new();
        let mut limited = answer(429, [Data(long), Data(long), Data(long), Hang]);
        limited.headers_mut().insert("retry-after", 3.into());
        let script = [
            limited,
            answer(503, [Data("{}")]),
            answer(500, [Data("{}"), Break]),
            answer(200, [Data("{}")]),
        ];
        let layers = ServiceBuilder::new()
            .layer(ProvenanceLayer::recording(book.clone()))
            .layer(backoff(3))
            .layer(AttemptLayer::recording(book.clone()));
        let request = ask(CHAT);
        let body = match hold {
            None => {
                let service = layers.service(Provider::new(script));
                BoxBody::new(service.oneshot(request).await.unwrap().into_body())
            }
            Some(hold) => {
                let classify = ClassifyLayer::builder().hold(hold).build().unwrap();
                let service = layers.layer(classify).service(Provider::new(script));
                BoxBody::new(service.oneshot(request).await.unwrap().into_body())
            }
        };
        read(body, 9).await;
        let classes = ["rate_limited", "overloaded", "transient", "success"];
        assert_eq!(book.classes()[..3], classes[..3], "{hold:?}");
        assert_eq!(book.attempts_started().len(), 4);
        let waits: Vec<_> = book.attempts_started().iter().map(|started| started.wait).collect();
        let scheduled = |wait| Some((wait, WaitReason::Schedule));
        let hinted = Some((secs(3), WaitReason::Hint(HintSource::RetryAfter)));
        assert_eq!(waits, [None, hinted, scheduled(secs(2)), scheduled(secs(4))], "{hold:?}");
        let numbers: Vec<_> = book.attempts().iter().map(|attempt| attempt.attempt).collect();
        assert_eq!(numbers, [1, 2, 3, 4]);
        assert_eq!(book.attempts()[0].hint, Some(secs(3)));
        let call = book.call();
        assert_eq!((call.attempts, call.waited), (4, secs(9)), "{hold:?}");
        let ids: Vec<_> = book.attempts().iter().map(|attempt| attempt.call).collect();
        assert_eq!(ids, [Some(call.call); 4]);
    }
}

type BoxBody = http_body_util::combinators::UnsyncBoxBody<bytes::Bytes, Error>;

#[tokio::test(start_paused = true)]
async fn somebody_elses_retries_are_numbered_and_counted_too() {
    #[derive(Clone)]
    struct Thrice;
    impl<E> tower::retry::Policy<Request<RequestBody>, Response<AnyBody>, E> for Thrice {
        type Future = std::future::Ready<()>;
        fn retry(
            &mut self,
            _: &mut Request<RequestBody>,
            result: &mut Result<Response<AnyBody>, E>,
        ) -> Option<Self::Future> {
            let failed = result.as_ref().is_ok_and(|answer| answer.status().is_server_error());
            failed.then(|| std::future::ready(()))
        }
        fn clone_request(
            &mut self,
            request: &Request<RequestBody>,
        ) -> Option<Request<RequestBody>> {
            Some(request.clone())
        }
    }
    type AnyBody = backstop_provenance::AttemptBody<Pieces, Book>;
    let book = Book::new();
    let script = [answer(500, []), answer(500, []), answer(200, [])];
    let service = ServiceBuilder::new()
        .layer(ProvenanceLayer::recording(book.clone()))
        .layer(tower::retry::RetryLayer::new(Thrice))
        .layer(AttemptLayer::recording(book.clone()))
        .service(Provider::new(script));
    let response = service.oneshot(ask(CHAT)).await.unwrap();
    let provenance = Provenance::of(&response).unwrap().clone();
    read(response.into_body(), 9).await;
    let numbers: Vec<_> = book.attempts().iter().map(|attempt| attempt.attempt).collect();
    assert_eq!(numbers, [1, 2, 3]);
    assert_eq!((provenance.attempts(), book.call().attempts), (3, 3));
    assert_eq!(provenance.outcome(), Some(Outcome::Ok));
}

#[tokio::test(start_paused = true)]
async fn an_attempt_says_which_rung_and_profile_it_is_on() {
    let book = Book::new();
    let context = CallContext::new(CallOptions::new(), None, None);
    context.plan(chain(3));
    context.set_rung(1);
    let mut request = ask(CHAT);
    request.extensions_mut().insert(context);
    let service = AttemptLayer::recording(book.clone()).layer(Provider::new([answer(200, [])]));
    service.oneshot(request).await.unwrap();
    let started = &book.attempts_started()[0];
    assert_eq!((started.rung, started.model.as_deref()), (1, Some("model-b")));
    assert_eq!(started.profile().map(|profile| profile.id()), Some("gpt"));
}

#[tokio::test(start_paused = true)]
async fn what_a_classifier_says_of_an_error_is_the_class() {
    let book = Book::new();
    let failing = service_fn(|_: Request<RequestBody>| async {
        let verdict = Verdict::new(Class::QuotaExhausted).with_code("insufficient_quota");
        Err::<Response<Pieces>, _>(Error::attempt(verdict, "key sk-abcdefghijklmnop1234 is spent"))
    });
    let service = AttemptLayer::recording(book.clone()).layer(failing);
    service.oneshot(ask(CHAT)).await.unwrap_err();
    let finished = book.attempt();
    assert_eq!(
        (finished.class, finished.code.as_deref()),
        ("quota_exhausted", Some("insufficient_quota"))
    );
    assert!(!finished.error.unwrap().contains("sk-abc"));
    assert_eq!(finished.duration, Duration::ZERO);
}
