//! Rules that no case shows.

use backstop_core::dialect::{BodyEnd, Dialect, Endpoint, Judge, Mode, Route, Seen};
use backstop_core::{Class, StreamEnd, Usage};
use http::{HeaderMap, HeaderValue, Method, StatusCode};

use crate::support::{CHAT, PATHS, STREAM, good, judged, stream};

fn unknown(status: u16, content_type: &'static str) -> Judge {
    let mut headers = HeaderMap::new();
    headers.insert("content-type", HeaderValue::from_static(content_type));
    headers.insert("x-request-id", HeaderValue::from_static("r1"));
    let status = StatusCode::from_u16(status).unwrap();
    Judge::new(Mode::Provider, Route::UNKNOWN, status, &headers, std::time::SystemTime::UNIX_EPOCH)
}

#[test]
fn what_follows_the_end_is_noise() {
    let done =
        "data: {\"choices\":[{\"index\":0,\"delta\":{\"content\":\"x\"}}]}\n\ndata: [DONE]\n\n";
    let error = "data: {\"error\":{\"code\":500}}\n\n";
    assert_eq!(
        stream(Dialect::OPENAI, CHAT, &[done, error], BodyEnd::Broken),
        (Class::Success, Some(StreamEnd::Complete))
    );
    assert_eq!(
        stream(Dialect::OPENAI, CHAT, &[&format!("{done}{error}")], BodyEnd::Eof).0,
        Class::Success
    );
    let mut judge = good(Mode::Provider, Dialect::OPENAI, CHAT, STREAM);
    assert_eq!(judge.push(done.as_bytes()), Seen::End);
    assert!(judge.is_whole());
    assert_eq!(judge.push(error.as_bytes()), Seen::Nothing);
}

#[test]
fn a_reset_is_no_end_where_only_an_end_of_the_bytes_would_be_one() {
    let finish = "data: {\"choices\":[{\"index\":0,\"delta\":{\"content\":\"x\"},\"finish_reason\":\"stop\"}]}\n\n";
    assert_eq!(stream(Dialect::OPENAI, CHAT, &[finish], BodyEnd::Eof).0, Class::Success);
    assert_eq!(
        stream(Dialect::OPENAI, CHAT, &[finish], BodyEnd::Broken),
        (Class::Transient, Some(StreamEnd::Truncated))
    );
    let mut judge = good(Mode::Provider, Dialect::OPENAI, CHAT, STREAM);
    judge.push(finish.as_bytes());
    assert!(judge.is_whole(), "a reader that leaves here has had all of it");
}

#[test]
fn every_choice_must_have_ended() {
    let one = "data: {\"choices\":[{\"index\":0,\"delta\":{\"content\":\"x\"},\"finish_reason\":\"stop\"}]}\n\n";
    let other = "data: {\"choices\":[{\"index\":1,\"delta\":{\"content\":\"y\"}}]}\n\n";
    let end =
        "data: {\"choices\":[{\"index\":1,\"delta\":{},\"finish_reason\":\"content_filter\"}]}\n\n";
    assert_eq!(
        stream(Dialect::OPENAI, CHAT, &[other, one], BodyEnd::Eof).1,
        Some(StreamEnd::Truncated)
    );
    assert_eq!(
        stream(Dialect::OPENAI, CHAT, &[other, one, end], BodyEnd::Eof),
        (Class::Success, Some(StreamEnd::Complete))
    );
    assert_eq!(stream(Dialect::OPENAI, CHAT, &[other, end], BodyEnd::Eof).0, Class::ContentRefused);
}

/// Gemini's older models end every chunk with `STOP`.
#[test]
fn the_last_finish_reason_of_a_candidate_counts() {
    let chunk = |reason: &str| {
        format!(
            "data: {{\"candidates\":[{{\"content\":{{\"parts\":[{{\"text\":\"x\"}}]}},\"finishReason\":\"{reason}\"}}]}}\r\n\r\n"
        )
    };
    let (stop, safety, other) = (chunk("STOP"), chunk("SAFETY"), chunk("OTHER"));
    let path = PATHS[3].1;
    assert_eq!(stream(Dialect::GEMINI, path, &[&stop, &stop], BodyEnd::Eof).0, Class::Success);
    assert_eq!(
        stream(Dialect::GEMINI, path, &[&stop, &safety], BodyEnd::Eof).0,
        Class::ContentRefused
    );
    assert_eq!(stream(Dialect::GEMINI, path, &[&stop, &other], BodyEnd::Eof).0, Class::Success);
    let error = "data: {\"error\":{\"code\":503,\"status\":\"UNAVAILABLE\"}}\r\n\r\n";
    assert_eq!(
        stream(Dialect::GEMINI, path, &[&stop, error], BodyEnd::Eof),
        (Class::Overloaded, Some(StreamEnd::Error))
    );
}

/// Azure's Responses API: the failure first, its reason after it.
#[test]
fn a_failure_without_a_reason_waits_for_one() {
    let failed = "data: {\"type\":\"response.failed\",\"response\":{\"status\":\"failed\",\"error\":null}}\n\n";
    let error = "data: {\"type\":\"error\",\"error\":{\"type\":\"too_many_requests\",\"code\":\"rate_limit_exceeded\"}}\n\n";
    let path = "/v1/responses";
    assert_eq!(
        stream(Dialect::OPENAI, path, &[failed, error], BodyEnd::Eof),
        (Class::RateLimited, Some(StreamEnd::Error))
    );
    assert_eq!(
        stream(Dialect::OPENAI, path, &[failed], BodyEnd::Eof),
        (Class::Transient, Some(StreamEnd::Error))
    );
}

#[test]
fn a_role_and_an_end_are_no_answer() {
    let role = "data: {\"choices\":[{\"index\":0,\"delta\":{\"role\":\"assistant\",\"content\":\"\"}}]}\n\n";
    assert_eq!(
        stream(Dialect::OPENAI, CHAT, &[role, "data: [DONE]\n\n"], BodyEnd::Eof),
        (Class::Transient, Some(StreamEnd::Complete))
    );
}

#[test]
fn a_stream_without_its_content_type_is_still_one() {
    let body = b"data: {\"model\":\"m\",\"choices\":[{\"index\":0,\"delta\":{\"content\":\"x\"}}]}\n\ndata: [DONE]\n\n";
    let judge = good(Mode::Provider, Dialect::OPENAI, CHAT, "text/plain");
    let (verdict, _) = judged(judge, body, [], BodyEnd::Eof);
    assert_eq!((verdict.class(), verdict.model()), (Class::Success, Some("m")));
    assert_eq!(verdict.stream_end(), Some(StreamEnd::Complete));
}

#[test]
fn a_document_for_a_stream_request_is_a_document() {
    let path = PATHS[3].1;
    let judge = good(Mode::Provider, Dialect::GEMINI, path, "application/json");
    assert!(!judge.is_stream());
    let chunk = r#"{"candidates":[{"content":{"parts":[{"text":"x"}]},"finishReason":"STOP"}]}"#;
    for body in [chunk.to_owned(), format!("[{chunk},{chunk}]")] {
        let judge = good(Mode::Provider, Dialect::GEMINI, path, "application/json");
        assert_eq!(judged(judge, body.as_bytes(), [], BodyEnd::Eof).0.class(), Class::Success);
    }
    let judge = good(Mode::Provider, Dialect::GEMINI, path, "application/json");
    let body = format!(r#"[{chunk},{{"error":{{"code":503}}}}]"#);
    assert_eq!(judged(judge, body.as_bytes(), [], BodyEnd::Eof).0.class(), Class::Overloaded);
}

#[test]
fn an_unknown_provider_is_judged_by_status_and_by_what_errors_look_like() {
    let verdict = |status, content_type, body: &str| {
        judged(unknown(status, content_type), body.as_bytes(), [], BodyEnd::Eof).0
    };
    let error = r#"{"error":{"code":"insufficient_quota","message":"m"}}"#;
    let limited = verdict(429, "application/json", error);
    assert_eq!(
        (limited.class(), limited.code(), limited.request_id()),
        (Class::RateLimited, Some("insufficient_quota"), Some("r1"))
    );
    assert_eq!(verdict(200, "application/json", error).class(), Class::Transient);
    assert_eq!(
        verdict(200, "application/json", r#"{"type":"error","error":{"type":"x"}}"#).class(),
        Class::Transient
    );
    assert_eq!(
        verdict(200, "application/json", r#"{"error":{"code":429}}"#).class(),
        Class::RateLimited
    );
    for body in [
        "",
        "text",
        "{\"cut\":",
        r#"{"error":null}"#,
        r#"{"id":"batch","object":"batch","error":{"code":"x"}}"#,
        r#"{"name":"op","done":true,"error":{"code":5}}"#,
    ] {
        assert_eq!(verdict(200, "application/json", body).class(), Class::Success, "{body}");
    }
    let stream = |events: &[&str], end| {
        let (verdict, _) =
            judged(unknown(200, STREAM), b"", events.iter().map(|event| event.as_bytes()), end);
        (verdict.class(), verdict.stream_end())
    };
    let event = "data: {\"any\":1}\n\n";
    assert_eq!(stream(&[event], BodyEnd::Eof), (Class::Success, Some(StreamEnd::Complete)));
    assert_eq!(stream(&[event], BodyEnd::Broken), (Class::Transient, Some(StreamEnd::Truncated)));
    assert_eq!(
        stream(&[event, "data: [DONE]\n\n"], BodyEnd::Broken),
        (Class::Success, Some(StreamEnd::Complete))
    );
    assert_eq!(
        stream(&["event: error\ndata: {\"message\":\"m\"}\n\n"], BodyEnd::Eof),
        (Class::Transient, Some(StreamEnd::Error))
    );
    assert_eq!(
        stream(&["event: error\ndata: boom\n\n"], BodyEnd::Eof),
        (Class::Transient, Some(StreamEnd::Error))
    );
    let mut judge = unknown(200, STREAM);
    assert_eq!(judge.push(event.as_bytes()), Seen::Content);
}

#[test]
fn an_endpoint_without_facts_asks_for_no_answer() {
    for (content_type, body, class) in [
        ("application/json", "", Class::Success),
        ("audio/mpeg", "\u{1}\u{2}", Class::Success),
        ("application/json", r#"{"object":"list","data":[]}"#, Class::Success),
        ("text/html", "<html></html>", Class::Upstream),
        ("application/json", r#"{"error":{"type":"server_error"}}"#, Class::Transient),
    ] {
        let judge = good(Mode::Provider, Dialect::OPENAI, "/v1/files", content_type);
        assert_eq!(judged(judge, body.as_bytes(), [], BodyEnd::Eof).0.class(), class, "{body}");
    }
    assert_eq!(Dialect::OPENAI.endpoint(&"/v1/files".parse().unwrap()), Endpoint::Other);
}

/// B009.
#[test]
fn a_wait_in_the_body_counts_if_it_is_one() {
    let hint = |delay: &str, header: Option<&'static str>| {
        let body = format!(
            r#"{{"error":{{"code":429,"status":"RESOURCE_EXHAUSTED","details":[{{"@type":"type.googleapis.com/google.rpc.RetryInfo","retryDelay":{delay}}}]}}}}"#
        );
        let route = Route::new(
            Dialect::GEMINI,
            &Method::POST,
            &"/models/m:generateContent".parse().unwrap(),
        );
        let mut headers = HeaderMap::new();
        if let Some(header) = header {
            headers.insert("retry-after", HeaderValue::from_static(header));
        }
        let judge = Judge::new(
            Mode::Provider,
            route,
            StatusCode::TOO_MANY_REQUESTS,
            &headers,
            std::time::SystemTime::UNIX_EPOCH,
        );
        let (verdict, _) = judged(judge, body.as_bytes(), [], BodyEnd::Eof);
        assert_eq!(verdict.class(), Class::RateLimited);
        verdict.hint().map(|hint| hint.wait().as_millis())
    };
    assert_eq!(hint("\"1.837906927s\"", None), Some(1_838));
    assert_eq!(hint("\"5s\"", Some("1")), Some(1_000), "the header decides");
    assert_eq!(hint("\"5s\"", Some("0")), Some(5_000));
    for bad in ["\"-3s\"", "\"soon\"", "\"1e999s\"", "7", "null", "{}"] {
        assert_eq!(hint(bad, None), None, "{bad}");
    }
}

#[test]
fn a_server_side_fallback_names_the_model_that_served() {
    let start = "data: {\"type\":\"message_start\",\"message\":{\"model\":\"first\",\"usage\":{\"input_tokens\":408,\"output_tokens\":1}}}\n\n";
    let block = "data: {\"type\":\"content_block_start\",\"content_block\":{\"type\":\"fallback\",\"from\":{\"model\":\"first\"},\"to\":{\"model\":\"second\"}}}\n\n";
    let delta = |iterations: &str| {
        format!(
            "data: {{\"type\":\"message_delta\",\"delta\":{{\"stop_reason\":\"end_turn\"}},\"usage\":{{\"input_tokens\":412,\"output_tokens\":264{iterations}}}}}\n\ndata: {{\"type\":\"message_stop\"}}\n\n"
        )
    };
    for (iterations, model) in [
        ("", "second"),
        (
            ",\"iterations\":[{\"type\":\"message\",\"model\":\"first\"},{\"type\":\"fallback_message\",\"model\":\"third\"}]",
            "third",
        ),
    ] {
        let judge = good(Mode::Provider, Dialect::ANTHROPIC, "/v1/messages", STREAM);
        let delta = delta(iterations);
        let (verdict, _) = judged(
            judge,
            b"",
            [start.as_bytes(), block.as_bytes(), start.as_bytes(), delta.as_bytes()],
            BodyEnd::Eof,
        );
        assert_eq!(verdict.model(), Some(model));
        assert_eq!(verdict.usage(), Some(Usage::new(412, 264)));
        assert_eq!(verdict.content_started(), Some(false), "a fallback block is no content");
    }
}
