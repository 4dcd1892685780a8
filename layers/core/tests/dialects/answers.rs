//! What is an answer, what is none, and which of several words on it counts.

use backstop_core::dialect::{BodyEnd, Dialect, Judge, Mode, Presentation, Route};
use backstop_core::{Class, StreamEnd, Verdict};
use http::{HeaderMap, Method, StatusCode};

use crate::support::{good, judged};

const CHAT: &str = "/v1/chat/completions";
const RESPONSES: &str = "/v1/responses";
const MESSAGES: &str = "/v1/messages";
const GENERATE: &str = "/v1beta/models/m:generateContent";
const STREAM: &str = "/v1beta/models/m:streamGenerateContent?alt=sse";

fn document(dialect: Dialect, path: &str, body: &str) -> (Verdict, Presentation) {
    let judge = good(Mode::Provider, dialect, path, "application/json");
    judged(judge, body.as_bytes(), [], BodyEnd::Eof)
}

fn stream(dialect: Dialect, path: &str, events: &str) -> (Verdict, Presentation) {
    let judge = good(Mode::Provider, dialect, path, "text/event-stream");
    judged(judge, b"", [events.as_bytes()], BodyEnd::Eof)
}

fn candidate(index: u32, text: &str, reason: &str) -> String {
    format!(
        r#"{{"index":{index},"content":{{"parts":[{{"text":"{text}"}}]}},"finishReason":"{reason}"}}"#
    )
}

#[test]
fn one_good_candidate_is_enough_wherever_it_stands() {
    let good = candidate(1, "x", "STOP");
    for bad in
        ["MALFORMED_FUNCTION_CALL", "MISSING_THOUGHT_SIGNATURE", "SAFETY", "OTHER", "NO_IMAGE"]
    {
        let bad = candidate(0, "", bad);
        for (first, second) in [(&bad, &good), (&good, &bad)] {
            let body = format!(r#"{{"candidates":[{first},{second}]}}"#);
            let (verdict, shown) = document(Dialect::GEMINI, GENERATE, &body);
            assert_eq!((verdict.class(), shown), (Class::Success, Presentation::AsSent), "{body}");
            let events = format!(
                "data: {{\"candidates\":[{first}]}}\r\n\r\ndata: {{\"candidates\":[{second}]}}\r\n\r\n"
            );
            let (verdict, _) = stream(Dialect::GEMINI, STREAM, &events);
            assert_eq!(
                (verdict.class(), verdict.stream_end()),
                (Class::Success, Some(StreamEnd::Complete)),
                "{events}"
            );
        }
    }
}

#[test]
fn the_last_word_on_a_candidate_counts() {
    let chunk =
        |text, reason| format!("data: {{\"candidates\":[{}]}}\r\n\r\n", candidate(0, text, reason));
    for (events, class) in [
        ([chunk("", "OTHER"), chunk("x", "STOP")], Class::Success),
        ([chunk("", "MALFORMED_RESPONSE"), chunk("x", "STOP")], Class::Success),
        ([chunk("", "OTHER"), chunk("x", "")], Class::Success),
        ([chunk("x", "STOP"), chunk("", "MALFORMED_RESPONSE")], Class::Transient),
        ([chunk("", "MALFORMED_RESPONSE"), chunk("", "SAFETY")], Class::ContentRefused),
    ] {
        let (verdict, _) = stream(Dialect::GEMINI, STREAM, &events.concat());
        assert_eq!(verdict.class(), class, "{events:?}");
    }
}

#[test]
fn what_all_candidates_failed_with_does_not_depend_on_their_order() {
    let (refused, broken) =
        (candidate(0, "", "SAFETY"), candidate(1, "", "MALFORMED_FUNCTION_CALL"));
    for (first, second) in [(&refused, &broken), (&broken, &refused)] {
        let body = format!(r#"{{"candidates":[{first},{second}]}}"#);
        let (verdict, _) = document(Dialect::GEMINI, GENERATE, &body);
        assert_eq!(
            (verdict.class(), verdict.code()),
            (Class::Transient, Some("MALFORMED_FUNCTION_CALL")),
            "a candidate that broke may come better"
        );
    }
    // What one candidate said is not what another lacks.
    let body = format!(
        r#"{{"candidates":[{},{}]}}"#,
        candidate(0, "x", "SAFETY"),
        candidate(1, "", "OTHER")
    );
    assert_eq!(document(Dialect::GEMINI, GENERATE, &body).0.code(), Some("OTHER"));
}

#[test]
fn one_good_choice_is_enough_wherever_it_stands() {
    let bad = r#"{"index":0,"message":{"content":""},"finish_reason":"error"}"#;
    let good = r#"{"index":1,"message":{"content":"x"},"finish_reason":"stop"}"#;
    for (first, second) in [(bad, good), (good, bad)] {
        let body = format!(r#"{{"choices":[{first},{second}]}}"#);
        assert_eq!(document(Dialect::OPENAI, CHAT, &body).0.class(), Class::Success);
        let events = format!(
            "data: {{\"choices\":[{first}]}}\n\ndata: {{\"choices\":[{second}]}}\n\ndata: [DONE]\n\n"
        );
        let (verdict, _) = stream(Dialect::OPENAI, CHAT, &events);
        assert_eq!(
            (verdict.class(), verdict.stream_end()),
            (Class::Success, Some(StreamEnd::Complete))
        );
    }
    for ending in ["", "data: [DONE]\n\n"] {
        let events = format!("data: {{\"choices\":[{bad}]}}\n\n{ending}");
        let (verdict, shown) = stream(Dialect::OPENAI, CHAT, &events);
        assert_eq!(
            (verdict.class(), verdict.stream_end(), verdict.code(), shown),
            (Class::Transient, Some(StreamEnd::Error), Some("error"), Presentation::AsSent)
        );
    }
}

#[test]
fn an_error_object_beats_a_finish_reason() {
    let mute =
        r#"{"error":{"message":"m"},"choices":[{"index":0,"delta":{},"finish_reason":"error"}]}"#;
    let inner = r#"{"choices":[{"index":0,"finish_reason":"error","error":{"message":"m"}}]}"#;
    for body in [mute, inner] {
        for (verdict, shown) in [
            document(Dialect::OPENAI, CHAT, body),
            stream(Dialect::OPENAI, CHAT, &format!("data: {body}\n\ndata: [DONE]\n\n")),
            stream(
                Dialect::OPENAI,
                CHAT,
                &format!(
                    "data: {{\"choices\":[{{\"finish_reason\":\"error\"}}]}}\n\ndata: {body}\n\n"
                ),
            ),
        ] {
            let Presentation::Error { status, body: shown } = shown else {
                panic!("{body} is shown as sent")
            };
            assert_eq!(
                (status, verdict.effective_status()),
                (StatusCode::INTERNAL_SERVER_ERROR, status)
            );
            assert_eq!(verdict.message(), Some("m"));
            assert!(shown.windows(11).any(|part| part == br#""message":""#), "{body}");
        }
    }
    // The Responses API says the same thing twice, and Gemini may.
    let failed = "data: {\"type\":\"response.failed\",\"response\":{\"status\":\"failed\",\"error\":{\"message\":\"m\"}}}\n\n";
    let (verdict, shown) = stream(Dialect::OPENAI, RESPONSES, failed);
    assert_eq!(verdict.message(), Some("m"));
    assert!(matches!(shown, Presentation::Error { status, .. } if status == 500), "{shown:?}");
    let both = format!(
        r#"{{"error":{{"message":"m"}},"candidates":[{}]}}"#,
        candidate(0, "", "MALFORMED_FUNCTION_CALL")
    );
    let (verdict, shown) = document(Dialect::GEMINI, GENERATE, &both);
    assert_eq!(verdict.message(), Some("m"));
    assert!(matches!(shown, Presentation::Error { .. }), "{shown:?}");
    // An error that cannot be read is an error all the same.
    let unread =
        "event: error\ndata: boom\n\ndata: {\"choices\":[{\"finish_reason\":\"error\"}]}\n\n";
    let (_, shown) = stream(Dialect::OPENAI, CHAT, unread);
    assert!(matches!(shown, Presentation::Error { status, .. } if status == 502), "{shown:?}");
}

#[test]
fn an_answer_with_nothing_in_it_is_none() {
    for (dialect, path, bodies) in [
        (
            Dialect::OPENAI,
            CHAT,
            &[
                r#"{"choices":[null]}"#,
                r#"{"choices":[{}]}"#,
                r#"{"choices":[{"index":0}]}"#,
                r#"{"choices":[{"index":0,"message":{"role":"assistant","content":null},"finish_reason":null}]}"#,
                r#"{"choices":[{"index":0,"message":{"content":"","tool_calls":[],"refusal":null}}]}"#,
                r#"{"choices":{"0":{"finish_reason":"stop"}}}"#,
                r#"{"choices":null}"#,
            ][..],
        ),
        (Dialect::OPENAI, "/v1/completions", &[r#"{"choices":[{"text":""}]}"#]),
        (
            Dialect::OPENAI,
            RESPONSES,
            &[
                r#"{"status":"error","message":"m"}"#,
                r#"{"status":"ok"}"#,
                r#"{"output":null}"#,
                r#"{"output":[]}"#,
                r#"{"output":[null]}"#,
                r#"{"output":[{}]}"#,
                r#"{"status":null,"output":null}"#,
                r#"{"status":1}"#,
            ],
        ),
        (
            Dialect::OPENAI,
            "/v1/embeddings",
            &[
                r#"{"data":[null]}"#,
                r#"{"data":[{}]}"#,
                r#"{"data":[{"object":"embedding","embedding":[]}]}"#,
                r#"{"data":[{"embedding":null,"index":0}]}"#,
            ],
        ),
        (
            Dialect::ANTHROPIC,
            MESSAGES,
            &[
                r#"{"content":null}"#,
                r#"{"type":"message","content":null}"#,
                r#"{"type":"message","content":null,"stop_reason":"end_turn"}"#,
                r#"{"type":"message","content":"x","stop_reason":"end_turn"}"#,
                r#"{"type":"message"}"#,
                r#"{"type":"message","content":[null],"stop_reason":null}"#,
                r#"{"type":"message","content":[],"stop_reason":null}"#,
            ],
        ),
        (Dialect::ANTHROPIC, "/v1/messages/count_tokens", &[r#"{"input_tokens":null}"#]),
        (
            Dialect::GEMINI,
            GENERATE,
            &[
                r#"{"candidates":[null]}"#,
                r#"{"candidates":[{}]}"#,
                r#"{"candidates":[{"index":0,"content":{"role":"model"}}]}"#,
                r#"{"candidates":[{"content":{"parts":[{}]},"finishReason":null}]}"#,
                r#"[{"candidates":[{}]}]"#,
            ],
        ),
    ] {
        for body in bodies {
            let (verdict, shown) = document(dialect, path, body);
            assert_eq!(verdict.class(), Class::Transient, "{path} {body}");
            assert!(matches!(shown, Presentation::Error { status, .. } if status == 502), "{body}");
        }
    }
    for events in [
        "data: {\"choices\":[null]}\n\ndata: [DONE]\n\n",
        "data: {\"choices\":[{}]}\n\ndata: [DONE]\n\n",
    ] {
        assert_eq!(stream(Dialect::OPENAI, CHAT, events).0.class(), Class::Transient, "{events}");
    }
    let events = "data: {\"candidates\":[{\"content\":{\"role\":\"model\"}}]}\r\n\r\n";
    assert_eq!(stream(Dialect::GEMINI, STREAM, events).0.class(), Class::Transient);
    let events = "data: {\"type\":\"message_start\",\"message\":{\"content\":[]}}\n\ndata: {\"type\":\"message_stop\"}\n\n";
    assert_eq!(stream(Dialect::ANTHROPIC, MESSAGES, events).0.class(), Class::Transient);
}

#[test]
fn a_short_answer_is_one() {
    for (dialect, path, bodies) in [
        (
            Dialect::OPENAI,
            CHAT,
            &[
                r#"{"choices":[{"message":{"content":"x"}}]}"#,
                r#"{"choices":[{"message":{"content":""},"finish_reason":"stop"}]}"#,
                r#"{"choices":[{"message":{"content":null,"tool_calls":[{"id":"c"}]},"finish_reason":null}]}"#,
                r#"{"choices":[{"message":{"content":null,"audio":{"id":"a"}}}]}"#,
                r#"{"choices":[{"message":{"content":null,"reasoning_content":"r"},"finish_reason":"length"}]}"#,
                r#"{"choices":[null,{"message":{"content":"x"}}]}"#,
                r#"{"choices":[{"message":{"content":"","images":[{"image_url":{"url":"data:"}}]},"finish_reason":null}]}"#,
                r#"{"error":{},"choices":[{"message":{"content":"x"},"finish_reason":"stop"}]}"#,
            ][..],
        ),
        (
            Dialect::OPENAI,
            RESPONSES,
            &[
                r#"{"status":"in_progress","output":[]}"#,
                r#"{"status":"queued"}"#,
                r#"{"status":"completed","output":[]}"#,
                r#"{"status":"incomplete","output":[]}"#,
                r#"{"status":"new","output":[{"type":"message","content":[{"text":"x"}]}]}"#,
                r#"{"output":[{"type":"function_call","name":"f"}]}"#,
                r#"{"error":{},"status":"completed","output":[]}"#,
            ],
        ),
        (
            Dialect::OPENAI,
            "/v1/embeddings",
            &[
                r#"{"data":[{"object":"embedding","embedding":[0.5]}]}"#,
                r#"{"data":[{"embedding":"AAAAPw=="}]}"#,
                r#"{"data":[{"object":"embeddings","embeddings":[[0.5],[0.25]]}]}"#,
                r#"{"data":[{"sparse_embedding":{"1":0.5}}]}"#,
            ],
        ),
        (
            Dialect::ANTHROPIC,
            MESSAGES,
            &[
                r#"{"type":"message","content":[],"stop_reason":"end_turn"}"#,
                r#"{"content":[{"type":"text","text":"x"}]}"#,
                r#"{"content":[{"type":"text","text":""}],"stop_reason":"max_tokens"}"#,
            ],
        ),
        (
            Dialect::GEMINI,
            GENERATE,
            &[
                r#"{"candidates":[{"content":{"parts":[{"text":"x"}]}}]}"#,
                r#"{"candidates":[{"finishReason":"MAX_TOKENS"}]}"#,
                r#"{"candidates":[{"content":{"parts":[{"functionCall":{"name":"f"}}]}}]}"#,
            ],
        ),
    ] {
        for body in bodies {
            let (verdict, shown) = document(dialect, path, body);
            assert_eq!((verdict.class(), shown), (Class::Success, Presentation::AsSent), "{body}");
        }
    }
    let empty = "data: {\"error\":{},\"choices\":[{\"delta\":{\"content\":\"x\"},\"finish_reason\":\"stop\"}]}\n\ndata: [DONE]\n\n";
    assert_eq!(stream(Dialect::OPENAI, CHAT, empty).0.class(), Class::Success);
}

#[test]
fn an_answer_that_was_not_modified_has_no_code() {
    let route = Route::new(Dialect::OPENAI, &Method::GET, &"/v1/models".parse().unwrap());
    let now = std::time::SystemTime::UNIX_EPOCH;
    let status = StatusCode::NOT_MODIFIED;
    let mut judge = Judge::new(Mode::Provider, route, status, &HeaderMap::new(), now);
    let verdict = judge.finish(br#"{"error":{"code":"x","message":"m"}}"#, BodyEnd::Eof);
    assert_eq!((verdict.class(), verdict.code(), verdict.message()), (Class::Success, None, None));
    assert_eq!(judge.presentation(), Presentation::AsSent);
}

#[test]
fn a_presentation_keeps_the_providers_words_out_of_logs() {
    let (_, shown) = document(Dialect::OPENAI, CHAT, r#"{"error":{"message":"secret words"}}"#);
    let text = format!("{shown:?}");
    assert!(!text.contains("secret") && text.contains("500") && text.contains("36"), "{text}");
}
