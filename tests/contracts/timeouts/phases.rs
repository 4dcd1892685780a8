//! The classifier's timeouts, one for each phase of an attempt.

use std::time::Duration;

use backstop::classify::Timeouts;
use backstop::testing::{
    Answer, CallEnd, Outcome, ScriptedBody, ScriptedProvider, ScriptedService, Step,
};
use backstop::vocabulary::TimedOut;
use backstop::{AttemptCell, Class, ClassifyLayer, Hold, Verdict};
use http_body_util::BodyExt;
use hyper_util::client::legacy::Client;
use hyper_util::rt::TokioExecutor;
use tokio::time::Instant;
use tower::{Layer, ServiceBuilder, ServiceExt};

use super::{DONE, KEEP_ALIVE, ROLE, WORD, good, sse, stream, timed_out, tireless, which};
use crate::support::{CHAT, bounded, exact_backoff, millis, post, read, secs};

const HOLDS: [Hold; 3] = [Hold::Headers, Hold::FirstContent, Hold::Complete];

/// When and by what an answer that is classified alone ends, held or not.
async fn ends(hold: Hold, timeouts: &Timeouts, answer: Outcome) -> (Duration, Option<TimedOut>) {
    let layer = ClassifyLayer::builder().hold(hold).timeouts(*timeouts).build().unwrap();
    let stack = ServiceBuilder::new().layer(layer).service(ScriptedService::new([answer]));
    let start = Instant::now();
    let response = match bounded(stack.oneshot(post(CHAT))).await {
        Ok(response) => response,
        Err(error) => return (start.elapsed(), timed_out(&error)),
    };
    let cell = AttemptCell::of(&response).cloned();
    let body = bounded(read(response.into_body())).await;
    let elapsed = start.elapsed();
    let Err(error) = body.end else { return (elapsed, None) };
    assert_eq!(error.verdict().map(Verdict::class), Some(Class::Timeout), "{error:?}");
    if let Some(cell) = cell {
        let last = cell.last_verdict().unwrap();
        assert_eq!((last.class(), cell.end()), (Class::Timeout, Some(elapsed)));
    }
    (elapsed, timed_out(&error))
}

#[tokio::test(start_paused = true)]
async fn head_ends_an_attempt_whose_head_does_not_come() {
    let provider = ScriptedService::new([Outcome::never()]);
    let timeouts = Timeouts::none().head(Some(secs(10)));
    let stack =
        ClassifyLayer::builder().timeouts(timeouts).build().unwrap().layer(provider.clone());
    let start = Instant::now();
    let error = bounded(stack.oneshot(post(CHAT))).await.unwrap_err();
    assert_eq!((start.elapsed(), timed_out(&error)), (secs(10), Some(TimedOut::Head)));
    assert_eq!(error.verdict().map(Verdict::class), Some(Class::Timeout));
    assert_eq!(error.status(), 504);
    assert!(error.to_string().contains("timeouts.head"), "{error}");
    assert_eq!(provider.log()[0].end, Some(CallEnd::Dropped(start + secs(10))));
}

#[tokio::test(start_paused = true)]
async fn head_is_over_once_the_head_is_there() {
    let timeouts = Timeouts::none().head(Some(secs(10)));
    let late = stream([(50, ROLE), (50, WORD), (50, DONE)], Step::end()).after(millis(9_999));
    for hold in HOLDS {
        assert_eq!(ends(hold, &timeouts, late.clone()).await, (millis(159_999), None), "{hold:?}");
    }
}

#[tokio::test]
async fn bytes_of_a_head_that_trickle_in_do_not_restart_it() {
    let answer = Answer::status(200).json("{}").trickle_head(millis(60));
    let provider = ScriptedProvider::start([answer]).await.unwrap();
    let client = Client::builder(TokioExecutor::new()).build_http();
    let timeouts = Timeouts::none().head(Some(millis(250)));
    let stack = ClassifyLayer::builder().timeouts(timeouts).build().unwrap().layer(client);
    let (mut head, body) = post(CHAT).into_parts();
    head.uri = format!("{}{CHAT}", provider.url()).parse().unwrap();
    let start = Instant::now();
    let result = stack.oneshot(http::Request::from_parts(head, body)).await;
    let elapsed = start.elapsed();
    assert_eq!(which(result.map(drop)), Some(TimedOut::Head));
    assert!(elapsed >= millis(250) && elapsed < secs(3), "{elapsed:?}");
    assert!(provider.log()[0].written >= 4, "bytes came all the time");
}

#[tokio::test(start_paused = true)]
async fn first_content_is_not_restarted_by_keep_alives_and_counts_from_the_start() {
    let timeouts = Timeouts::none().first_content(Some(secs(20))).idle(Some(secs(5)));
    // Head at 3 s, then something every 2 s, none of it content.
    let pieces = (0..50).map(|n| (2, if n == 0 { ROLE } else { KEEP_ALIVE }));
    let answer = stream(pieces, Step::forever()).after(secs(3));
    for hold in HOLDS {
        let ended = ends(hold, &timeouts, answer.clone()).await;
        assert_eq!(ended, (secs(20), Some(TimedOut::FirstContent)), "{hold:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn first_content_is_over_with_the_first_content() {
    let timeouts = Timeouts::none().first_content(Some(secs(20)));
    let answer = stream([(1, ROLE), (18, WORD), (100, WORD), (100, DONE)], Step::end());
    for hold in HOLDS {
        assert_eq!(ends(hold, &timeouts, answer.clone()).await, (secs(219), None), "{hold:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn idle_is_restarted_by_every_byte_and_by_nothing_else() {
    let timeouts = Timeouts::none().idle(Some(secs(5)));
    let pieces = [(4, ROLE), (4, KEEP_ALIVE), (4, WORD), (4, KEEP_ALIVE), (4, ":"), (4, " x\n\n")];
    let answer = stream(pieces, Step::forever());
    for hold in HOLDS {
        let ended = ends(hold, &timeouts, answer.clone()).await;
        assert_eq!(ended, (secs(29), Some(TimedOut::Idle)), "{hold:?}");
    }
    // From the head on, where no byte comes at all.
    let silent = stream([], Step::forever()).after(secs(3));
    for hold in HOLDS {
        let ended = ends(hold, &timeouts, silent.clone()).await;
        assert_eq!(ended, (secs(8), Some(TimedOut::Idle)), "{hold:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn idle_counts_for_documents_as_well() {
    let timeouts = Timeouts::none().idle(Some(secs(5)));
    let steps =
        || [Step::data("{\"id\":"), Step::pause(secs(4)), Step::data("\"x\","), Step::forever()];
    for status in [200, 500] {
        for hold in HOLDS {
            let answer = Outcome::status(status).json(ScriptedBody::new(steps()).unknown_size());
            // A failed answer keeps the class of its status.
            let layer = ClassifyLayer::builder().hold(hold).timeouts(timeouts).build().unwrap();
            let stack = layer.layer(ScriptedService::new([answer]));
            let start = Instant::now();
            let body = read(stack.oneshot(post(CHAT)).await.unwrap().into_body()).await;
            assert_eq!(start.elapsed(), secs(9), "{status} {hold:?}");
            assert_eq!(which(body.end), Some(TimedOut::Idle), "{status} {hold:?}");
            assert_eq!(body.bytes, b"{\"id\":\"x\",", "{status} {hold:?}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn idle_content_is_not_restarted_by_keep_alives() {
    let timeouts = Timeouts::none().idle(Some(secs(3))).idle_content(Some(secs(7)));
    let mut pieces = vec![(2, ROLE), (2, WORD), (2, KEEP_ALIVE), (2, KEEP_ALIVE), (2, WORD)];
    pieces.extend([(2, KEEP_ALIVE); 20]);
    let answer = stream(pieces, Step::forever());
    for hold in HOLDS {
        let ended = ends(hold, &timeouts, answer.clone()).await;
        assert_eq!(
            ended,
            (secs(17), Some(TimedOut::IdleContent)),
            "{hold:?}: content at 4 and 10 s"
        );
    }
    // Before the first content it does not run.
    let pieces = [(2, KEEP_ALIVE); 20].into_iter().chain([(2, WORD), (2, DONE)]);
    for hold in HOLDS {
        let ended = ends(hold, &timeouts, stream(pieces.clone(), Step::end())).await;
        assert_eq!(ended, (secs(44), None), "{hold:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn idle_content_does_not_count_the_time_of_a_slow_reader() {
    let pieces = [WORD, KEEP_ALIVE, KEEP_ALIVE, WORD, DONE].map(Step::data);
    let answer = sse(ScriptedBody::new(pieces.into_iter().chain([Step::end()])));
    let timeouts = Timeouts::none().idle_content(Some(secs(7)));
    let layer = ClassifyLayer::builder().timeouts(timeouts).build().unwrap();
    let response = layer.layer(ScriptedService::new([answer])).oneshot(post(CHAT)).await.unwrap();
    let mut body = std::pin::pin!(response.into_body());
    let mut frames = 0;
    while let Some(frame) = body.frame().await {
        frame.unwrap();
        frames += 1;
        tokio::time::sleep(secs(30)).await;
    }
    assert_eq!(frames, 5);
}

#[tokio::test(start_paused = true)]
async fn attempt_ends_whatever_the_attempt_is_at() {
    let timeouts = Timeouts::none().attempt(Some(secs(10)));
    let in_head = stream([], Step::end()).after(secs(11));
    let in_preamble = stream([(1, ROLE), (8, KEEP_ALIVE), (8, WORD), (1, DONE)], Step::end());
    let in_content = stream([(1, WORD), (1, WORD), (9, WORD), (1, DONE)], Step::end());
    let document = Outcome::status(200).json(ScriptedBody::new([Step::data("{"), Step::forever()]));
    for hold in HOLDS {
        for answer in [&in_head, &in_preamble, &in_content, &document] {
            let ended = ends(hold, &timeouts, answer.clone()).await;
            assert_eq!(ended, (secs(10), Some(TimedOut::Attempt)), "{hold:?} {answer:?}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn attempt_does_not_end_a_stream_that_has_ended_by_itself() {
    let timeouts = Timeouts::none().attempt(Some(secs(10))).idle(Some(secs(60)));
    let answer = stream([(1, WORD), (1, DONE), (30, ": bye\n\n")], Step::end());
    for hold in HOLDS {
        assert_eq!(ends(hold, &timeouts, answer.clone()).await, (secs(32), None), "{hold:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn the_timeouts_of_an_attempt_start_with_it_and_not_with_the_call() {
    let timeouts = Timeouts::none().head(Some(secs(10))).attempt(Some(secs(15)));
    let provider =
        ScriptedService::new([Outcome::never(), Outcome::never(), good().after(secs(9))]);
    let stack = ServiceBuilder::new()
        .layer(exact_backoff().build().unwrap())
        .layer(ClassifyLayer::builder().timeouts(timeouts).build().unwrap())
        .service(provider.clone());
    let start = Instant::now();
    assert_eq!(stack.oneshot(post(CHAT)).await.unwrap().status(), 200);
    let at: Vec<_> = provider.log().iter().map(|seen| seen.at - start).collect();
    assert_eq!(at, [secs(0), millis(10_500), millis(21_500)]);
    assert_eq!(start.elapsed(), millis(30_500));
}

#[tokio::test(start_paused = true)]
async fn a_healthy_stream_of_two_hours_is_not_cut_by_the_defaults() {
    for hold in HOLDS {
        // A word every minute, and in the middle a silence just short of five.
        let minutes = (0..58).map(|_| (60, WORD));
        let pieces = minutes.clone().chain([(299, WORD)]).chain(minutes).chain([(60, DONE)]);
        let stack = ServiceBuilder::new()
            .layer(tireless().build().unwrap())
            .layer(ClassifyLayer::builder().hold(hold).build().unwrap())
            .service(ScriptedService::new([stream(pieces, Step::end()).after(secs(599))]));
        let start = Instant::now();
        let body = read(stack.oneshot(post(CHAT)).await.unwrap().into_body()).await;
        assert!(body.end.is_ok(), "{hold:?}: {:?}", body.end);
        assert_eq!(start.elapsed(), secs(599 + 117 * 60 + 299), "{hold:?}");
        assert!(start.elapsed() > secs(7_200));
        assert_eq!(body.text().matches("word").count(), 117, "{hold:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn the_defaults_end_a_head_after_ten_minutes_and_silence_after_five() {
    let defaults = Timeouts::new();
    assert_eq!(
        ends(Hold::FirstContent, &defaults, Outcome::never()).await,
        (secs(600), Some(TimedOut::Head))
    );
    let silent = stream([(1, WORD)], Step::forever());
    assert_eq!(
        ends(Hold::FirstContent, &defaults, silent).await,
        (secs(301), Some(TimedOut::Idle))
    );
}

#[tokio::test(start_paused = true)]
async fn a_failed_answer_that_is_slow_to_explain_itself_is_judged_by_its_head_after_ten_seconds() {
    let steps = [Step::data("{"), Step::pause(secs(60)), Step::data("}")];
    let slow = Outcome::status(429).json(ScriptedBody::new(steps).unknown_size());
    let stack = ServiceBuilder::new()
        .layer(exact_backoff().build().unwrap())
        .layer(ClassifyLayer::new())
        .service(ScriptedService::new([slow, good()]));
    let start = Instant::now();
    assert_eq!(stack.oneshot(post(CHAT)).await.unwrap().status(), 200);
    assert_eq!(start.elapsed(), millis(10_500));
}
