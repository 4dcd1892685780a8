//! Ready answers in Anthropic's dialect: Messages.

use super::{MESSAGE, REQUEST_ID, Usage, quote};
use crate::testing::Answer;

/// A message: 200, one text block, `stop_reason: end_turn`.
pub fn message(model: &str, text: &str) -> Answer {
    message_with_usage(model, text, Usage::default())
}

/// A message with this usage.
pub fn message_with_usage(model: &str, text: &str, usage: Usage) -> Answer {
    let block = format!(r#"{{"type":"text","text":{}}}"#, quote(text));
    ok(&message_body(model, &block, r#""end_turn""#, usage))
}

/// A message that the model declined to write: 200, no content, `stop_reason: refusal`.
pub fn refusal(model: &str) -> Answer {
    ok(&message_body(model, "", r#""refusal""#, Usage::default()))
}

/// A token count.
pub fn count_tokens(tokens: u64) -> Answer {
    ok(&format!(r#"{{"input_tokens":{tokens}}}"#))
}

/// A message as a stream. Its events are [`message_events`].
pub fn message_stream<'a>(model: &str, deltas: impl IntoIterator<Item = &'a str>) -> Answer {
    stream(message_events(model, deltas))
}

/// The names and data of a message stream's events: the message's and the block's start, a ping, one for each delta,
/// the block's end, the stop reason with the usage, the message's end.
#[must_use]
pub fn message_events<'a>(
    model: &str,
    deltas: impl IntoIterator<Item = &'a str>,
) -> Vec<(&'static str, String)> {
    let delta = |text: &str| format!(r#"{{"type":"text_delta","text":{}}}"#, quote(text));
    let deltas = deltas.into_iter().map(delta);
    events(model, r#"{"type":"text","text":""}"#, deltas, "end_turn")
}

/// A stream in which one tool is used, its input in these fragments of JSON. Events as in [`message_events`].
pub fn tool_use_stream<'a>(
    model: &str,
    tool: &str,
    fragments: impl IntoIterator<Item = &'a str>,
) -> Answer {
    let block = format!(
        r#"{{"type":"tool_use","id":"toolu_scripted","name":{},"input":{{}}}}"#,
        quote(tool)
    );
    let delta =
        |json: &str| format!(r#"{{"type":"input_json_delta","partial_json":{}}}"#, quote(json));
    stream(events(model, &block, fragments.into_iter().map(delta), "tool_use"))
}

/// A stream whose first event is an error, under a 200.
pub fn error_first(kind: &str) -> Answer {
    stream([("error", error_event(kind))])
}

/// A stream that fails after its deltas: the events before the block's end, then the error.
pub fn error_mid_stream<'a>(
    model: &str,
    deltas: impl IntoIterator<Item = &'a str>,
    kind: &str,
) -> Answer {
    let mut events = message_events(model, deltas);
    events.truncate(events.len() - END_EVENTS);
    events.push(("error", error_event(kind)));
    stream(events)
}

/// An error: this status, and an error object of this type.
pub fn error(status: u16, kind: &str) -> Answer {
    with_id(Answer::status(status)).json(error_body(kind))
}

/// The body of [`error`].
#[must_use]
pub fn error_body(kind: &str) -> String {
    format!(
        r#"{{"type":"error","error":{{"type":{},"message":"{MESSAGE}"}},"request_id":"{REQUEST_ID}"}}"#,
        quote(kind),
    )
}

/// An error with `error.details.error_code`, by which some limits of one type are told apart.
pub fn error_with_code(status: u16, kind: &str, code: &str) -> Answer {
    with_id(Answer::status(status)).json(format!(
        r#"{{"type":"error","error":{{"type":{},"message":"{MESSAGE}","details":{{"error_code":{}}}}},"request_id":"{REQUEST_ID}"}}"#,
        quote(kind),
        quote(code),
    ))
}

fn error_event(kind: &str) -> String {
    format!(
        r#"{{"type":"error","error":{{"details":null,"type":{},"message":"{MESSAGE}"}}}}"#,
        quote(kind),
    )
}

fn message_body(model: &str, content: &str, stop: &str, usage: Usage) -> String {
    format!(
        r#"{{"id":"msg_scripted","type":"message","role":"assistant","model":{},"content":[{content}],"stop_reason":{stop},"stop_sequence":null,"usage":{{"input_tokens":{},"output_tokens":{}}}}}"#,
        quote(model),
        usage.input,
        usage.output,
    )
}

fn events(
    model: &str,
    block: &str,
    deltas: impl Iterator<Item = String>,
    stop: &str,
) -> Vec<(&'static str, String)> {
    let Usage { input, output } = Usage::default();
    let message = message_body(model, "", "null", Usage::new(input, 1));
    let mut events = vec![
        ("message_start", format!(r#"{{"type":"message_start","message":{message}}}"#)),
        (
            "content_block_start",
            format!(r#"{{"type":"content_block_start","index":0,"content_block":{block}}}"#),
        ),
        ("ping", r#"{"type":"ping"}"#.to_owned()),
    ];
    let delta = |delta| {
        let data = format!(r#"{{"type":"content_block_delta","index":0,"delta":{delta}}}"#);
        ("content_block_delta", data)
    };
    events.extend(deltas.map(delta));
    let end: [_; END_EVENTS] = [
        ("content_block_stop", r#"{"type":"content_block_stop","index":0}"#.to_owned()),
        (
            "message_delta",
            format!(
                r#"{{"type":"message_delta","delta":{{"stop_reason":"{stop}","stop_sequence":null}},"usage":{{"output_tokens":{output}}}}}"#
            ),
        ),
        ("message_stop", r#"{"type":"message_stop"}"#.to_owned()),
    ];
    events.extend(end);
    events
}

fn stream(events: impl IntoIterator<Item = (&'static str, String)>) -> Answer {
    let start = with_id(Answer::sse());
    events.into_iter().fold(start, |answer, (name, data)| answer.named_event(name, data))
}

fn ok(body: &str) -> Answer {
    with_id(Answer::status(200)).json(body.to_owned())
}

fn with_id(answer: Answer) -> Answer {
    answer.header("request-id", REQUEST_ID)
}

/// The events that end a message's stream: the block's end, the stop reason, the message's end.
const END_EVENTS: usize = 3;
