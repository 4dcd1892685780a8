//! The bytes of requests and answers: B015 to B017.

use std::time::Duration;

use backstop::testing::script::openai;
use backstop::testing::{
    Answer, Outcome, ScriptedBody, ScriptedProvider, ScriptedService, SeenRequest, Step,
};
use backstop::vocabulary::splice;
use backstop::{AttemptCell, Class, ClassifyLayer, Error, RequestBody, Verdict};
use bytes::Bytes;
use http::Request;
use http_body::Body;
use http_body_util::{BodyExt, Full};
use tokio::time::{Instant, timeout};
use tower::{Layer, ServiceExt};

use crate::rig::{ASK, CHAT, client, doubling, gzip, ms, post, receive, rig, secs};

/// Indented, with a number past 2⁵³, a float that looks like an integer, unknown members, and text
/// that is no ASCII.
const INDENTED: &str = r#"{
  "model": "alias-x",
  "seed": 9007199254740993,
  "temperature": 1.0,
  "x_unknown": {"b": 1, "a": 2},
  "messages": [{"role": "user", "content": "café 你好"}]
}"#;

/// The framing headers of a request, of which there must be one.
fn framing(seen: &SeenRequest) -> (&str, String) {
    let framing = seen.headers.iter().filter_map(|(name, value)| {
        let name = ["content-length", "transfer-encoding"]
            .into_iter()
            .find(|framing| name.eq_ignore_ascii_case(framing))?;
        Some((name, String::from_utf8(value.to_vec()).unwrap()))
    });
    let framing: Vec<_> = framing.collect();
    let [only] = &framing[..] else { panic!("{framing:?}") };
    only.clone()
}

/// Sends `request` to a provider that fails once, and returns what it saw.
async fn sent_twice<B>(request: impl FnOnce(String) -> Request<B>) -> Vec<SeenRequest>
where
    B: Body<Data = Bytes> + Send + Unpin + 'static,
    B::Error: Into<backstop::vocabulary::BoxError>,
{
    let provider = ScriptedProvider::start([Answer::status(503), openai::chat("model-a", "hello")])
        .await
        .unwrap();
    let rig = rig(doubling(ms(10)), ClassifyLayer::builder(), client());
    let url = format!("{}/v1/chat/completions", provider.url());
    // An upstream that waits for bytes that never come would hang here.
    let sent = timeout(secs(20), rig.send(request(url))).await.unwrap();
    assert_eq!(sent.unwrap().status, 200);
    assert_eq!(provider.malformed(), 0);
    provider.log()
}

#[tokio::test]
async fn b015_every_attempt_carries_the_callers_bytes_under_one_true_length() {
    let json = |url: String| Request::post(url).header("content-type", "application/json");
    let exact = sent_twice(|url| {
        let length = INDENTED.len();
        json(url).header("content-length", length).body(Full::new(Bytes::from(INDENTED))).unwrap()
    });
    let pieces = || {
        let pieces = INDENTED.as_bytes().chunks(16).map(|piece| Step::data(piece.to_vec()));
        ScriptedBody::new(pieces.collect::<Vec<_>>()).unknown_size()
    };
    let chunked = sent_twice(|url| json(url).body(pieces()).unwrap());
    let copied =
        sent_twice(|url| json(url).header("transfer-encoding", "chunked").body(pieces()).unwrap());
    for (case, seen) in
        [("exact", exact.await), ("chunked", chunked.await), ("copied header", copied.await)]
    {
        assert_eq!(seen.len(), 2, "{case}");
        for seen in &seen {
            assert_eq!(seen.body, INDENTED, "{case}");
            assert!(seen.body_complete, "{case}");
            assert_eq!(seen.header("content-type"), Some("application/json"));
            match framing(seen) {
                ("content-length", length) => assert_eq!(length, INDENTED.len().to_string()),
                (_, coding) => assert_eq!(coding, "chunked", "{case}"),
            }
        }
    }
}

#[tokio::test]
async fn b015_a_body_with_another_model_differs_in_the_model_alone() {
    let long = "m".repeat(60);
    for model in [long.as_str(), "b"] {
        let body = Bytes::from(INDENTED);
        let object = splice::find(&body, ["model"]).unwrap();
        let edit = object.set("model", splice::json_string(model)).unwrap();
        let body = RequestBody::from_pieces(splice::replace(&body, [edit]).unwrap());
        let expected = INDENTED.replace("alias-x", model);
        for seen in sent_twice(|url| post(url, body)).await {
            assert_eq!(seen.body, expected);
            assert_eq!(framing(&seen), ("content-length", expected.len().to_string()));
        }
    }
}

const ANSWER: &str = r#"{"model":"model-a-0613","choices":[{"index":0,"message":{"role":"assistant","content":"hi"},"finish_reason":"stop"}],"usage":{"prompt_tokens":3,"completion_tokens":2}}"#;

fn packed(status: u16, coding: &str, bytes: &Bytes) -> Outcome {
    Answer::status(status)
        .header("content-encoding", coding)
        .header("content-length", bytes.len().to_string())
        .json(bytes.clone())
        .into()
}

#[tokio::test(start_paused = true)]
async fn b016_a_packed_answer_is_read_and_handed_on_packed() {
    let bytes = gzip(ANSWER);
    let service = ScriptedService::new([packed(200, "gzip", &bytes)]);
    let rig = rig(doubling(ms(100)), ClassifyLayer::builder(), service);
    let received = rig.send(post(CHAT, ASK)).await.unwrap();
    assert_eq!(received.bytes(), bytes);
    assert_eq!(received.header("content-encoding"), Some("gzip"));
    assert_eq!(received.header("content-length"), Some(&*bytes.len().to_string()));
    let verdict = received.last_verdict();
    assert_eq!((verdict.class(), verdict.model()), (Class::Success, Some("model-a-0613")));
    let usage = verdict.usage().unwrap();
    assert_eq!((usage.input_tokens, usage.output_tokens), (3, 2));
}

#[tokio::test(start_paused = true)]
async fn b016_a_packed_error_is_judged_by_its_code_and_handed_on_packed() {
    let bytes = gzip(openai::error_body("insufficient_quota", "insufficient_quota"));
    let service = ScriptedService::new([packed(429, "gzip", &bytes)]);
    let rig = rig(doubling(ms(100)).max_retries(3), ClassifyLayer::builder(), service.clone());
    let received = rig.send(post(CHAT, ASK)).await.unwrap();
    assert_eq!((received.status.as_u16(), service.calls()), (429, 1));
    assert_eq!(received.last_verdict().class(), Class::QuotaExhausted);
    assert_eq!((received.bytes(), received.header("content-encoding")), (bytes, Some("gzip")));
}

#[tokio::test(start_paused = true)]
async fn b016_an_encoding_that_cannot_be_read_is_passed_untouched_and_judged_by_status() {
    // A frame of zstd with one raw block, valid for whoever can read it.
    let mut zstd = b"\x28\xB5\x2F\xFD\xA0".to_vec();
    let length = u32::try_from(ANSWER.len()).unwrap();
    zstd.extend(length.to_le_bytes());
    zstd.extend(&(length << 3 | 1).to_le_bytes()[..3]);
    zstd.extend(ANSWER.as_bytes());
    for (coding, bytes) in [("zstd", zstd.clone().into()), ("x-unknown", Bytes::from("\0\u{1}{"))] {
        let service =
            ScriptedService::new([packed(503, coding, &bytes), packed(200, coding, &bytes)]);
        let rig = rig(doubling(ms(100)), ClassifyLayer::builder(), service.clone());
        let received = rig.send(post(CHAT, ASK)).await.unwrap();
        assert_eq!((received.status.as_u16(), service.calls()), (200, 2));
        assert_eq!(received.bytes(), bytes);
        assert_eq!(received.header("content-encoding"), Some(coding));
        assert_eq!(received.header("content-length"), Some(&*bytes.len().to_string()));
        assert_eq!(rig.attempts.classes(), [Class::Overloaded, Class::Success]);
    }
}

/// The pieces of a packed stream, one for each event, each of which can be unpacked when it is there.
fn packed_events(events: &[String]) -> Vec<Bytes> {
    use std::io::Write;
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::default());
    let mut pieces: Vec<Bytes> = events
        .iter()
        .map(|data| {
            write!(encoder, "data: {data}\n\n").unwrap();
            encoder.flush().unwrap();
            std::mem::take(encoder.get_mut()).into()
        })
        .collect();
    pieces.push(encoder.finish().unwrap().into());
    pieces
}

#[tokio::test(start_paused = true)]
async fn b016_a_packed_stream_is_handed_on_event_by_event() {
    let events = openai::chat_events("model-a", ["a", "b", "c"], Default::default());
    let pieces = packed_events(&events);
    let answer =
        pieces.iter().fold(Answer::sse().header("content-encoding", "gzip"), |answer, piece| {
            answer.event_bytes(piece.clone())
        });
    let service = ScriptedService::new([answer.pause_between(secs(1))]);
    let classify = ClassifyLayer::new().layer(service);
    let start = Instant::now();
    let response = classify.oneshot(post(CHAT, ASK)).await.unwrap();
    assert_eq!(start.elapsed(), secs(1), "the role is held until the first content");
    assert_eq!(response.headers()["content-encoding"], "gzip");
    let cell = AttemptCell::of(&response).unwrap().clone();
    let mut body = std::pin::pin!(response.into_body());
    let mut got = Vec::new();
    while let Some(frame) = body.frame().await {
        got.push((start.elapsed(), frame.unwrap().into_data().unwrap()));
    }
    let times = (0..pieces.len() as u64).map(|n| secs(n.max(1)));
    assert_eq!(got, times.zip(pieces).collect::<Vec<(Duration, Bytes)>>());
    let verdict = cell.last_verdict().unwrap();
    assert_eq!((verdict.class(), verdict.model()), (Class::Success, Some("model-a")));
    assert!(verdict.usage().is_some());
}

#[tokio::test]
async fn b016_a_packed_stream_unpacks_to_the_same_text_at_the_other_end_of_a_socket() {
    let events = openai::chat_events("model-a", ["a", "b"], Default::default());
    let answer = packed_events(&events)
        .into_iter()
        .fold(Answer::sse().header("content-encoding", "gzip"), |answer, piece| {
            answer.event_bytes(piece)
        });
    let provider = ScriptedProvider::start([answer.pause_between(ms(5))]).await.unwrap();
    let rig = rig(doubling(ms(10)), ClassifyLayer::builder(), client());
    let url = format!("{}/v1/chat/completions", provider.url());
    let mut received = rig.send(post(url, ASK)).await.unwrap();
    assert!(received.error.take().is_none());
    let mut text = String::new();
    let packed = received.bytes();
    std::io::Read::read_to_string(&mut flate2::read::MultiGzDecoder::new(&*packed), &mut text)
        .unwrap();
    assert_eq!(text, events.iter().map(|data| format!("data: {data}\n\n")).collect::<String>());
}

/// A body that comes after a pause, in four pieces.
fn slow(text: &Bytes, pause: Duration) -> ScriptedBody {
    let pieces = text.chunks(text.len().div_ceil(4)).map(|piece| Step::data(piece.to_vec()));
    ScriptedBody::new([Step::pause(pause)].into_iter().chain(pieces)).unknown_size()
}

fn json_of(len: usize) -> Bytes {
    let pattern: String = (0..len).map(|n| char::from(b'a' + (n * n % 23) as u8)).collect();
    format!(r#"{{"messages":"{pattern}"}}"#).into()
}

async fn early_answer(body: &Bytes, pause: Duration) -> Vec<SeenRequest> {
    let script = [Answer::status(503).before_body(), openai::chat("model-a", "hello")];
    let provider = ScriptedProvider::start(script).await.unwrap();
    let rig = rig(doubling(ms(5)).max_retries(1), ClassifyLayer::builder(), client());
    let request = Request::post(format!("{}/v1/chat/completions", provider.url()));
    let request = request.body(slow(body, pause)).unwrap();
    let received = timeout(secs(30), rig.send(request)).await.unwrap().unwrap();
    assert_eq!(received.status, 200);
    assert_eq!(rig.attempts.classes()[1..], [Class::Success]);
    provider.log()
}

#[tokio::test]
async fn b017_a_retry_after_an_early_answer_sends_the_body_whole_and_once() {
    let body = json_of(20 * 1024);
    for round in 0..20 {
        let pause = if round == 0 { ms(500) } else { ms(5) };
        let seen = early_answer(&body, pause).await;
        assert_eq!(seen.len(), 2, "round {round}");
        assert!(seen[1].body_complete && seen[1].body == body, "round {round}");
    }
}

#[tokio::test]
async fn b017_an_answer_to_a_body_that_is_still_being_sent_neither_panics_nor_harms_the_next() {
    // More than the sockets on both sides take at once.
    let body = json_of(16 * 1024 * 1024);
    let seen = early_answer(&body, ms(1)).await;
    assert_eq!(seen.len(), 2);
    assert!(seen[1].body_complete && seen[1].body == body);
}

#[tokio::test]
async fn b017_a_body_over_the_limit_is_refused_before_anything_is_sent() {
    let provider = ScriptedProvider::start([Answer::status(503)]).await.unwrap();
    let backoff = doubling(ms(5)).max_retries(1).body_limit(64 * 1024);
    let rig = rig(backoff, ClassifyLayer::builder(), client());
    let body = json_of(2 * 1024 * 1024);
    let request = Request::post(format!("{}/v1/chat/completions", provider.url()));
    let request = request.body(slow(&body, ms(5))).unwrap();
    let error = rig.send(request).await.unwrap_err();
    assert!(matches!(error, Error::TooLarge { limit: 65_536, .. }), "{error}");
    assert_eq!(error.status(), 413);
    assert!(error.to_string().contains("65536"), "{error}");
    assert_eq!((provider.requests(), provider.connections()), (0, 0));
}

#[tokio::test(start_paused = true)]
async fn b017_a_backoff_alone_sends_the_body_whole_every_time() {
    let body = json_of(20 * 1024);
    let script = [
        Outcome::status(503).before_body(),
        Outcome::status(503),
        openai::chat("model-a", "hello").into(),
    ];
    let service = ScriptedService::new(script);
    let alone = doubling(ms(50)).build().unwrap().layer(service.clone());
    let request = Request::post(CHAT).body(slow(&body, ms(500))).unwrap();
    let response = alone.oneshot(request).await.unwrap();
    assert_eq!(Verdict::of(&response), None);
    assert_eq!(receive(response).await.status, 200);
    let log = service.log();
    assert!(log[1..].iter().all(|seen| seen.body_complete && seen.body == body));
}
