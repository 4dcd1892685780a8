//! Which ends are good ones, where the grammar is bent.

use backstop_core::dialect::{BodyEnd, Dialect, Judge, Mode, Route, Seen};
use backstop_core::{Class, StreamEnd};
use http::{HeaderMap, HeaderValue, StatusCode};

use crate::support::{good, judged};

const CHAT: &str = "/v1/chat/completions";
const RESPONSES: &str = "/v1/responses";
const MESSAGES: &str = "/v1/messages";
const GENERATE: &str = "/v1beta/models/m:streamGenerateContent?alt=sse";
const STREAM: &str = "text/event-stream";

const PATHS: [(Dialect, &str); 4] = [
    (Dialect::OPENAI, CHAT),
    (Dialect::OPENAI, RESPONSES),
    (Dialect::ANTHROPIC, MESSAGES),
    (Dialect::GEMINI, GENERATE),
];

/// The same, whole and byte by byte.
fn stream(dialect: Dialect, path: &str, events: &str) -> (Class, Option<StreamEnd>) {
    let judge = || good(Mode::Provider, dialect, path, STREAM);
    let whole = judged(judge(), b"", [events.as_bytes()], BodyEnd::Eof);
    assert_eq!(judged(judge(), b"", events.as_bytes().chunks(1), BodyEnd::Eof), whole, "{events}");
    (whole.0.class(), whole.0.stream_end())
}

fn document(path: &str, body: &str) -> Class {
    let judge = good(Mode::Provider, Dialect::OPENAI, path, "application/json");
    judged(judge, body.as_bytes(), [], BodyEnd::Eof).0.class()
}

fn unknown(body: &str, content_type: &'static str) -> (Class, Option<StreamEnd>) {
    let mut headers = HeaderMap::new();
    headers.insert("content-type", HeaderValue::from_static(content_type));
    let now = std::time::SystemTime::UNIX_EPOCH;
    let judge = Judge::new(Mode::Provider, Route::UNKNOWN, StatusCode::OK, &headers, now);
    let (verdict, _) = judged(judge, body.as_bytes(), [body.as_bytes()], BodyEnd::Eof);
    (verdict.class(), verdict.stream_end())
}

fn deep(levels: usize) -> String {
    format!("{}{}", "[".repeat(levels), "]".repeat(levels))
}

const CUT: (Class, Option<StreamEnd>) = (Class::Transient, Some(StreamEnd::Truncated));
const WHOLE: (Class, Option<StreamEnd>) = (Class::Success, Some(StreamEnd::Complete));

#[test]
fn a_deep_event_does_not_make_a_cut_stream_whole() {
    let begun = [
        "data: {\"choices\":[{\"index\":0,\"delta\":{\"content\":\"x\"}}]}\n\n",
        "data: {\"type\":\"response.output_text.delta\",\"delta\":\"x\"}\n\n",
        "data: {\"type\":\"content_block_delta\",\"delta\":{\"text\":\"x\"}}\n\n",
        "data: {\"candidates\":[{\"content\":{\"parts\":[{\"text\":\"x\"}]}}]}\r\n\r\n",
    ];
    for ((dialect, path), begun) in PATHS.into_iter().zip(begun) {
        for deep in [
            format!("data: {{\"x\":{}}}\n\n", deep(200)),
            format!("data: {}\n\n", deep(200)),
            format!("{{\"x\":{}}}\n\n", deep(200)),
            format!("data: {{\"x\":{}\n\n", "[".repeat(200)),
        ] {
            assert_eq!(stream(dialect, path, &format!("{deep}{begun}")), CUT, "{path}");
            assert_eq!(stream(dialect, path, &format!("{begun}{deep}")), CUT, "{path}");
        }
    }
}

#[test]
fn a_deep_event_is_read_as_far_as_it_matters() {
    let deep = deep(1_000);
    for (dialect, path, events) in [
        (
            Dialect::OPENAI,
            CHAT,
            format!(
                "data: {{\"x\":{deep},\"choices\":[{{\"delta\":{{\"content\":\"x\"}},\"finish_reason\":\"stop\"}}]}}\n\n"
            ),
        ),
        (
            Dialect::OPENAI,
            RESPONSES,
            format!(
                "data: {{\"type\":\"response.completed\",\"response\":{{\"status\":\"completed\",\"x\":{deep}}}}}\n\n"
            ),
        ),
        (
            Dialect::ANTHROPIC,
            MESSAGES,
            format!(
                "data: {{\"type\":\"content_block_delta\",\"delta\":{{\"text\":\"x\"}},\"x\":{deep}}}\n\ndata: {{\"type\":\"message_stop\",\"x\":{deep}}}\n\n"
            ),
        ),
        (
            Dialect::GEMINI,
            GENERATE,
            format!(
                "data: {{\"candidates\":[{{\"content\":{{\"parts\":[{{\"functionCall\":{deep}}}]}},\"finishReason\":\"STOP\"}}]}}\r\n\r\n"
            ),
        ),
    ] {
        assert_eq!(stream(dialect, path, &events), WHOLE, "{path}");
    }
    let error = format!("data: {{\"error\":{{\"code\":429,\"x\":{deep}}}}}\n\n");
    assert_eq!(stream(Dialect::OPENAI, CHAT, &error), (Class::RateLimited, Some(StreamEnd::Error)));
}

#[test]
fn what_follows_an_event_too_large_to_read_decides_again() {
    let big = format!(
        "data: {{\"choices\":[{{\"delta\":{{\"content\":\"{}\"}}}}]}}\n\n",
        "x".repeat(8_192)
    );
    let more = "data: {\"choices\":[{\"index\":0,\"delta\":{\"content\":\"x\"}}]}\n\n";
    let usage = "data: {\"choices\":[],\"usage\":{\"prompt_tokens\":1}}\n\n";
    for (events, end) in [
        ([&*big, more], StreamEnd::Truncated),
        ([&*big, usage], StreamEnd::Complete),
        ([more, &*big], StreamEnd::Complete),
    ] {
        let judge = good(Mode::Provider, Dialect::OPENAI, CHAT, STREAM).with_max_event(2_048);
        let events = events.map(str::as_bytes);
        assert_eq!(judged(judge, b"", events, BodyEnd::Eof).0.stream_end(), Some(end));
    }
}

#[test]
fn a_deep_document_is_an_answer_only_if_it_is_closed() {
    let good = |levels| {
        format!(
            r#"{{"choices":[{{"message":{{"content":{}}},"finish_reason":"stop"}}]}}"#,
            deep(levels)
        )
    };
    for levels in [100, 124, 125, 126, 200, 100_000] {
        let body = good(levels);
        assert_eq!(document(CHAT, &body), Class::Success, "{levels}");
        for cut in [1, 2, 20, body.len() / 3] {
            let cut = &body[..body.len() - cut.min(body.len() / 2)];
            assert_eq!(document(CHAT, cut), Class::Transient, "{levels}");
        }
        assert_eq!(document(CHAT, &format!("{body} x")), Class::Transient);
        assert_eq!(
            document(CHAT, &body.replace(r#""finish_reason":"#, r#""x""#)),
            Class::Transient
        );
        assert_eq!(document("/v1/files", &body), Class::Success);
    }
    assert_eq!(document(CHAT, &deep(500)), Class::Transient, "JSON, and no answer");
    let error = format!(r#"{{"error":{{"code":503,"details":{}}}}}"#, deep(500));
    assert_eq!(document(CHAT, &error), Class::Overloaded);
}

#[test]
fn done_ends_a_stream_only_as_its_data() {
    let begun = "data: {\"choices\":[{\"index\":0,\"delta\":{\"content\":\"x\"}}]}\n\n";
    for (end, expected) in [
        ("data: [DONE]\n\n", WHOLE),
        ("data:[DONE]", WHOLE),
        ("[DONE]\n\n", CUT),
        ("[DONE]", CUT),
        ("event: error\ndata: [DONE]\n\n", (Class::Transient, Some(StreamEnd::Error))),
        ("error: [DONE]\n\n", (Class::Transient, Some(StreamEnd::Error))),
    ] {
        assert_eq!(stream(Dialect::OPENAI, CHAT, &format!("{begun}{end}")), expected, "{end}");
    }
}

#[test]
fn a_document_under_the_name_of_a_stream_is_judged_as_one() {
    let answers = [
        r#"{"choices":[{"index":0,"message":{"content":"x"},"finish_reason":"stop"}]}"#,
        r#"{"status":"completed","output":[]}"#,
        r#"{"type":"message","content":[],"stop_reason":"end_turn"}"#,
        r#"{"candidates":[{"content":{"parts":[{"text":"x"}]},"finishReason":"STOP"}]}"#,
    ];
    for ((dialect, path), answer) in PATHS.into_iter().zip(answers) {
        let pretty = answer.replace(',', "\n,\r\n\n").replace(':', ": ");
        for body in
            [answer, &pretty, &format!(" \n\u{a}{answer}\n\n"), &format!("\u{feff}{answer}")]
        {
            assert_eq!(stream(dialect, path, body), (Class::Success, None), "{path} {body}");
            let cut = body.trim_end();
            let cut = &cut[..cut.len() - 1];
            assert_eq!(stream(dialect, path, cut), CUT, "{path} {cut}");
            let judge = good(Mode::Provider, dialect, path, STREAM);
            let (verdict, _) = judged(judge, b"", [body.as_bytes()], BodyEnd::Broken);
            assert_eq!(verdict.class(), Class::Transient, "{path} {body}");
        }
        for body in [
            format!("{answer} x\n\n"),
            format!("{answer}\n{answer}\n"),
            format!("{answer}\n\nevent: ping\n\n"),
            format!("id: 1\n\n{answer}\n\n"),
            format!("{answer}\n\ndata: {{\"type\":\"ping\"}}\n\n"),
        ] {
            assert_eq!(stream(dialect, path, &body), CUT, "{path} {body}");
        }
    }
    assert_eq!(stream(Dialect::OPENAI, CHAT, r#"{"choices":[]}"#), (Class::Transient, None));
    let error = r#"{"error":{"code":429}}"#;
    assert_eq!(stream(Dialect::OPENAI, CHAT, error), (Class::RateLimited, Some(StreamEnd::Error)));
    let large = format!(r#"{{"choices":[{{"message":{{"content":"{}"}}}}]}}"#, "x".repeat(5_000));
    for size in [large.len(), 100] {
        let judge = good(Mode::Provider, Dialect::OPENAI, CHAT, STREAM).with_max_event(2_048);
        let (verdict, _) = judged(judge, b"", large.as_bytes().chunks(size), BodyEnd::Eof);
        assert_eq!(verdict.stream_end(), Some(StreamEnd::Truncated), "more than is kept");
    }
}

#[test]
fn an_object_that_keeps_an_error_of_its_own_has_not_failed() {
    let job = r#"{"object":"job.step","status":"running","error":{"code":"x"}}"#;
    assert_eq!(unknown(job, "application/json"), (Class::Success, None));
    assert_eq!(unknown(&format!("data: {job}\n\n"), STREAM), WHOLE);
    for body in [
        r#"{"error":{"code":"x"}}"#,
        r#"{"type":"error","message":"m"}"#,
        r#"{"object":"error","message":"m"}"#,
        r#"{"object":"chat.completion.chunk","choices":[],"error":{"code":502}}"#,
        r#"{"object":"chat.completion.chunk","error":{"code":502}}"#,
        r#"{"object":"text_completion","error":{"code":502}}"#,
        r#"{"choices":[{"error":{"code":502}}]}"#,
    ] {
        assert!(unknown(body, "application/json").0.is_failure(), "{body}");
        let (class, end) = unknown(&format!("data: {body}\n\n"), STREAM);
        assert_eq!((class.is_failure(), end), (true, Some(StreamEnd::Error)), "{body}");
    }
}

#[test]
fn an_endless_bound_is_a_bound() {
    let array = "/v1beta/models/m:streamGenerateContent";
    for (dialect, path) in PATHS.into_iter().chain([(Dialect::GEMINI, array)]) {
        for content_type in [STREAM, "application/json"] {
            let mut judge =
                good(Mode::Provider, dialect, path, content_type).with_max_event(usize::MAX);
            for piece in ["data: {\"a\":", "1}\ndata: 2\n", "\n[{\"a\":", "[1]", "}]", "\n\n"] {
                assert_ne!(judge.push(piece.as_bytes()), Seen::Failed);
            }
            judge.finish(b"", BodyEnd::Eof);
        }
    }
}
