//! Every end that a stream can come to, at every place, with a reader who leaves at every place.

use backstop_classify::ClassifyLayer;
use backstop_core::Hold;
use backstop_provenance::{AttemptLayer, Outcome, Provenance, ProvenanceLayer};
use bytes::Bytes;
use http_body_util::BodyExt;
use tower::{ServiceBuilder, ServiceExt};

use crate::support::Piece::{Data, Error as Break, Hang};
use crate::support::chat::{DELTA, DONE, STOP};
use crate::support::*;

const FRAMES: [&str; 5] = [DELTA, ": keep-alive\n\n", DELTA, STOP, DONE];

/// What a reader saw.
#[derive(Debug, Default)]
struct Read {
    bytes: Vec<u8>,
    /// Whether the body ended, and how.
    end: Option<Result<(), ()>>,
}

#[tokio::test(start_paused = true)]
async fn ok_is_what_its_reader_has_whole_and_everything_is_finished_once() {
    let mut seen = std::collections::BTreeMap::new();
    for hold in [Some(Hold::Headers), Some(Hold::FirstContent), Some(Hold::Complete), None] {
        for came in 0..=FRAMES.len() {
            for end in [None, Some(Break), Some(Hang)] {
                for wanted in 0..=FRAMES.len() + 1 {
                    let name = format!("{hold:?}, {came} frames, then {end:?}, {wanted} read");
                    let pieces = FRAMES[..came].iter().map(|text| Data(text)).chain(end);
                    let outcome = one(hold, pieces.collect(), wanted, &name).await;
                    *seen.entry(outcome.as_str()).or_insert(0) += 1;
                }
            }
        }
    }
    assert!(seen.values().all(|count| *count > 20) && seen.len() == 3, "{seen:?}");
}

async fn one(hold: Option<Hold>, pieces: Vec<Piece>, wanted: usize, name: &str) -> Outcome {
    let book = Book::new();
    let came: usize =
        pieces.iter().map(|piece| if let Data(text) = piece { text.len() } else { 0 }).sum();
    let is_cut = pieces.iter().any(|piece| matches!(piece, Break | Hang));
    let layers = ServiceBuilder::new()
        .layer(ProvenanceLayer::recording(book.clone()))
        .layer(AttemptLayer::recording(book.clone()));
    let provider = Provider::new([stream(pieces)]);
    let provenance = Provenance::new();
    let mut request = ask(CHAT);
    request.extensions_mut().insert(provenance.clone());
    let mut read = Read::default();
    let call = async {
        match hold {
            Some(hold) => {
                let classify = ClassifyLayer::builder().hold(hold).build().unwrap();
                let service = layers.layer(classify).service(provider);
                read_some(service.oneshot(request).await.unwrap().into_body(), wanted, &mut read)
                    .await;
            }
            None => {
                let service = layers.service(provider);
                read_some(service.oneshot(request).await.unwrap().into_body(), wanted, &mut read)
                    .await;
            }
        }
    };
    let left = tokio::time::timeout(secs(1), call).await.is_err();
    let (call, attempt) = (book.call(), book.attempt());
    let outcome = call.outcome;
    assert_eq!(provenance.outcome(), Some(outcome), "{name}");
    let has_done = read.bytes.ends_with(DONE.as_bytes());
    // After a finish reason nothing is missing, as the classifier sees it.
    let has_stop = read.bytes.ends_with(STOP.as_bytes());
    let has_all = read.bytes.len() == came && !is_cut;
    match hold {
        // The classifier knows the end when it sees it.
        Some(_) if has_done => assert_eq!(outcome, Outcome::Ok, "{name}: {read:?}"),
        // Without one there is the body's own end, and nothing else.
        None => {
            let expected = match read.end {
                Some(Ok(())) => Outcome::Ok,
                Some(Err(())) => Outcome::Incomplete,
                None => Outcome::Cancelled,
            };
            assert_eq!(outcome, expected, "{name}: {read:?}");
        }
        Some(_) => {}
    }
    if outcome == Outcome::Ok {
        assert!(has_done || has_stop || has_all, "{name}: {read:?}");
        assert_eq!(attempt.class, "success", "{name}");
        assert!(call.error.is_none() && call.produced_by == Some(0), "{name}");
    }
    if read.end == Some(Err(())) {
        assert_eq!(outcome, Outcome::Incomplete, "{name}: {read:?}");
        assert_ne!(attempt.class, "success", "{name}");
        assert!(call.error.is_some() && attempt.error.is_some(), "{name}");
    }
    if left && !has_done && !has_stop {
        assert_eq!(outcome, Outcome::Cancelled, "{name}: {read:?}");
    }
    if call.error.is_some() {
        assert_eq!(outcome, Outcome::Incomplete, "{name}");
    }
    outcome
}

async fn read_some<B>(body: B, wanted: usize, read: &mut Read)
where
    B: http_body::Body<Data = Bytes>,
{
    let mut body = std::pin::pin!(body);
    for _ in 0..wanted {
        match body.frame().await {
            Some(Ok(frame)) => read.bytes.extend(frame.into_data().unwrap_or_default()),
            Some(Err(_)) => return read.end = Some(Err(())),
            None => return read.end = Some(Ok(())),
        }
    }
}
