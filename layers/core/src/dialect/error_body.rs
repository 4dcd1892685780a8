//! Errors of our own, written as the dialects write theirs.

use bytes::Bytes;
use http::StatusCode;

use super::{Dialect, openai};

/// The error of `dialect`; of an unknown one the form that most servers use, OpenAI's.
pub(super) fn of(dialect: Option<Dialect>, status: StatusCode, kind: &str, message: &str) -> Bytes {
    match dialect {
        Some(dialect) => (dialect.facts().error)(status, kind, message),
        None => openai(openai::error_type(status), kind, message),
    }
    .into()
}

/// `{"error":{"message","type","param","code"}}` (openai/openai-openapi openapi.json, Error).
pub(super) fn openai(word: &str, kind: &str, message: &str) -> String {
    let mut json = String::from(r#"{"error":{"message":"#);
    quote(&mut json, message);
    json.push_str(r#","type":"#);
    quote(&mut json, word);
    json.push_str(r#","param":null,"code":"#);
    quote(&mut json, kind);
    json.push_str("}}");
    json
}

/// `{"type":"error","error":{"type","message","details"}}` (anthropics/anthropic-sdk-python
/// src/anthropic/types/shared/error_response.py).
pub(super) fn anthropic(word: &str, kind: &str, message: &str) -> String {
    let mut json = String::from(r#"{"type":"error","error":{"type":"#);
    quote(&mut json, word);
    json.push_str(r#","message":"#);
    quote(&mut json, message);
    json.push_str(r#","details":{"error_code":"#);
    quote(&mut json, kind);
    json.push_str("}}}");
    json
}

/// `{"error":{"code","message","status","details"}}` (doc: Gemini API errors). The reason of an
/// `ErrorInfo` is in capitals.
pub(super) fn google(status: StatusCode, word: &str, kind: &str, message: &str) -> String {
    let mut json = format!(r#"{{"error":{{"code":{},"message":"#, status.as_u16());
    quote(&mut json, message);
    json.push_str(r#","status":"#);
    quote(&mut json, word);
    json.push_str(r#","details":[{"@type":"type.googleapis.com/google.rpc.ErrorInfo","reason":"#);
    quote(&mut json, &kind.to_ascii_uppercase());
    json.push_str(r#","domain":"backstop"}]}}"#);
    json
}

/// Appends `text` as a JSON string.
pub(super) fn quote(json: &mut String, text: &str) {
    json.push('"');
    for c in text.chars() {
        match c {
            '"' => json.push_str("\\\""),
            '\\' => json.push_str("\\\\"),
            '\n' => json.push_str("\\n"),
            '\r' => json.push_str("\\r"),
            '\t' => json.push_str("\\t"),
            c if u32::from(c) < 0x20 => json.push_str(&format!("\\u{:04x}", u32::from(c))),
            c => json.push(c),
        }
    }
    json.push('"');
}
