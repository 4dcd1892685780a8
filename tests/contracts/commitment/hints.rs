//! What a classified body says of its length and its end is true at every step.

use backstop::testing::{Outcome, ScriptedBody, ScriptedService, Step};
use backstop::{AttemptCell, ClassifyLayer, Hold};
use bytes::Bytes;
use http_body::{Body, SizeHint};
use http_body_util::BodyExt;
use tower::{ServiceBuilder, ServiceExt};

use super::documents::{bytes_of, documents};
use super::wires::{HOLDS, WAYS, WIRES};
use crate::support::{frames, post};

/// What a body said before each poll, and what the polls gave.
#[derive(Debug, Default)]
struct Course {
    said: Vec<(u64, SizeHint, bool)>,
    read: u64,
    ended_well: bool,
}

async fn follow<B: Body<Data = Bytes>>(body: B) -> Course {
    let mut body = std::pin::pin!(body);
    let mut course = Course::default();
    loop {
        course.said.push((course.read, body.size_hint(), body.is_end_stream()));
        match body.as_mut().frame().await {
            Some(Ok(frame)) => {
                course.read += frame.data_ref().map_or(0, |data| data.len() as u64);
            }
            end => {
                course.ended_well = end.is_none();
                course.said.push((course.read, body.size_hint(), body.is_end_stream()));
                return course;
            }
        }
    }
}

impl Course {
    fn assert_honest(&self, case: &str) {
        let last = self.said.len() - 1;
        for (step, (read, hint, is_end)) in self.said.iter().enumerate() {
            let left = self.read - read;
            assert!(hint.upper().is_none_or(|upper| left <= upper), "{case} step {step}: {self:?}");
            // A body that fails owes nothing any more.
            assert!(!self.ended_well || hint.lower() <= left, "{case} step {step}: {self:?}");
            let is_over = left == 0 && (self.ended_well || step == last);
            assert!(!is_end || is_over, "{case} step {step}: {self:?}");
        }
    }

    /// Its length was known from the start, and its end without a further poll.
    fn assert_known(&self, case: &str) {
        let (_, hint, _) = self.said[0];
        assert_eq!(hint.exact(), Some(self.read), "{case}: {self:?}");
        let last = self.said.iter().find(|(read, ..)| *read == self.read);
        assert!(last.is_some_and(|(_, _, is_end)| *is_end), "{case}: {self:?}");
    }
}

async fn classified(path: &str, hold: Hold, answer: Outcome) -> Course {
    let provider = ScriptedService::new([answer]);
    let layer = ClassifyLayer::builder().hold(hold).build().unwrap();
    let stack = ServiceBuilder::new().layer(layer).service(provider);
    follow(stack.oneshot(post(path)).await.unwrap().into_body()).await
}

/// The same steps in bodies that know their length, do not, or were told one.
fn bodies(steps: &[Step], length: usize) -> [ScriptedBody; 3] {
    let body = || ScriptedBody::new(steps.to_vec());
    [body(), body().unknown_size(), body().content_length(length as u64)]
}

#[tokio::test(start_paused = true)]
async fn the_hints_of_streams_are_honest_at_every_step() {
    for wire in &WIRES {
        for hold in HOLDS {
            for kept in 0..=wire.events("first").len() {
                for way in WAYS {
                    let sent = wire.sent("first", kept, way);
                    let length = sent.concat().len();
                    let steps: Vec<_> = frames(sent).into_iter().chain(way.step()).collect();
                    for body in bodies(&steps, length) {
                        let case = format!("{} {hold:?} {kept} {way:?} {body:?}", wire.name);
                        classified(wire.path, hold, wire.answer(body)).await.assert_honest(&case);
                    }
                }
            }
        }
    }
}

#[tokio::test(start_paused = true)]
async fn the_hints_of_documents_are_honest_at_every_step() {
    for (path, answer) in documents("only") {
        let document = bytes_of(answer).await;
        let pieces = || frames(document.chunks(40).map(Bytes::copy_from_slice));
        for hold in HOLDS {
            for body in bodies(&pieces(), document.len()) {
                let case = format!("{path} {hold:?} {body:?}");
                classified(path, hold, Outcome::status(200).json(body)).await.assert_honest(&case);
            }
            let broken: Vec<_> = pieces().into_iter().chain([Step::error("reset")]).collect();
            for body in bodies(&broken, document.len() + 1) {
                let case = format!("{path} {hold:?} {body:?}");
                classified(path, hold, Outcome::status(200).json(body)).await.assert_honest(&case);
            }
        }
    }
}

#[tokio::test(start_paused = true)]
async fn an_answer_that_was_held_whole_knows_its_length_and_its_end() {
    for (path, answer) in documents("only") {
        let document = bytes_of(answer).await;
        for body in bodies(&frames([document.clone()]), document.len()) {
            let course =
                classified(path, Hold::FirstContent, Outcome::status(200).json(body)).await;
            course.assert_known(path);
        }
    }
    for wire in &WIRES {
        let body = ScriptedBody::new(frames(wire.events("only")));
        classified(wire.path, Hold::FirstContent, wire.answer(body)).await.assert_honest(wire.name);
    }
}

#[tokio::test(start_paused = true)]
async fn a_failed_stream_that_is_shown_as_an_error_document_has_the_documents_length() {
    for wire in &WIRES {
        for hold in [Hold::FirstContent, Hold::Complete] {
            for way in WAYS {
                let sent = wire.sent("first", 0, way);
                let provider = ScriptedService::new([wire.broken_answer(sent, way)]);
                let layer = ClassifyLayer::builder().hold(hold).build().unwrap();
                let stack = ServiceBuilder::new().layer(layer).service(provider);
                let mut response = stack.oneshot(post(wire.path)).await.unwrap();
                AttemptCell::present_failure(&mut response);
                let length = response.headers()["content-length"].to_str().unwrap().to_owned();
                let course = follow(response.into_body()).await;
                let case = format!("{} {hold:?} {way:?}", wire.name);
                course.assert_honest(&case);
                course.assert_known(&case);
                assert_eq!(course.read.to_string(), length, "{case}");
            }
        }
    }
}

#[tokio::test(start_paused = true)]
async fn trailers_are_handed_on_after_the_data_in_every_mode() {
    let trailers = http::HeaderMap::from_iter([(http::header::ETAG, "x".parse().unwrap())]);
    for wire in &WIRES {
        for hold in HOLDS {
            let steps =
                frames(wire.events("only")).into_iter().chain([Step::trailers(trailers.clone())]);
            let answer = wire.answer(ScriptedBody::new(steps).unknown_size());
            let layer = ClassifyLayer::builder().hold(hold).build().unwrap();
            let stack = ServiceBuilder::new().layer(layer).service(ScriptedService::new([answer]));
            let body = stack.oneshot(post(wire.path)).await.unwrap().into_body();
            let collected = body.collect().await.unwrap();
            assert_eq!(collected.trailers(), Some(&trailers), "{} {hold:?}", wire.name);
            assert_eq!(collected.to_bytes(), wire.good("only"), "{} {hold:?}", wire.name);
        }
    }
}
