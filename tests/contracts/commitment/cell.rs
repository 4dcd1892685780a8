//! The attempt cell: what it holds, and that it holds it in time.

use std::pin::Pin;

use backstop::classify::ClassifyBody;
use backstop::testing::{Outcome, ScriptedBody, ScriptedService, Step};
use backstop::vocabulary::{StreamEnd, Usage};
use backstop::{AttemptCell, Class, ClassifyLayer, Hold, Verdict};
use http::Response;
use http_body::Body;
use http_body_util::BodyExt;
use tower::{ServiceBuilder, ServiceExt};

use super::documents::{bytes_of, documents};
use super::wires::{IDLE, WIRES, Wire};
use crate::support::{CHAT, frames, post, read, secs};

const MODES: [Hold; 2] = [Hold::FirstContent, Hold::Complete];

async fn classified(
    path: &str,
    hold: Hold,
    answer: Outcome,
) -> (AttemptCell, Response<Pin<Box<ClassifyBody<ScriptedBody>>>>) {
    let layer = ClassifyLayer::builder().hold(hold).build().unwrap();
    let stack = ServiceBuilder::new().layer(layer).service(ScriptedService::new([answer]));
    let response = stack.oneshot(post(path)).await.unwrap();
    (AttemptCell::of(&response).unwrap().clone(), response.map(Box::pin))
}

fn last_class(cell: &AttemptCell) -> Option<Class> {
    cell.last_verdict().map(Verdict::class)
}

/// The events, a second apart, the first one a second after the head, which comes after two.
fn paced(wire: &Wire, events: Vec<String>, last: Option<Step>) -> Outcome {
    let pause = Step::pause(secs(1));
    let steps = frames(events).into_iter().chain(last).flat_map(|step| [pause.clone(), step]);
    wire.answer(ScriptedBody::new(steps).unknown_size()).after(secs(2))
}

#[tokio::test(start_paused = true)]
async fn every_moment_of_a_stream_is_exact() {
    for wire in &WIRES {
        for hold in MODES {
            let events = wire.events("only");
            let (count, bytes) = (events.len() as u64, events.concat().len() as u64);
            let (cell, response) = classified(wire.path, hold, paced(wire, events, None)).await;
            let body = read(response.into_body()).await;
            let case = format!("{} {hold:?}: {cell:?}", wire.name);
            assert!(body.end.is_ok(), "{case}");
            assert_eq!(cell.head(), Some(secs(2)), "{case}");
            assert_eq!(cell.first_byte(), Some(secs(3)), "{case}");
            assert_eq!(cell.first_content(), Some(secs(2 + wire.until_content as u64)), "{case}");
            assert_eq!(cell.end(), Some(secs(2 + count)), "{case}");
            assert_eq!(cell.bytes(), bytes, "{case}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn the_last_verdict_knows_model_usage_and_end_of_a_stream() {
    for wire in &WIRES {
        for hold in MODES {
            let (cell, response) = classified(wire.path, hold, wire.good_answer("model-7")).await;
            read(response.into_body()).await;
            let verdict = cell.last_verdict().unwrap();
            assert_eq!(verdict.class(), Class::Success, "{} {hold:?}", wire.name);
            assert_eq!(verdict.model(), Some("model-7"), "{} {hold:?}", wire.name);
            assert_eq!(verdict.usage(), Some(Usage::new(12, 5)), "{} {hold:?}", wire.name);
            assert_eq!(verdict.stream_end(), Some(StreamEnd::Complete), "{} {hold:?}", wire.name);
        }
    }
}

#[tokio::test(start_paused = true)]
async fn every_moment_of_a_document_is_exact() {
    for (path, answer) in documents("only") {
        let document = bytes_of(answer).await;
        let half = document.len() / 2;
        let steps = [
            Step::pause(secs(1)),
            Step::data(document.slice(..half)),
            Step::pause(secs(1)),
            Step::data(document.slice(half..)),
        ];
        let answer = Outcome::status(200).json(ScriptedBody::new(steps)).after(secs(2));
        let (cell, _response) = classified(path, Hold::FirstContent, answer).await;
        assert_eq!(cell.head(), Some(secs(2)), "{path}");
        assert_eq!(cell.first_byte(), Some(secs(3)), "{path}");
        assert_eq!((cell.first_content(), cell.end()), (None, Some(secs(4))), "{path}");
        assert_eq!(cell.bytes(), document.len() as u64, "{path}");
        // A document is over when it is handed on.
        assert_eq!(cell.last_verdict(), cell.verdict(), "{path}");
        assert_eq!(cell.last_verdict().map(|verdict| verdict.class()), Some(Class::Success));
    }
}

#[tokio::test(start_paused = true)]
async fn the_cell_is_filled_when_the_last_frame_of_a_known_length_is_handed_on() {
    for wire in &WIRES {
        for hold in MODES {
            let body = ScriptedBody::new(frames(wire.events("only")));
            let (cell, response) = classified(wire.path, hold, wire.answer(body)).await;
            let (mut body, mut left) = (response.into_body(), wire.good("only").len());
            while left > 0 {
                left -= body.frame().await.unwrap().unwrap().into_data().unwrap().len();
            }
            // Nobody asks further who knows the length.
            let case = format!("{} {hold:?}: {cell:?}", wire.name);
            assert_eq!(last_class(&cell), Some(Class::Success), "{case}");
            assert_eq!(cell.end(), Some(secs(0)), "{case}");
            drop(body);
            assert_eq!(last_class(&cell), Some(Class::Success), "{case}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn the_cell_is_filled_when_is_end_stream_says_so() {
    for wire in &WIRES {
        let body = ScriptedBody::new(frames(wire.events("only")));
        let (cell, response) = classified(wire.path, Hold::FirstContent, wire.answer(body)).await;
        let mut body = response.into_body();
        while !body.is_end_stream() {
            body.frame().await.unwrap().unwrap();
        }
        assert_eq!(last_class(&cell), Some(Class::Success), "{}", wire.name);
    }
}

#[tokio::test(start_paused = true)]
async fn the_cell_is_filled_when_the_stream_ends_in_an_error() {
    for wire in &WIRES {
        let kept = wire.until_content;
        let events = wire.events("first")[..kept].to_vec();
        let bytes = events.concat().len() as u64;
        let at = 2 + kept as u64;
        for (last, class, stream_end, end) in [
            (Some(Step::error("reset")), Class::Transient, StreamEnd::Truncated, secs(at + 1)),
            (Some(Step::end()), Class::Transient, StreamEnd::Truncated, secs(at + 1)),
            (Some(Step::forever()), Class::Timeout, StreamEnd::Truncated, secs(at) + IDLE),
        ] {
            let answer = paced(wire, events.clone(), last);
            let (cell, response) = classified(wire.path, Hold::FirstContent, answer).await;
            assert_eq!(cell.last_verdict(), None, "{}: the stream goes on", wire.name);
            assert_eq!(cell.verdict().map(|verdict| verdict.class()), Some(Class::Success));
            let mut body = response.into_body();
            let error = loop {
                match body.frame().await.unwrap() {
                    Ok(_) => assert_eq!(cell.end(), None, "{}", wire.name),
                    Err(error) => break error,
                }
            };
            // Before anything else is polled or dropped.
            let case = format!("{}: {cell:?}", wire.name);
            let verdict = cell.last_verdict().unwrap();
            assert_eq!(error.verdict(), Some(verdict), "{case}");
            assert_eq!(
                (verdict.class(), verdict.stream_end()),
                (class, Some(stream_end)),
                "{case}"
            );
            assert_eq!((cell.end(), cell.bytes()), (Some(end), bytes), "{case}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_body_that_is_dropped_before_its_end_was_cancelled() {
    for wire in &WIRES {
        // After each number of frames up to the one before the stream's last.
        for read in 0..wire.events("only").len() - wire.dispensable {
            let answer = paced(wire, wire.events("only"), None);
            let (cell, response) = classified(wire.path, Hold::FirstContent, answer).await;
            let mut body = response.into_body();
            for _ in 0..read {
                body.frame().await.unwrap().unwrap();
            }
            let seen = read.max(wire.until_content);
            if seen >= wire.events("only").len() - wire.dispensable {
                continue;
            }
            assert_eq!(cell.last_verdict(), None, "{} {read}", wire.name);
            tokio::time::sleep(secs(100)).await;
            drop(body);
            let case = format!("{} {read}: {cell:?}", wire.name);
            let verdict = cell.last_verdict().unwrap();
            assert_eq!(verdict.class(), Class::Cancelled, "{case}");
            assert_eq!(verdict.stream_end(), Some(StreamEnd::Truncated), "{case}");
            assert_eq!(cell.end(), Some(secs(2 + seen as u64 + 100)), "{case}");
            assert_eq!(cell.bytes(), wire.events("only")[..seen].concat().len() as u64, "{case}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_body_that_is_dropped_after_its_own_end_is_a_success() {
    for wire in &WIRES {
        let events = wire.events("only");
        let answer = paced(wire, events.clone(), Some(Step::forever()));
        let (cell, response) = classified(wire.path, Hold::FirstContent, answer).await;
        let mut body = response.into_body();
        // An SDK stops here, and never sees the end of the bytes.
        for _ in 0..events.len() {
            assert_eq!(cell.end(), None, "{}", wire.name);
            body.frame().await.unwrap().unwrap();
        }
        assert_eq!(
            cell.last_verdict().is_some(),
            wire.has_end,
            "{}: with its last frame",
            wire.name
        );
        drop(body);
        let case = format!("{}: {cell:?}", wire.name);
        let verdict = cell.last_verdict().unwrap();
        assert_eq!(verdict.class(), Class::Success, "{case}");
        assert_eq!(verdict.stream_end(), Some(StreamEnd::Complete), "{case}");
        assert_eq!(cell.end(), Some(secs(2 + events.len() as u64)), "{case}");
    }
}

#[tokio::test(start_paused = true)]
async fn an_answer_that_was_held_whole_is_a_success_however_little_of_it_is_read() {
    for wire in WIRES.iter().filter(|wire| wire.has_end) {
        let (cell, response) =
            classified(wire.path, Hold::Complete, wire.good_answer("only")).await;
        drop(response);
        assert_eq!(last_class(&cell), Some(Class::Success), "{}", wire.name);
    }
}

#[tokio::test(start_paused = true)]
async fn the_cell_of_a_failed_answer_tells_of_the_failure_and_when_it_came() {
    let steps = [Step::pause(secs(1)), Step::data("{\"error\":{\"code\":\"x\"}}")];
    let answer = Outcome::status(500).json(ScriptedBody::new(steps)).after(secs(2));
    let (cell, _response) = classified(CHAT, Hold::FirstContent, answer).await;
    assert_eq!(cell.verdict().map(|verdict| verdict.class()), Some(Class::Transient));
    assert_eq!(cell.last_verdict(), cell.verdict());
    assert_eq!((cell.head(), cell.first_byte()), (Some(secs(2)), Some(secs(3))));
    assert_eq!((cell.end(), cell.bytes()), (Some(secs(3)), 22));
}

#[tokio::test(start_paused = true)]
async fn what_comes_after_the_own_end_is_counted_but_moves_no_moment() {
    let wire = &WIRES[0];
    let mut events = wire.events("only");
    let end = 2 + events.len() as u64;
    events.push(": bye\n\n".to_owned());
    let bytes = events.concat().len() as u64;
    let (cell, response) =
        classified(wire.path, Hold::FirstContent, paced(wire, events, None)).await;
    let body = read(response.into_body()).await;
    assert!(body.end.is_ok());
    assert_eq!((cell.end(), cell.bytes()), (Some(secs(end)), bytes));
}
