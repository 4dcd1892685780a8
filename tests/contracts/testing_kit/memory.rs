//! The body and the service in memory, under a paused clock.

use std::{
    future::poll_fn,
    io,
    pin::Pin,
    task::{Context, Poll, Waker},
    time::Duration,
};

use backstop::testing::{
    Answer, BoxError, CallEnd, Outcome, Script, ScriptedBody, ScriptedError, ScriptedService, Step,
};
use bytes::Bytes;
use http::{HeaderMap, Request, Response};
use http_body::{Body, Frame};
use http_body_util::BodyExt;
use tokio::time::{Instant, timeout};
use tower_service::Service;

const SECOND: Duration = Duration::from_secs(1);

async fn next(body: &mut ScriptedBody) -> Option<Result<Frame<Bytes>, BoxError>> {
    poll_fn(|cx| Pin::new(&mut *body).poll_frame(cx)).await
}

async fn call(
    service: &mut ScriptedService,
    body: ScriptedBody,
) -> Result<Response<ScriptedBody>, BoxError> {
    service.call(Request::new(body)).await
}

/// All data of a body, each frame with the second at which it came, and whether the end was a good one.
async fn read(mut body: ScriptedBody) -> (Vec<(u64, Bytes)>, Result<(), BoxError>) {
    let (start, mut frames) = (Instant::now(), Vec::new());
    while let Some(frame) = next(&mut body).await {
        match frame {
            Ok(frame) => frames.push((start.elapsed().as_secs(), frame.into_data().unwrap())),
            Err(error) => return (frames, Err(error)),
        }
    }
    (frames, Ok(()))
}

#[tokio::test(start_paused = true)]
async fn a_body_goes_through_its_steps() {
    let trailers = HeaderMap::from_iter([(http::header::ETAG, "x".parse().unwrap())]);
    let mut body = ScriptedBody::new([
        Step::data("one"),
        Step::pending(),
        Step::data("two"),
        Step::pause(SECOND),
        Step::trailers(trailers),
        Step::end(),
        Step::data("never"),
    ]);
    let probe = body.probe();
    let mut cx = Context::from_waker(Waker::noop());
    assert_eq!(next(&mut body).await.unwrap().unwrap().into_data().unwrap(), "one");
    assert!(Pin::new(&mut body).poll_frame(&mut cx).is_pending());
    assert_eq!(next(&mut body).await.unwrap().unwrap().into_data().unwrap(), "two");
    let start = Instant::now();
    assert!(next(&mut body).await.unwrap().unwrap().is_trailers());
    assert_eq!(start.elapsed(), SECOND);
    assert!(body.is_end_stream() && !probe.is_finished());
    assert!(next(&mut body).await.is_none());
    assert!(probe.is_finished());
    assert_eq!((probe.bytes(), probe.polls_after_end(), probe.is_dropped()), (6, 0, false));
    drop(body);
    assert!(probe.is_dropped());
}

#[tokio::test(start_paused = true)]
async fn a_body_that_is_polled_after_its_end_notes_it() {
    for steps in [vec![], vec![Step::error("broken")]] {
        let mut body = ScriptedBody::new(steps);
        let probe = body.probe();
        let _ = next(&mut body).await;
        assert_eq!(probe.polls_after_end(), 0);
        assert!(next(&mut body).await.is_none());
        assert_eq!((probe.polls(), probe.polls_after_end()), (2, 1));
    }
}

#[tokio::test(start_paused = true)]
async fn a_body_fails_with_the_error_it_was_given() {
    let mut body = ScriptedBody::new([Step::error("broken")]);
    let error = next(&mut body).await.unwrap().unwrap_err();
    assert_eq!(error.downcast_ref::<ScriptedError>().unwrap().message(), "broken");
    let mut body = ScriptedBody::new([Step::io_error(io::ErrorKind::ConnectionReset)]);
    let error = next(&mut body).await.unwrap().unwrap_err();
    assert_eq!(error.downcast_ref::<io::Error>().unwrap().kind(), io::ErrorKind::ConnectionReset);
}

#[tokio::test(start_paused = true)]
async fn a_body_that_is_pending_for_ever_has_no_waker() {
    let body = ScriptedBody::new([Step::forever()]);
    let probe = body.probe();
    assert!(timeout(SECOND, body.collect()).await.is_err());
    // Once at first, once when the timeout fired: nobody else has woken it.
    assert!(probe.polls() <= 2);
    assert!(probe.is_dropped());
}

#[tokio::test(start_paused = true)]
async fn hints_are_honest_unless_told_otherwise() {
    let mut honest = ScriptedBody::new([Step::data("one"), Step::data("three")]);
    assert_eq!(honest.size_hint().exact(), Some(8));
    next(&mut honest).await;
    assert_eq!((honest.size_hint().exact(), honest.is_end_stream()), (Some(5), false));
    next(&mut honest).await;
    assert!(honest.is_end_stream());

    let cut = ScriptedBody::new([Step::data("one"), Step::end(), Step::forever()]);
    assert_eq!(cut.size_hint().exact(), Some(3));
    let trailed = ScriptedBody::new([Step::data("one"), Step::trailers(HeaderMap::new())]);
    assert_eq!(trailed.size_hint().exact(), Some(3));
    for other in [
        Step::error("broken"),
        Step::forever(),
        Step::io_error(io::ErrorKind::ConnectionReset),
        Step::pause(SECOND),
        Step::pending(),
    ] {
        for steps in [
            vec![other.clone()],
            vec![Step::data("one"), other.clone()],
            vec![other.clone(), Step::data("one")],
        ] {
            let body = ScriptedBody::new(steps.clone());
            assert_eq!(body.size_hint().exact(), None, "{steps:?}");
            assert_eq!(body.content_length(3).size_hint().exact(), Some(3), "it was told so");
        }
    }
    assert!(ScriptedBody::empty().is_end_stream());

    let mut unknown = ScriptedBody::new([Step::data("one")]).unknown_size();
    assert_eq!((unknown.size_hint().lower(), unknown.size_hint().upper()), (0, None));
    next(&mut unknown).await;
    assert!(!unknown.is_end_stream());

    let mut lying = ScriptedBody::new([Step::data("one")]).content_length(5);
    next(&mut lying).await;
    assert_eq!((lying.size_hint().exact(), lying.is_end_stream()), (Some(2), false));
}

#[tokio::test(start_paused = true)]
async fn each_call_has_the_next_outcome_and_a_line_in_the_log() {
    let start = Instant::now();
    let mut service = ScriptedService::new([
        Outcome::status(429).header("retry-after", "3").json("{}"),
        Outcome::error("no route"),
        Outcome::response(Response::new("ok")).after(SECOND * 7),
    ]);
    let mut clone = service.clone();
    let limited = call(&mut service, ScriptedBody::full("a")).await.unwrap();
    assert_eq!(
        (limited.status().as_u16(), &limited.headers()["retry-after"]),
        (429, &"3".parse().unwrap())
    );
    let failed = call(&mut clone, ScriptedBody::full("b")).await.unwrap_err();
    assert!(failed.is::<ScriptedError>());
    let slow = ScriptedBody::new([Step::data("c"), Step::pause(SECOND), Step::data("d")]);
    let good = call(&mut service, slow).await.unwrap();
    assert_eq!(good.into_body().collect().await.unwrap().to_bytes(), "ok");
    let log = service.log();
    assert_eq!(log.iter().map(|seen| &seen.body[..]).collect::<Vec<_>>(), [&b"a"[..], b"b", b"cd"]);
    assert_eq!(log[2].at, start);
    assert_eq!(log[2].end, Some(CallEnd::Answered(start + SECOND * 8)));
    assert_eq!((service.calls(), service.exhausted()), (3, 0));
    let past = call(&mut service, ScriptedBody::empty()).await.unwrap();
    assert_eq!((past.status().as_u16(), service.exhausted()), (500, 1));
}

#[tokio::test(start_paused = true)]
async fn a_repeated_outcome_has_a_fresh_body_each_time() {
    let body = ScriptedBody::new([Step::data("x"), Step::pause(SECOND)]);
    let probe = body.probe();
    let mut service =
        ScriptedService::new(Script::new([Outcome::status(200).body(body)]).repeat_last());
    for _ in 0..3 {
        let answer = call(&mut service, ScriptedBody::empty()).await.unwrap();
        assert_eq!(answer.into_body().collect().await.unwrap().to_bytes(), "x");
    }
    drop(service);
    // Bodies that were handed out are counted; the one in the script is none.
    assert_eq!((probe.bytes(), probe.drops()), (3, 3));
}

#[tokio::test(start_paused = true)]
async fn a_call_that_comes_to_nothing_is_logged_when_it_is_dropped() {
    let start = Instant::now();
    let mut service = ScriptedService::new([Outcome::never()]);
    let call = call(&mut service, ScriptedBody::full("x"));
    assert!(timeout(SECOND * 3, call).await.is_err());
    assert_eq!(service.log()[0].end, Some(CallEnd::Dropped(start + SECOND * 3)));
    assert!(service.log()[0].body_complete);
}

#[tokio::test(start_paused = true)]
async fn a_request_body_that_fails_fails_the_call() {
    let mut service = ScriptedService::new([Outcome::status(200)]);
    let body = ScriptedBody::new([Step::data("half"), Step::error("broken")]);
    assert!(call(&mut service, body).await.unwrap_err().is::<ScriptedError>());
    let seen = service.log().remove(0);
    assert_eq!((&seen.body[..], seen.body_complete), (&b"half"[..], false));
    assert!(matches!(seen.end, Some(CallEnd::BodyFailed(_))));
}

#[tokio::test(start_paused = true)]
async fn an_outcome_can_come_before_the_body() {
    let mut service = ScriptedService::new([Outcome::status(503).before_body()]);
    let body = ScriptedBody::new([Step::forever()]);
    let probe = body.probe();
    assert_eq!(call(&mut service, body).await.unwrap().status(), 503);
    assert_eq!((probe.polls(), probe.drops()), (0, 1));
}

#[tokio::test(start_paused = true)]
async fn a_function_chooses_by_head_and_body() {
    let mut service = ScriptedService::from_fn(|seen| {
        assert_eq!(seen.head.extensions.get::<u8>(), Some(&7));
        Outcome::status(200).body(seen.body.clone()).header("x-index", &seen.index.to_string())
    });
    for n in 0..2 {
        let request = Request::builder().extension(7_u8).body(ScriptedBody::full("echo")).unwrap();
        let answer = service.call(request).await.unwrap();
        assert_eq!(answer.headers()["x-index"], n.to_string());
        assert_eq!(answer.into_body().collect().await.unwrap().to_bytes(), "echo");
    }
}

#[tokio::test(start_paused = true)]
async fn an_answer_in_memory_fails_as_it_would_on_a_socket() {
    let stream = || Answer::sse().event("1").event("2").pause_between(SECOND);
    let kind = |error: BoxError| error.downcast_ref::<io::Error>().unwrap().kind();
    let mut service = ScriptedService::new([
        stream(),
        stream().reset(),
        stream().close(),
        Answer::status(200).content_length(9).body("short").close(),
        Answer::status(200).until_close().body("all").close(),
    ]);
    let mut ends = Vec::new();
    for _ in 0..5 {
        let answer = call(&mut service, ScriptedBody::empty()).await.unwrap();
        let (frames, end) = read(answer.into_body()).await;
        if let [(first, _), (second, _)] = frames[..] {
            assert_eq!((first, second), (0, 1));
        }
        ends.push(end.map_err(kind));
    }
    let (reset, eof) = (Err(io::ErrorKind::ConnectionReset), Err(io::ErrorKind::UnexpectedEof));
    assert_eq!(ends, [Ok(()), reset, eof, eof, Ok(())]);

    let mut service = ScriptedService::new([
        Answer::nothing().reset(),
        Answer::nothing().close(),
        Answer::raw("220 smtp ready\r\n"),
    ]);
    for expected in
        [io::ErrorKind::ConnectionReset, io::ErrorKind::UnexpectedEof, io::ErrorKind::InvalidData]
    {
        assert_eq!(kind(call(&mut service, ScriptedBody::empty()).await.unwrap_err()), expected);
    }

    let mut service = ScriptedService::new([stream().silence(), Answer::nothing().silence()]);
    let answer = call(&mut service, ScriptedBody::empty()).await.unwrap();
    assert!(timeout(SECOND * 60, read(answer.into_body())).await.is_err());
    assert!(timeout(SECOND * 60, call(&mut service, ScriptedBody::empty())).await.is_err());
}

#[tokio::test(start_paused = true)]
async fn one_can_wait_for_the_nth_call() {
    let service = ScriptedService::new([Outcome::status(200), Outcome::status(200)]);
    let mut caller = service.clone();
    let task = tokio::spawn(async move {
        for _ in 0..2 {
            tokio::time::sleep(SECOND).await;
            call(&mut caller, ScriptedBody::empty()).await.unwrap();
        }
    });
    let start = Instant::now();
    service.wait_for_calls(2).await;
    assert_eq!(start.elapsed(), SECOND * 2);
    task.await.unwrap();
}

#[test]
fn doubles_fit_where_a_client_would() {
    fn body<B: Body<Data = Bytes> + Send + Sync + Unpin + 'static>(_: &B) {}
    fn service<S: Clone + Send + Sync + 'static>(_: &S) {}
    body(&ScriptedBody::empty());
    service(&ScriptedService::new([Outcome::status(200)]));
    let mut ready = ScriptedService::new([Outcome::status(200)]);
    let mut cx = Context::from_waker(Waker::noop());
    let polled = Service::<Request<ScriptedBody>>::poll_ready(&mut ready, &mut cx);
    assert!(matches!(polled, Poll::Ready(Ok(()))));
}
