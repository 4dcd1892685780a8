//! How much is held: up to the limit exactly, and what happens one byte past it.

use backstop::classify::HoldOverflow;
use backstop::testing::{Outcome, ScriptedBody, ScriptedService, Step};
use backstop::{Class, ClassifyLayer, Error, Hold, Verdict};
use tower::{ServiceBuilder, ServiceExt};

use super::documents::{bytes_of, documents};
use super::wires::{WIRES, Way, Wire};
use crate::support::{error_of, exact_backoff, frames, post, read};

struct Got {
    attempts: usize,
    status: u16,
    class: Class,
    bytes: Vec<u8>,
    end: Result<(), Error>,
}

async fn call(
    path: &str,
    (hold, limit, overflow): (Hold, usize, Option<HoldOverflow>),
    script: [Outcome; 2],
) -> Got {
    let provider = ScriptedService::new(script);
    let mut classify = ClassifyLayer::builder().hold(hold).hold_limit(limit as u64);
    if let Some(overflow) = overflow {
        classify = classify.hold_overflow(overflow);
    }
    let stack = ServiceBuilder::new()
        .layer(exact_backoff().build().unwrap())
        .layer(classify.build().unwrap())
        .service(provider.clone());
    let response = stack.oneshot(post(path)).await.unwrap();
    let (status, class) = (response.status().as_u16(), Verdict::of(&response).unwrap().class());
    let body = read(response.into_body()).await;
    Got { attempts: provider.calls(), status, class, bytes: body.bytes, end: body.end }
}

/// The caller got an error of ours that names the limit, and nothing was tried again.
fn assert_refused(got: &Got, case: &str) {
    assert_eq!((got.attempts, got.status, got.class), (1, 502, Class::TooLarge), "{case}");
    let (code, message) = error_of(&got.bytes);
    assert_eq!(code, "hold_limit", "{case}");
    assert!(message.contains("hold_limit"), "{case}: {message}");
    assert!(got.end.is_ok(), "{case}: {:?}", got.end);
}

/// Comments of exactly `length` bytes, in frames of at most 100, each a whole comment.
fn keep_alives(length: usize) -> Vec<String> {
    let mut left = length;
    let mut comments = Vec::new();
    while left > 0 {
        let next = if left <= 100 { left } else { (left - 50).min(100) };
        comments.push(format!(":{}\n\n", "k".repeat(next - 3)));
        left -= next;
    }
    assert_eq!(comments.concat().len(), length, "the fixture is at the bound");
    comments
}

/// Events in server-sent form, for which comments are keep-alives.
fn sse_wires() -> impl Iterator<Item = &'static Wire> {
    WIRES.iter().filter(|wire| wire.name != "gemini array")
}

#[tokio::test(start_paused = true)]
async fn keep_alives_up_to_the_limit_are_held_and_a_failure_after_them_is_retried() {
    for wire in sse_wires() {
        for overflow in [None, Some(HoldOverflow::Commit), Some(HoldOverflow::Fail)] {
            let mut pieces = keep_alives(1000);
            pieces.extend(wire.sent("first", 0, Way::ErrorEvent));
            let script = [wire.broken_answer(pieces, Way::ErrorEvent), wire.good_answer("second")];
            let got = call(wire.path, (Hold::FirstContent, 1000, overflow), script).await;
            assert_eq!(got.attempts, 2, "{} {overflow:?}", wire.name);
            assert_eq!(got.bytes, wire.good("second").into_bytes());
        }
    }
}

#[tokio::test(start_paused = true)]
async fn one_byte_of_keep_alives_past_the_limit_commits_the_stream_and_its_failure_is_seen() {
    for wire in sse_wires() {
        // `commit` is the default until the first content.
        for overflow in [None, Some(HoldOverflow::Commit)] {
            let mut pieces = keep_alives(1001);
            pieces.extend(wire.sent("first", 0, Way::ErrorEvent));
            let all = pieces.concat();
            let script = [wire.broken_answer(pieces, Way::ErrorEvent), wire.good_answer("second")];
            let got = call(wire.path, (Hold::FirstContent, 1000, overflow), script).await;
            assert_eq!((got.attempts, got.status), (1, 200), "{} {overflow:?}", wire.name);
            assert_eq!(got.bytes, all.into_bytes(), "{} {overflow:?}", wire.name);
            assert!(got.end.is_err(), "{} {overflow:?}", wire.name);
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_stream_committed_past_the_limit_is_handed_on_whole() {
    for wire in sse_wires() {
        let mut pieces = keep_alives(5000);
        pieces.extend(wire.events("first"));
        let all = pieces.concat();
        let script = [wire.broken_answer(pieces, Way::Eof), wire.good_answer("second")];
        let got = call(wire.path, (Hold::FirstContent, 1000, None), script).await;
        assert_eq!((got.attempts, got.class), (1, Class::Success), "{}", wire.name);
        assert_eq!(got.bytes, all.into_bytes(), "{}", wire.name);
        assert!(got.end.is_ok(), "{}", wire.name);
    }
}

#[tokio::test(start_paused = true)]
async fn one_byte_of_keep_alives_past_the_limit_fails_the_stream_where_that_was_chosen() {
    for wire in sse_wires() {
        let mut pieces = keep_alives(1001);
        pieces.extend(wire.events("first"));
        let script = [wire.broken_answer(pieces, Way::Eof), wire.good_answer("second")];
        let choice = (Hold::FirstContent, 1000, Some(HoldOverflow::Fail));
        assert_refused(&call(wire.path, choice, script).await, wire.name);
    }
}

#[tokio::test(start_paused = true)]
async fn a_whole_stream_may_fill_the_limit_exactly() {
    for wire in &WIRES {
        let (events, last) = (wire.events("first"), wire.events("first").len() - 1);
        // The frame that brings a stream's own end decides, whatever its size; all before it must be held.
        let needed = if wire.has_end { events[..last].concat() } else { wire.good("first") };
        for limit in [needed.len(), wire.good("first").len()] {
            for overflow in [None, Some(HoldOverflow::Fail), Some(HoldOverflow::Commit)] {
                let choice = (Hold::Complete, limit, overflow);
                let cut = wire.broken_answer(events[..last].to_vec(), Way::Broken);
                let got = call(wire.path, choice, [cut, wire.good_answer("first")]).await;
                assert_eq!((got.attempts, got.class), (2, Class::Success), "{}", wire.name);
                assert_eq!(got.bytes, wire.good("first").into_bytes(), "{}", wire.name);
                assert!(got.end.is_ok(), "{}", wire.name);
            }
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_stream_that_is_to_be_whole_fails_one_byte_past_the_limit() {
    for wire in &WIRES {
        let events = wire.events("first");
        let limit = events[..events.len() - 1].concat().len() - 1;
        // `fail` is the default here: who asked for whole answers gets none in part.
        for overflow in [None, Some(HoldOverflow::Fail)] {
            let script = [wire.good_answer("first"), wire.good_answer("second")];
            let got = call(wire.path, (Hold::Complete, limit, overflow), script).await;
            assert_refused(&got, wire.name);
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_stream_that_is_to_be_whole_can_be_committed_past_the_limit() {
    for wire in &WIRES {
        let events = wire.events("first");
        let (all, last) = (events.concat(), events.len() - 1);
        let limit = events[..last].concat().len() - 1;
        let choice = (Hold::Complete, limit, Some(HoldOverflow::Commit));
        let script = [wire.good_answer("first"), wire.good_answer("second")];
        let got = call(wire.path, choice, script).await;
        assert_eq!((got.attempts, got.class, got.bytes), (1, Class::Success, all.into_bytes()));
        assert!(got.end.is_ok(), "{}", wire.name);
        // What fails after that reaches the caller as an abnormal end.
        let cut = wire.broken_answer(events[..last].to_vec(), Way::Broken);
        let got = call(wire.path, choice, [cut, wire.good_answer("second")]).await;
        assert_eq!((got.attempts, got.bytes), (1, events[..last].concat().into_bytes()));
        assert!(got.end.is_err(), "{}", wire.name);
    }
}

#[tokio::test(start_paused = true)]
async fn a_document_may_fill_the_limit_exactly_and_is_judged() {
    for (path, answer) in documents("first") {
        let document = bytes_of(answer).await;
        for overflow in [None, Some(HoldOverflow::Commit), Some(HoldOverflow::Fail)] {
            let cut = document.slice(..document.len() - 1);
            let of = |bytes: &bytes::Bytes| {
                Outcome::status(200).json(ScriptedBody::new(frames([bytes.clone()])).unknown_size())
            };
            // As long as the limit, and cut: which shows that it was read.
            let choice = (Hold::FirstContent, cut.len(), overflow);
            let whole = Outcome::status(200).json(ScriptedBody::full(document.clone()));
            let got = call(path, choice, [of(&cut), whole]).await;
            assert_eq!((got.attempts, got.bytes), (2, document.to_vec()), "{path} {overflow:?}");
            let choice = (Hold::FirstContent, document.len(), overflow);
            let got = call(path, choice, [of(&document), of(&document)]).await;
            assert_eq!((got.attempts, got.class), (1, Class::Success), "{path} {overflow:?}");
            assert_eq!(got.bytes, document, "{path} {overflow:?}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_document_one_byte_past_the_limit_is_committed_or_fails_as_chosen() {
    for (path, answer) in documents("first") {
        let document = bytes_of(answer).await;
        let limit = document.len() - 1;
        let answer = || {
            let pieces = [Step::data(document.slice(..limit)), Step::data(document.slice(limit..))];
            Outcome::status(200).json(ScriptedBody::new(pieces).unknown_size())
        };
        for overflow in [None, Some(HoldOverflow::Commit)] {
            let got = call(path, (Hold::FirstContent, limit, overflow), [answer(), answer()]).await;
            assert_eq!((got.attempts, got.status), (1, 200), "{path}");
            assert_eq!(got.bytes, document, "{path}");
            assert!(got.end.is_ok(), "{path}");
        }
        let choice = (Hold::FirstContent, limit, Some(HoldOverflow::Fail));
        assert_refused(&call(path, choice, [answer(), answer()]).await, path);
    }
}
