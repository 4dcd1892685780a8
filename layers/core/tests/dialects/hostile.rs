//! Input that no provider should send.

use backstop_core::dialect::{BodyEnd, Dialect, Judge, Mode, Route};
use backstop_core::{Class, StreamEnd, Usage};
use http::{HeaderMap, Method, StatusCode};
use proptest::prelude::*;

use crate::support::{CHAT, PATHS, Random, STREAM, good, judged, stream};

/// Pieces that the streams of all dialects are made of, and some that none is.
fn piece() -> impl Strategy<Value = Vec<u8>> {
    prop_oneof![
        Just(b"data: ".to_vec()),
        Just(b"event: error\n".to_vec()),
        Just(b"error: {\"code\":500}\n".to_vec()),
        Just(b"\n".to_vec()),
        Just(b"\r\n".to_vec()),
        Just(b"\r".to_vec()),
        Just(b"\n\n".to_vec()),
        Just(b": ping\n".to_vec()),
        Just(b"id: 7\n".to_vec()),
        Just(b"{\"a\":\ntrue\n".to_vec()),
        Just("[".repeat(130).into_bytes()),
        Just("]".repeat(130).into_bytes()),
        Just(b"\xEF\xBB\xBF".to_vec()),
        Just(b"[DONE]".to_vec()),
        Just(b"{".to_vec()),
        Just(b"}".to_vec()),
        Just(b"[".to_vec()),
        Just(b"]".to_vec()),
        Just(b",".to_vec()),
        Just(b"\"".to_vec()),
        Just(b"{\"error\":{\"code\":429,\"message\":\"m\"}}".to_vec()),
        Just(b"{\"type\":\"message_stop\"}".to_vec()),
        Just(b"{\"type\":\"message_start\",\"message\":{\"model\":\"m\"}}".to_vec()),
        Just(b"{\"choices\":[{\"index\":0,\"delta\":{\"content\":\"x\"},\"finish_reason\":\"stop\"}]}".to_vec()),
        Just(b"{\"type\":\"response.completed\",\"response\":{\"output\":[]}}".to_vec()),
        Just(b"{\"candidates\":[{\"content\":{\"parts\":[{\"text\":\"x\"}]},\"finishReason\":\"STOP\"}]}".to_vec()),
        proptest::collection::vec(any::<u8>(), 0..12),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 192, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn any_stream_is_judged_the_same_however_it_is_cut(
        pieces in proptest::collection::vec(piece(), 0..40),
        seed in any::<u64>(),
        broken in any::<bool>(),
    ) {
        let bytes = pieces.concat();
        let end = if broken { BodyEnd::Broken } else { BodyEnd::Eof };
        let mut random = Random(seed);
        let array = (Dialect::GEMINI, "/models/m:streamGenerateContent");
        for (dialect, path) in PATHS.into_iter().chain([array]) {
            let content_type = if path.contains("alt=sse") || dialect != Dialect::GEMINI { STREAM } else { "application/json" };
            let judge = || good(Mode::Provider, dialect, path, content_type).with_max_event(1_024);
            let whole = judged(judge(), b"", [&bytes[..]], end);
            prop_assert_eq!(&judged(judge(), b"", bytes.chunks(1), end), &whole);
            prop_assert_eq!(&judged(judge(), b"", random.cut(&bytes), end), &whole);
        }
    }

    #[test]
    fn any_document_is_judged(body in proptest::collection::vec(piece(), 0..12), status in 100u16..1000) {
        let body = body.concat();
        for (dialect, path) in PATHS {
            let route = Route::new(dialect, &Method::POST, &path.parse().unwrap());
            let status = StatusCode::from_u16(status).unwrap();
            for mode in [Mode::Provider, Mode::Agnostic] {
                let judge = Judge::new(mode, route, status, &HeaderMap::new(), std::time::SystemTime::UNIX_EPOCH);
                let (verdict, _) = judged(judge, &body, [], BodyEnd::Eof);
                prop_assert!(!status.is_client_error() || verdict.class().is_failure());
            }
        }
    }
}

#[test]
fn deep_nesting_is_no_failure_and_no_overflow() {
    let deep = format!("{}{}", "[".repeat(200_000), "]".repeat(200_000));
    let body = format!(r#"{{"choices":[{{"message":{{"content":{deep}}}}}]}}"#);
    let judge = good(Mode::Provider, Dialect::OPENAI, CHAT, "application/json");
    assert_eq!(judged(judge, body.as_bytes(), [], BodyEnd::Eof).0.class(), Class::Success);
    let event = format!("data: {body}\n\ndata: [DONE]\n\n");
    assert_eq!(
        stream(Dialect::OPENAI, CHAT, &[&event], BodyEnd::Eof),
        (Class::Success, Some(StreamEnd::Complete))
    );
}

#[test]
fn an_event_too_large_to_read_is_no_truncation() {
    let picture = "A".repeat(8_192);
    let gemini = format!(
        "data: {{\"candidates\":[{{\"content\":{{\"parts\":[{{\"inlineData\":{{\"data\":\"{picture}\"}}}}]}},\"finishReason\":\"STOP\"}}]}}\n\n"
    );
    let responses = format!(
        "event: response.completed\ndata: {{\"type\":\"response.completed\",\"response\":\"{picture}\"}}\n\n"
    );
    let chat = format!(
        "data: {{\"choices\":[{{\"delta\":{{\"content\":\"{picture}\"}},\"finish_reason\":\"stop\"}}]}}\n\n"
    );
    let anthropic = format!(
        "event: content_block_delta\ndata: {{\"type\":\"content_block_delta\",\"delta\":{{\"text\":\"{picture}\"}}}}\n\n"
    );
    for (dialect, path, event, expected) in [
        (Dialect::GEMINI, PATHS[3].1, &gemini, StreamEnd::Complete),
        (Dialect::OPENAI, PATHS[1].1, &responses, StreamEnd::Complete),
        (Dialect::OPENAI, CHAT, &chat, StreamEnd::Complete),
        (Dialect::ANTHROPIC, PATHS[2].1, &anthropic, StreamEnd::Truncated),
    ] {
        let judge = good(Mode::Provider, dialect, path, STREAM).with_max_event(2_048);
        let (verdict, _) = judged(judge, b"", [event.as_bytes()], BodyEnd::Eof);
        assert_eq!(verdict.stream_end(), Some(expected), "{path}");
        assert_eq!(verdict.content_started(), Some(true), "{path}");
        let judge = good(Mode::Provider, dialect, path, STREAM).with_max_event(2_048);
        let (verdict, _) = judged(judge, b"", [&event.as_bytes()[..4_000]], BodyEnd::Broken);
        assert_eq!(verdict.stream_end(), Some(StreamEnd::Truncated), "{path}");
    }
}

/// B004, B005: odd numbers are no trouble.
#[test]
fn a_body_that_cannot_be_read_leaves_the_status() {
    for (status, class) in [
        (529, Class::Overloaded),
        (599, Class::Transient),
        (498, Class::InvalidRequest),
        (525, Class::Upstream),
        (520, Class::Upstream),
    ] {
        for body in
            ["", "<!DOCTYPE html><title>SSL handshake failed</title>", "{\"error\":", "\u{0}"]
        {
            for end in [BodyEnd::Eof, BodyEnd::Broken, BodyEnd::Unread] {
                let route =
                    Route::new(Dialect::ANTHROPIC, &Method::POST, &"/v1/messages".parse().unwrap());
                let status = StatusCode::from_u16(status).unwrap();
                let judge = Judge::new(
                    Mode::Provider,
                    route,
                    status,
                    &HeaderMap::new(),
                    std::time::SystemTime::UNIX_EPOCH,
                );
                let (verdict, _) = judged(judge, body.as_bytes(), [], end);
                assert_eq!((verdict.class(), verdict.status()), (class, Some(status)));
            }
        }
    }
}

#[test]
fn counts_that_do_not_fit_are_no_trouble() {
    let judge = good(Mode::Provider, Dialect::ANTHROPIC, "/v1/messages", "application/json");
    let body = br#"{"type":"message","content":[],"usage":{"input_tokens":18446744073709551615,"cache_read_input_tokens":5,"output_tokens":-3}}"#;
    let (verdict, _) = judged(judge, body, [], BodyEnd::Eof);
    assert_eq!(verdict.usage(), Some(Usage::new(u64::MAX, 0)));
}

#[test]
fn messages_of_others_are_kept_short_and_clean() {
    let body = format!(
        r#"{{"error":{{"message":"key sk-abcdefghijklmnop1234 {}","code":"c"}}}}"#,
        "x ".repeat(4_000)
    );
    let route = Route::new(Dialect::OPENAI, &Method::POST, &CHAT.parse().unwrap());
    let judge = Judge::new(
        Mode::Provider,
        route,
        StatusCode::BAD_REQUEST,
        &HeaderMap::new(),
        std::time::SystemTime::UNIX_EPOCH,
    );
    let (verdict, _) = judged(judge, body.as_bytes(), [], BodyEnd::Eof);
    let message = verdict.message().unwrap();
    assert!(
        message.starts_with("key ")
            && !message.contains("abcdefghijklmnop")
            && message.len() <= 1_100,
        "{}",
        message.len()
    );
}
