//! How a failure inside a 2xx is shown at the end of a call.

use backstop_core::dialect::{BodyEnd, Dialect, Judge, Mode, Presentation, Route};
use backstop_core::{Class, Verdict};
use http::{HeaderMap, Method, StatusCode};
use serde_json::{Value, json};

use crate::support::{good, judged};

const CHAT: &str = "/v1/chat/completions";
const MESSAGES: &str = "/v1/messages";
const GENERATE: &str = "/v1beta/models/m:generateContent";
const STREAM: &str = "/v1beta/models/m:streamGenerateContent?alt=sse";

fn document(
    dialect: Dialect,
    path: &str,
    content_type: &str,
    body: &str,
) -> (Verdict, Presentation) {
    judged(good(Mode::Provider, dialect, path, content_type), body.as_bytes(), [], BodyEnd::Eof)
}

fn stream(dialect: Dialect, path: &str, events: &str) -> (Verdict, Presentation) {
    let judge = good(Mode::Provider, dialect, path, "text/event-stream");
    judged(judge, b"", [events.as_bytes()], BodyEnd::Eof)
}

#[track_caller]
fn shown((verdict, presentation): (Verdict, Presentation)) -> (u16, String) {
    let Presentation::Error { status, body } = presentation else {
        panic!("shown as sent: {verdict:?}")
    };
    assert_eq!(status, verdict.effective_status());
    (status.as_u16(), String::from_utf8(body.to_vec()).unwrap())
}

#[test]
fn the_providers_error_keeps_its_bytes() {
    let whole = r#"{"id": "x",  "error":{"code":429 ,"message":"busy"}}"#;
    assert_eq!(
        shown(document(Dialect::OPENAI, CHAT, "application/json", whole)),
        (429, whole.into())
    );

    let choice =
        r#"{"choices":[{"finish_reason":"error","error":{"code":502, "message":"died"}}]}"#;
    let expected = r#"{"error":{"code":502, "message":"died"}}"#;
    assert_eq!(
        shown(document(Dialect::OPENAI, CHAT, "application/json", choice)),
        (502, expected.into())
    );

    let event = "data: {\"id\":\"y\",\"error\":{\"type\":\"server_error\", \"message\":\"m\"},\"choices\":[]}\n\n";
    let expected = r#"{"error":{"type":"server_error", "message":"m"}}"#;
    assert_eq!(shown(stream(Dialect::OPENAI, CHAT, event)), (500, expected.into()));

    let event = "event: error\ndata: {\"type\":\"error\", \"error\":{\"type\":\"overloaded_error\",\"message\":\"m\"}}\n\n";
    let expected = r#"{"type":"error", "error":{"type":"overloaded_error","message":"m"}}"#;
    assert_eq!(shown(stream(Dialect::ANTHROPIC, MESSAGES, event)), (529, expected.into()));

    let raw = "{\n  \"error\": {\n    \"code\": 503,\n    \"message\": \"m\"\n  }\n}";
    assert_eq!(shown(stream(Dialect::GEMINI, STREAM, raw)), (503, raw.into()));
    let array = format!("[{raw}]");
    let path = "/v1beta/models/m:streamGenerateContent";
    let judge = good(Mode::Provider, Dialect::GEMINI, path, "application/json");
    assert_eq!(shown(judged(judge, b"", [array.as_bytes()], BodyEnd::Eof)), (503, raw.into()));
}

#[test]
fn an_error_in_another_form_is_put_in_the_dialects() {
    let text = r#"{"error":"cloud unreachable"}"#;
    assert_eq!(
        shown(document(Dialect::OPENAI, CHAT, "application/json", text)),
        (500, text.into()),
        "a document keeps its form"
    );
    let expected = r#"{"error":{"message":"gone"}}"#;
    assert_eq!(
        shown(stream(Dialect::OPENAI, CHAT, "data: {\"x\":1,\"error\":\"gone\"}\n\n")),
        (500, expected.into())
    );

    let flat =
        "event: error\ndata: {\"type\":\"error\",\"code\":\"server_error\",\"message\":\"m\"}\n\n";
    let expected = r#"{"error":{"type":"error","code":"server_error","message":"m"}}"#;
    assert_eq!(shown(stream(Dialect::OPENAI, "/v1/responses", flat)), (500, expected.into()));

    let google = r#"{"error":{"code":429,"message":"m","status":"RESOURCE_EXHAUSTED"}}"#;
    let expected = format!(r#"{{"type":"error",{}"#, &google[1..]);
    assert_eq!(
        shown(document(Dialect::ANTHROPIC, MESSAGES, "application/json", google)),
        (429, expected)
    );
}

#[test]
fn the_statuses_are_those_the_provider_would_have_sent() {
    for (kind, status) in [
        ("overloaded_error", 529),
        ("rate_limit_error", 429),
        ("billing_error", 429),
        ("authentication_error", 401),
        ("not_found_error", 404),
        ("invalid_request_error", 400),
        ("request_too_large", 413),
        ("timeout_error", 504),
        ("api_error", 500),
    ] {
        let event = format!(
            "data: {{\"type\":\"error\",\"error\":{{\"type\":\"{kind}\",\"message\":\"m\"}}}}\n\n"
        );
        assert_eq!(shown(stream(Dialect::ANTHROPIC, MESSAGES, &event)).0, status, "{kind}");
    }
}

#[test]
fn what_came_in_place_of_an_answer_is_named() {
    let says = |answer, words: &str| {
        let (status, body) = shown(answer);
        let body: Value = serde_json::from_str(&body).unwrap();
        assert_eq!(status, 502);
        let message = body["error"]["message"].as_str().unwrap();
        assert_eq!(message, format!("the provider answered 200 {words}"));
        body
    };
    let page = "<!DOCTYPE html><html><body>wait</body></html>";
    let body = says(document(Dialect::OPENAI, CHAT, "text/html", page), "with an HTML page");
    assert_eq!(
        body,
        json!({"error": {
            "message": "the provider answered 200 with an HTML page", "type": "server_error", "param": null, "code": "html_page"
        }})
    );
    let body = says(
        document(Dialect::ANTHROPIC, MESSAGES, "application/json", "\n"),
        "with an empty body",
    );
    assert_eq!(
        body,
        json!({"type": "error", "error": {
            "type": "api_error", "message": "the provider answered 200 with an empty body", "details": {"error_code": "empty_body"}
        }})
    );
    let body = says(
        document(Dialect::GEMINI, GENERATE, "application/json", "{}"),
        "with an answer that has no candidates",
    );
    assert_eq!(
        body,
        json!({"error": {
            "code": 502, "status": "UNAVAILABLE", "message": "the provider answered 200 with an answer that has no candidates",
            "details": [{"@type": "type.googleapis.com/google.rpc.ErrorInfo", "reason": "NO_ANSWER", "domain": "backstop"}]
        }})
    );
    says(
        document(Dialect::OPENAI, CHAT, "application/json", "{\"choices\":"),
        "with a JSON text that ends in its middle",
    );
    says(document(Dialect::OPENAI, CHAT, "text/plain", "ok"), "with a body that is not JSON");
    says(
        document(Dialect::OPENAI, CHAT, "application/json", "{\"choices\":[]}"),
        "with an answer that has no choices",
    );
    says(
        stream(Dialect::OPENAI, CHAT, ": hello\n\n"),
        "with a stream that ended before its end marker",
    );
    says(stream(Dialect::OPENAI, CHAT, "data: [DONE]\n\n"), "with an answer that has no choices");
    says(
        stream(Dialect::OPENAI, CHAT, "event: error\ndata: boom\n\n"),
        "with a stream that reported an error and did not say which",
    );
    let broken = good(Mode::Provider, Dialect::OPENAI, CHAT, "application/json");
    says(judged(broken, b"{\"cho", [], BodyEnd::Broken), "and broke off before the answer's end");
}

#[test]
fn what_tells_by_itself_is_shown_as_it_was_sent() {
    let filtered =
        r#"{"choices":[{"index":0,"message":{"content":null},"finish_reason":"content_filter"}]}"#;
    let (verdict, shown) = document(Dialect::OPENAI, CHAT, "application/json", filtered);
    assert_eq!((verdict.class(), shown), (Class::ContentRefused, Presentation::AsSent));
    let malformed = r#"{"candidates":[{"finishReason":"MALFORMED_FUNCTION_CALL"}]}"#;
    let (verdict, shown) = document(Dialect::GEMINI, GENERATE, "application/json", malformed);
    assert_eq!((verdict.class(), shown), (Class::Transient, Presentation::AsSent));
    let route = Route::new(Dialect::OPENAI, &Method::POST, &CHAT.parse().unwrap());
    let now = std::time::SystemTime::UNIX_EPOCH;
    let judge = Judge::new(Mode::Provider, route, StatusCode::BAD_GATEWAY, &HeaderMap::new(), now);
    assert_eq!(judged(judge, b"<html>", [], BodyEnd::Eof).1, Presentation::AsSent);
}

/// What we write, we read: a Backstop behind a Backstop keeps our word.
#[test]
fn our_own_errors_are_read_back() {
    for dialect in Dialect::ALL {
        let path = if *dialect == Dialect::GEMINI { GENERATE } else { CHAT };
        for (status, class) in [
            (401, Class::Auth),
            (404, Class::NotFound),
            (429, Class::RateLimited),
            (502, Class::Upstream),
            (504, Class::Timeout),
        ] {
            let status = StatusCode::from_u16(status).unwrap();
            let body = dialect.error_body(status, "some_kind", "a \"quoted\"\n\u{1} text");
            let json: Value = serde_json::from_slice(&body).unwrap();
            assert_eq!(json["error"]["message"], "a \"quoted\"\n\u{1} text");
            let route = Route::new(*dialect, &Method::POST, &path.parse().unwrap());
            let now = std::time::SystemTime::UNIX_EPOCH;
            let judge = Judge::new(Mode::Provider, route, status, &HeaderMap::new(), now);
            let (verdict, _) = judged(judge, &body, [], BodyEnd::Eof);
            assert_eq!(verdict.class(), class, "{dialect} {status}");
            assert_eq!(verdict.code().map(str::to_ascii_lowercase).as_deref(), Some("some_kind"));
        }
    }
}
