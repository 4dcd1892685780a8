//! Ready answers in Gemini's dialect: `generateContent` and both forms of `streamGenerateContent`.

use super::{MESSAGE, Usage, quote};
use crate::testing::Answer;

/// A generated content: 200, one candidate, `finishReason: STOP`.
pub fn content(model: &str, text: &str) -> Answer {
    content_with_usage(model, text, Usage::default())
}

/// A generated content with this usage.
pub fn content_with_usage(model: &str, text: &str, usage: Usage) -> Answer {
    Answer::status(200).json(chunk(model, text, Some(("STOP", usage))))
}

/// A prompt that was blocked: 200, no candidate, this `promptFeedback.blockReason`.
pub fn blocked(model: &str, reason: &str) -> Answer {
    Answer::status(200).json(format!(
        r#"{{"promptFeedback":{{"blockReason":{}}},"usageMetadata":{{"promptTokenCount":{input},"totalTokenCount":{input}}},"modelVersion":{}}}"#,
        quote(reason),
        quote(model),
        input = Usage::default().input,
    ))
}

/// A stream of server-sent events (`alt=sse`), with CRLF line ends. Its events are [`events`].
pub fn stream_sse<'a>(model: &str, deltas: impl IntoIterator<Item = &'a str>) -> Answer {
    sse(events(model, deltas))
}

/// A stream as one JSON array in pieces (without `alt=sse`): one for each of the [`events`], and one for the closing
/// bracket, which counts as an event when the stream is cut.
pub fn stream_array<'a>(model: &str, deltas: impl IntoIterator<Item = &'a str>) -> Answer {
    array(events(model, deltas)).event_bytes("]")
}

/// The documents of a stream: one for each delta, the last with `finishReason: STOP` and the usage.
#[must_use]
pub fn events<'a>(model: &str, deltas: impl IntoIterator<Item = &'a str>) -> Vec<String> {
    let mut deltas = deltas.into_iter().peekable();
    let mut events = Vec::new();
    while let Some(text) = deltas.next() {
        let end = deltas.peek().is_none().then(|| ("STOP", Usage::default()));
        events.push(chunk(model, text, end));
    }
    events
}

/// A stream of server-sent events whose first is an error, under a 200. `status` is what it says inside.
pub fn error_first(status: u16, word: &str) -> Answer {
    sse([error_body(status, word)])
}

/// A stream of server-sent events that fails after its deltas, none of which is the last.
pub fn error_mid_stream<'a>(
    model: &str,
    deltas: impl IntoIterator<Item = &'a str>,
    status: u16,
    word: &str,
) -> Answer {
    let deltas = deltas.into_iter().map(|text| chunk(model, text, None));
    sse(deltas.chain([error_body(status, word)]))
}

/// An array stream that fails after its deltas, none of which is the last; the array is closed.
pub fn error_mid_array<'a>(
    model: &str,
    deltas: impl IntoIterator<Item = &'a str>,
    status: u16,
    word: &str,
) -> Answer {
    let deltas = deltas.into_iter().map(|text| chunk(model, text, None));
    array(deltas.chain([error_body(status, word)])).event_bytes("]")
}

/// An error: this status, also as `code`, and this status word, such as `UNAVAILABLE`.
pub fn error(status: u16, word: &str) -> Answer {
    Answer::status(status).json(error_body(status, word))
}

/// An error of the array endpoint: the object of [`error`] inside `[]`.
pub fn error_array(status: u16, word: &str) -> Answer {
    Answer::status(status).json(format!("[{}]", error_body(status, word)))
}

/// A 429 `RESOURCE_EXHAUSTED` with a `QuotaFailure` of this `quotaId` (which says whether it is a matter of minutes or
/// of days) and, where given, a `RetryInfo` of this delay, such as `17s`.
pub fn quota(quota_id: &str, retry_delay: Option<&str>) -> Answer {
    let retry = retry_delay.map_or_else(String::new, |delay| {
        format!(
            r#",{{"@type":"type.googleapis.com/google.rpc.RetryInfo","retryDelay":{}}}"#,
            quote(delay)
        )
    });
    Answer::status(429).json(format!(
        r#"{{"error":{{"code":429,"message":"{MESSAGE}","status":"RESOURCE_EXHAUSTED","details":[{{"@type":"type.googleapis.com/google.rpc.QuotaFailure","violations":[{{"quotaMetric":"scripted","quotaId":{}}}]}}{retry}]}}}}"#,
        quote(quota_id),
    ))
}

/// The body of [`error`], and the data of an error event.
#[must_use]
pub fn error_body(status: u16, word: &str) -> String {
    format!(r#"{{"error":{{"code":{status},"message":"{MESSAGE}","status":{}}}}}"#, quote(word))
}

fn chunk(model: &str, text: &str, end: Option<(&str, Usage)>) -> String {
    let (finish, usage) = match end {
        Some((reason, usage)) => (
            format!(r#","finishReason":"{reason}""#),
            format!(
                r#"{{"promptTokenCount":{},"candidatesTokenCount":{},"totalTokenCount":{}}}"#,
                usage.input,
                usage.output,
                usage.total(),
            ),
        ),
        None => {
            let input = Usage::default().input;
            (String::new(), format!(r#"{{"promptTokenCount":{input},"totalTokenCount":{input}}}"#))
        }
    };
    format!(
        r#"{{"candidates":[{{"content":{{"parts":[{{"text":{}}}],"role":"model"}}{finish},"index":0}}],"usageMetadata":{usage},"modelVersion":{},"responseId":"scripted"}}"#,
        quote(text),
        quote(model),
    )
}

fn sse(events: impl IntoIterator<Item = String>) -> Answer {
    let event = |answer: Answer, data: String| answer.event_bytes(format!("data: {data}\r\n\r\n"));
    events.into_iter().fold(Answer::sse(), event)
}

fn array(events: impl IntoIterator<Item = String>) -> Answer {
    let start = Answer::status(200).header("content-type", "application/json").chunked();
    events.into_iter().enumerate().fold(start, |answer, (n, json)| {
        let before = if n == 0 { "[" } else { ",\r\n" };
        answer.event_bytes(format!("{before}{json}"))
    })
}
