//! Document B's mode: whether an attempt failed, never why.

use backstop_core::dialect::{BodyEnd, Dialect, Mode, Route};
use backstop_core::{Class, StreamEnd};
use http::{HeaderMap, HeaderValue, Method, StatusCode};

use crate::support::{good, judged, known_cases};

/// What document B says of a case, from what the case expects of the other mode.
#[test]
fn every_case_is_a_success_or_one_kind_of_failure() {
    for case in known_cases() {
        let (provider, _) = case.judged(Mode::Provider);
        let (agnostic, _) = case.judged(Mode::Agnostic);
        let declined = provider.evidence() == backstop_core::Evidence::FinishReason
            && provider.class() == Class::ContentRefused;
        let expected = match case.status {
            401 | 403 | 404 | 405 => Class::InvalidRequest,
            _ if declined || provider.class() == Class::Success => Class::Success,
            _ => Class::Transient,
        };
        assert_eq!(agnostic.class(), expected, "{}", case.id);
        assert_eq!(agnostic.code(), provider.code(), "{}", case.id);
        assert_eq!(agnostic.model(), provider.model(), "{}", case.id);
        assert_eq!(agnostic.usage(), provider.usage(), "{}", case.id);
        assert_eq!(agnostic.request_id(), provider.request_id(), "{}", case.id);
        assert_eq!(agnostic.stream_end(), provider.stream_end(), "{}", case.id);
        assert_eq!(agnostic.should_retry(), None, "{}", case.id);
        if expected.is_failure() {
            assert_eq!(agnostic.hint(), provider.hint(), "{}", case.id);
        }
    }
}

/// The promise itself: other words, same class.
#[test]
fn the_words_of_an_error_change_nothing() {
    let words = [
        ("insufficient_quota", "insufficient_quota", "no credit"),
        ("context_length_exceeded", "invalid_request_error", "too long"),
        ("cyber_policy", "invalid_request_error", "flagged"),
        ("invalid_api_key", "authentication_error", "wrong key"),
        ("server_error", "overloaded_error", "busy"),
        ("", "", ""),
    ];
    for dialect in Dialect::ALL {
        let path = match dialect.name() {
            "gemini" => "/v1beta/models/m:streamGenerateContent?alt=sse",
            "anthropic" => "/v1/messages",
            _ => "/v1/chat/completions",
        };
        for status in [200, 400, 401, 403, 404, 405, 409, 413, 422, 429, 500, 503, 529] {
            let classes = words.map(|(code, kind, message)| {
                let error = format!(
                    r#"{{"type":"error","error":{{"code":"{code}","type":"{kind}","status":"{code}","message":"{message}"}}}}"#
                );
                let uri = path.parse().unwrap();
                let status = StatusCode::from_u16(status).unwrap();
                let mut headers = HeaderMap::new();
                let route = Route::new(*dialect, &Method::POST, &uri);
                let now = std::time::SystemTime::UNIX_EPOCH;
                let judge = |headers: &HeaderMap| {
                    backstop_core::dialect::Judge::new(Mode::Agnostic, route, status, headers, now)
                };
                let (document, _) = judged(judge(&headers), error.as_bytes(), [], BodyEnd::Eof);
                headers.insert("content-type", HeaderValue::from_static("text/event-stream"));
                let event = format!("event: error\ndata: {error}\n\n");
                let body = if status.is_success() { &b""[..] } else { error.as_bytes() };
                let (stream, _) = judged(judge(&headers), body, [event.as_bytes()], BodyEnd::Eof);
                assert_eq!(document.class(), stream.class(), "{dialect} {status}");
                assert!(document.class().is_failure());
                document.class()
            });
            assert!(
                classes.windows(2).all(|pair| pair[0] == pair[1]),
                "{dialect} {status}: {classes:?}"
            );
        }
    }
}

#[test]
fn a_model_that_declines_has_answered() {
    let judge = good(Mode::Agnostic, Dialect::OPENAI, "/v1/chat/completions", "application/json");
    let body = br#"{"choices":[{"index":0,"message":{"content":null,"refusal":"no"},"finish_reason":"stop"}]}"#;
    let (verdict, _) = judged(judge, body, [], BodyEnd::Eof);
    assert_eq!((verdict.class(), verdict.code()), (Class::Success, Some("refusal")));

    let judge = good(
        Mode::Agnostic,
        Dialect::GEMINI,
        "/models/m:streamGenerateContent?alt=sse",
        "text/event-stream",
    );
    let event = b"data: {\"promptFeedback\":{\"blockReason\":\"SAFETY\"}}\n\n";
    let (verdict, _) = judged(judge, b"", [&event[..]], BodyEnd::Eof);
    assert_eq!(
        (verdict.class(), verdict.stream_end()),
        (Class::Success, Some(StreamEnd::Complete))
    );
}

#[test]
fn an_answer_that_is_none_has_failed() {
    for (path, body) in [
        ("/v1/chat/completions", &b""[..]),
        ("/v1/chat/completions", b"<html></html>"),
        ("/v1/chat/completions", br#"{"choices":[]}"#),
        ("/v1/chat/completions", br#"{"choices":[{"finish_reason":"error"}]}"#),
        ("/v1/responses", br#"{"status":"failed","error":null}"#),
    ] {
        let judge = good(Mode::Agnostic, Dialect::OPENAI, path, "application/json");
        let (verdict, _) = judged(judge, body, [], BodyEnd::Eof);
        assert_eq!(verdict.class(), Class::Transient, "{}", String::from_utf8_lossy(body));
    }
}
