//! A reader that knows an answer's length stops at it: what fails must show before that.

use backstop::testing::{Outcome, ScriptedBody, ScriptedService};
use backstop::{ClassifyLayer, Hold};
use bytes::Bytes;
use http::Response;
use http_body::Body;
use http_body_util::BodyExt;
use tower::{ServiceBuilder, ServiceExt};

use super::wires::{HOLDS, WIRES, Way, Wire};
use crate::support::{frames, post};

/// Reads as hyper's server does: a length in the head, else the body's own, ends the reading without another poll; so
/// does `is_end_stream`. Gives the bytes, and whether they look like a whole answer.
async fn read_like_a_server<B>(response: Response<B>) -> (Vec<u8>, bool)
where
    B: Body<Data = Bytes>,
{
    let (head, body) = response.into_parts();
    let mut body = std::pin::pin!(body);
    let announced = head.headers.get("content-length").map(|length| length.to_str().unwrap());
    let length = match announced {
        Some(length) => Some(length.parse().unwrap()),
        None => body.size_hint().exact(),
    };
    let mut bytes = Vec::new();
    loop {
        if length == Some(bytes.len() as u64) || (length.is_none() && body.is_end_stream()) {
            return (bytes, true);
        }
        match body.as_mut().frame().await {
            Some(Ok(frame)) => bytes.extend(frame.into_data().unwrap_or_default()),
            Some(Err(_)) => return (bytes, false),
            None => return (bytes, length.is_none()),
        }
    }
}

/// The ways in which a client below can know the length of a stream that it passes.
fn known_lengths(wire: &Wire, pieces: &[String]) -> [(&'static str, Outcome); 3] {
    let length = pieces.concat().len();
    let body = || ScriptedBody::new(frames(pieces.to_vec()));
    [
        (
            "head and body",
            wire.answer(body().content_length(length as u64))
                .header("content-length", &length.to_string()),
        ),
        ("head", wire.answer(body().unknown_size()).header("content-length", &length.to_string())),
        ("body", wire.answer(body())),
    ]
}

async fn classified(wire: &Wire, hold: Hold, answer: Outcome) -> (Vec<u8>, bool) {
    let provider = ScriptedService::new([answer]);
    let layer = ClassifyLayer::builder().hold(hold).build().unwrap();
    let stack = ServiceBuilder::new().layer(layer).service(provider);
    read_like_a_server(stack.oneshot(post(wire.path)).await.unwrap()).await
}

#[tokio::test(start_paused = true)]
async fn a_stream_of_known_length_that_fails_never_ends_cleanly() {
    for wire in &WIRES {
        for hold in HOLDS {
            for kept in 0..wire.events("first").len() {
                for way in [Way::Eof, Way::ErrorEvent] {
                    let sent = wire.sent("first", kept, way);
                    // No bytes: there is nothing to take for an answer.
                    if sent.is_empty() || !wire.fails(kept, way) {
                        continue;
                    }
                    for (known, answer) in known_lengths(wire, &sent) {
                        let (bytes, whole) = classified(wire, hold, answer).await;
                        let case = format!("{} {hold:?} {kept} {way:?}, by {known}", wire.name);
                        assert!(sent.concat().as_bytes().starts_with(&bytes), "{case}");
                        assert!(!whole, "{case}: {} of {} bytes", bytes.len(), sent.concat().len());
                    }
                }
            }
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_good_stream_of_known_length_is_whole() {
    for wire in &WIRES {
        for hold in HOLDS {
            for (known, answer) in known_lengths(wire, &wire.events("first")) {
                let (bytes, whole) = classified(wire, hold, answer).await;
                assert!(whole, "{} {hold:?}, by {known}", wire.name);
                assert_eq!(bytes, wire.good("first").into_bytes(), "{} {hold:?}", wire.name);
            }
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_stream_of_unknown_length_that_fails_never_ends_cleanly_whoever_reads_it() {
    for wire in &WIRES {
        for hold in HOLDS {
            for kept in 0..wire.events("first").len() {
                for way in [Way::Eof, Way::ErrorEvent, Way::Broken, Way::Silence] {
                    if !wire.fails(kept, way) {
                        continue;
                    }
                    let sent = wire.sent("first", kept, way);
                    let answer = wire.broken_answer(sent.clone(), way);
                    let (bytes, whole) = classified(wire, hold, answer).await;
                    let case = format!("{} {hold:?} {kept} {way:?}", wire.name);
                    assert_eq!(
                        bytes,
                        sent.concat().into_bytes(),
                        "{case}: all that was held comes"
                    );
                    assert!(!whole, "{case}");
                }
            }
        }
    }
}
