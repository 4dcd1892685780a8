//! How much, and for how long, a failed answer is drained: in memory, to the millisecond and the byte.

use std::io::ErrorKind;
use std::time::Duration;

use backstop::testing::{BodyProbe, Outcome, ScriptedBody, ScriptedService, Step};
use tokio::time::Instant;
use tower::{Layer, ServiceExt};

use crate::support::{CHAT, exact_backoff, frames, millis, post, secs};

/// One retry after a failure with this body; how the body was treated, and how long the call took.
async fn retry_after(body: ScriptedBody) -> (BodyProbe, Duration) {
    let probe = body.probe();
    let provider = ScriptedService::new([Outcome::status(503).body(body), Outcome::status(200)]);
    let stack = exact_backoff().build().unwrap().layer(provider.clone());
    let start = Instant::now();
    assert_eq!(stack.oneshot(post(CHAT)).await.unwrap().status(), 200);
    assert_eq!(provider.calls(), 2);
    assert_eq!(probe.polls_after_end(), 0);
    (probe, start.elapsed())
}

/// When a call that is in its wait has let its failed answer go: at 49 ms, at 51 ms.
async fn kept_until(body: ScriptedBody) -> [bool; 2] {
    let probe = body.probe();
    let provider = ScriptedService::new([Outcome::status(503).body(body), Outcome::status(200)]);
    let stack = exact_backoff().build().unwrap().layer(provider);
    let call = tokio::spawn(stack.oneshot(post(CHAT)));
    tokio::time::sleep(millis(49)).await;
    let before = probe.is_dropped();
    tokio::time::sleep(millis(2)).await;
    let after = probe.is_dropped();
    call.await.unwrap().unwrap();
    [before, after]
}

#[tokio::test(start_paused = true)]
async fn eight_kibibytes_are_drained_to_their_end_and_one_byte_more_is_not() {
    for (length, is_finished) in [(0, true), (1, true), (8 * 1024, true), (8 * 1024 + 1, false)] {
        let (whole, rest) = (vec![b'x'; length], ScriptedBody::new([]).unknown_size());
        let body = match length {
            0 => rest,
            _ => ScriptedBody::new(frames(whole.chunks(1000).map(<[u8]>::to_vec))).unknown_size(),
        };
        let (probe, elapsed) = retry_after(body).await;
        assert_eq!(probe.bytes(), length as u64, "the fixture is at the bound");
        assert_eq!(probe.is_finished(), is_finished, "{length}");
        assert!(probe.is_dropped());
        assert_eq!(elapsed, millis(500), "{length}: the wait is not longer for it");
    }
}

#[tokio::test(start_paused = true)]
async fn a_large_answer_is_let_go_at_once() {
    let pieces = vec![vec![b'x'; 4 * 1024]; 1_000];
    let (probe, elapsed) = retry_after(ScriptedBody::new(frames(pieces))).await;
    assert_eq!((probe.bytes(), elapsed), (12 * 1024, millis(500)));
    assert!(probe.is_dropped());
}

#[tokio::test(start_paused = true)]
async fn an_answer_is_drained_for_fifty_milliseconds_and_then_let_go() {
    assert_eq!(kept_until(ScriptedBody::new([Step::forever()])).await, [false, true]);
    // One that comes in time is read to its end, one that does not is not.
    for (pause, is_finished) in [(49, true), (51, false)] {
        let steps = [Step::data("x"), Step::pause(millis(pause)), Step::data("y")];
        let (probe, elapsed) = retry_after(ScriptedBody::new(steps).unknown_size()).await;
        assert_eq!((probe.is_finished(), elapsed), (is_finished, millis(500)), "{pause}");
    }
}

#[tokio::test(start_paused = true)]
async fn an_answer_that_trickles_does_not_get_longer() {
    let steps = (0..100).flat_map(|_| [Step::data("x"), Step::pause(millis(10))]);
    let (probe, elapsed) = retry_after(ScriptedBody::new(steps)).await;
    assert!(!probe.is_finished() && probe.bytes() <= 6, "{probe:?}");
    assert_eq!(elapsed, millis(500));
}

#[tokio::test(start_paused = true)]
async fn an_answer_that_breaks_while_it_is_drained_changes_nothing() {
    let steps = [Step::data("x"), Step::io_error(ErrorKind::ConnectionReset)];
    let (probe, elapsed) = retry_after(ScriptedBody::new(steps)).await;
    assert!(probe.is_finished() && probe.is_dropped());
    assert_eq!(elapsed, millis(500));
}

#[tokio::test(start_paused = true)]
async fn a_wait_shorter_than_the_draining_ends_it() {
    let body = ScriptedBody::new([Step::forever()]);
    let probe = body.probe();
    let provider = ScriptedService::new([Outcome::status(503).body(body), Outcome::status(200)]);
    let schedule = backstop::Schedule::new(millis(20), secs(1)).with_jitter(backstop::Jitter::None);
    let layer = exact_backoff().schedule(schedule).build().unwrap();
    let start = Instant::now();
    layer.layer(provider).oneshot(post(CHAT)).await.unwrap();
    assert_eq!(start.elapsed(), millis(20));
    assert!(probe.is_dropped());
}
