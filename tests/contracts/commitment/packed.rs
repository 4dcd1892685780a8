//! Packed answers are judged unpacked, and handed on packed.

use std::io::Write;

use backstop::testing::script::openai;
use backstop::testing::{Outcome, ScriptedBody, ScriptedService, Step};
use backstop::{CallOptions, ClassifyLayer, Error, Hold};
use flate2::Compression;
use flate2::write::{GzEncoder, ZlibEncoder};
use http::HeaderMap;
use tower::{ServiceBuilder, ServiceExt};

use super::documents::{bytes_of, documents};
use super::wires::{HOLDS, WIRES, Wire};
use crate::support::{Read, exact_backoff, frames, millis, post, read};

pub(super) fn gzip(text: impl AsRef<[u8]>) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::default());
    encoder.write_all(text.as_ref()).unwrap();
    encoder.finish().unwrap()
}

fn deflate(text: impl AsRef<[u8]>) -> Vec<u8> {
    let mut encoder = ZlibEncoder::new(Vec::new(), Compression::default());
    encoder.write_all(text.as_ref()).unwrap();
    encoder.finish().unwrap()
}

/// One piece for each event, flushed, and one for the trailer.
fn gzip_events(events: &[String]) -> Vec<Vec<u8>> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::default());
    let mut pieces = Vec::new();
    for event in events {
        encoder.write_all(event.as_bytes()).unwrap();
        encoder.flush().unwrap();
        pieces.push(std::mem::take(encoder.get_mut()));
    }
    pieces.push(encoder.finish().unwrap());
    pieces
}

struct Got {
    attempts: usize,
    headers: HeaderMap,
    body: Read<Error>,
}

async fn call(path: &str, hold: Hold, script: [Outcome; 2]) -> Got {
    let provider = ScriptedService::new(script);
    let stack = ServiceBuilder::new()
        .layer(exact_backoff().build().unwrap())
        .layer(ClassifyLayer::new())
        .service(provider.clone());
    let mut request = post(path);
    request.extensions_mut().insert(CallOptions::new().hold(hold));
    let response = stack.oneshot(request).await.unwrap();
    let (head, body) = response.into_parts();
    Got { attempts: provider.calls(), headers: head.headers, body: read(body).await }
}

fn packed_stream(wire: &Wire, pieces: Vec<Vec<u8>>, last: Option<Step>) -> Outcome {
    let steps = frames(pieces).into_iter().chain(last);
    wire.answer(ScriptedBody::new(steps).unknown_size()).header("content-encoding", "gzip")
}

#[tokio::test(start_paused = true)]
async fn a_packed_document_is_judged_and_handed_on_as_it_came() {
    for (path, answer) in documents("only") {
        let document = bytes_of(answer).await;
        for (coding, packed) in [
            ("gzip", gzip(&document)),
            ("X-GZip", gzip(&document)),
            ("deflate", deflate(&document)),
        ] {
            let answer = |bytes: &[u8]| {
                let body = ScriptedBody::new(frames(bytes.chunks(11).map(<[u8]>::to_vec)));
                Outcome::status(200).json(body.unknown_size()).header("content-encoding", coding)
            };
            let got = call(path, Hold::FirstContent, [answer(&packed), answer(b"")]).await;
            assert_eq!((got.attempts, &got.body.bytes), (1, &packed), "{path} {coding}");
            assert_eq!(got.headers["content-encoding"], coding);
            assert!(got.body.end.is_ok(), "{path} {coding}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_packed_error_object_under_a_200_is_found_and_retried() {
    for (coding, pack) in [("gzip", gzip as fn(String) -> Vec<u8>), ("deflate", deflate)] {
        let answer = |bytes: Vec<u8>| {
            Outcome::status(200).json(ScriptedBody::full(bytes)).header("content-encoding", coding)
        };
        let good =
            pack(String::from_utf8(bytes_of(openai::chat("m", "x")).await.to_vec()).unwrap());
        let failed = answer(pack(openai::error_body("server_error", None)));
        let got = call(WIRES[0].path, Hold::FirstContent, [failed, answer(good.clone())]).await;
        assert_eq!((got.attempts, got.body.bytes), (2, good), "{coding}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_packed_document_cut_at_any_byte_is_retried() {
    let document = bytes_of(openai::chat("m", "grüße 🙂")).await;
    for (coding, packed) in [("gzip", gzip(&document)), ("deflate", deflate(&document))] {
        let answer = |bytes: &[u8]| {
            let body = ScriptedBody::full(bytes.to_vec()).unknown_size();
            Outcome::status(200).json(body).header("content-encoding", coding)
        };
        for cut in 0..packed.len() {
            let script = [answer(&packed[..cut]), answer(&packed)];
            let got = call(WIRES[0].path, Hold::FirstContent, script).await;
            assert_eq!(got.attempts, 2, "{coding} cut at {cut} of {}", packed.len());
            assert_eq!(got.body.bytes, packed, "{coding} cut at {cut}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_packed_stream_is_judged_event_by_event_and_handed_on_as_it_came() {
    for wire in &WIRES {
        let pieces = gzip_events(&wire.events("only"));
        for hold in HOLDS {
            let script = [packed_stream(wire, pieces.clone(), None), wire.good_answer("second")];
            let got = call(wire.path, hold, script).await;
            assert_eq!(
                (got.attempts, got.body.bytes),
                (1, pieces.concat()),
                "{} {hold:?}",
                wire.name
            );
            assert_eq!(got.headers["content-encoding"], "gzip");
            assert!(got.body.end.is_ok(), "{} {hold:?}", wire.name);
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_packed_stream_that_breaks_is_retried_before_its_content_and_ends_abnormally_after_it() {
    for wire in &WIRES {
        let pieces = gzip_events(&wire.events("first"));
        for kept in 0..wire.events("first").len() {
            let broken = packed_stream(wire, pieces[..kept].to_vec(), Some(Step::error("reset")));
            let start = tokio::time::Instant::now();
            let got =
                call(wire.path, Hold::FirstContent, [broken, wire.good_answer("second")]).await;
            let case = format!("{} {kept}", wire.name);
            if kept < wire.until_content {
                assert_eq!((got.attempts, got.body.text()), (2, wire.good("second")), "{case}");
                assert_eq!(start.elapsed(), millis(500), "{case}");
            } else {
                assert_eq!((got.attempts, got.body.bytes), (1, pieces[..kept].concat()), "{case}");
                assert!(got.body.end.is_err(), "{case}");
            }
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_packed_stream_cut_at_any_byte_is_retried_where_it_was_to_be_whole() {
    let wire = &WIRES[0];
    let events = wire.events("first");
    let pieces = gzip_events(&events);
    let (packed, finish) = (pieces.concat(), pieces[..events.len() - 2].concat().len());
    let second = gzip(wire.good("second"));
    for cut in 0..packed.len() {
        let cut_answer = packed_stream(wire, vec![packed[..cut].to_vec()], None);
        let good = packed_stream(wire, vec![second.clone()], None);
        let got = call(wire.path, Hold::Complete, [cut_answer, good]).await;
        match got.attempts {
            // Only once its own end, or what stands for one, is in it.
            1 => assert!(cut > finish - 10 && got.body.bytes == packed[..cut], "cut at {cut}"),
            _ => assert_eq!(got.body.bytes, second, "cut at {cut}"),
        }
        assert!(got.attempts == 2 || got.body.end.is_ok(), "cut at {cut}");
    }
}
