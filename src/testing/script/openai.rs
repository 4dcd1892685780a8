//! Ready answers in OpenAI's dialect: chat completions, Responses, embeddings. Also what most others speak.

use super::{CREATED, MESSAGE, REQUEST_ID, Usage, quote, quote_or_null};
use crate::testing::Answer;

/// A chat completion: 200, one choice, `finish_reason: stop`.
pub fn chat(model: &str, text: &str) -> Answer {
    chat_with_usage(model, text, Usage::default())
}

/// A chat completion with this usage.
pub fn chat_with_usage(model: &str, text: &str, usage: Usage) -> Answer {
    let message = format!(r#"{{"role":"assistant","content":{},"refusal":null}}"#, quote(text));
    completion(model, &message, "stop", usage)
}

/// A chat completion in which the model itself declines: a good answer with `message.refusal`.
pub fn refusal(model: &str, text: &str) -> Answer {
    let message = format!(r#"{{"role":"assistant","content":null,"refusal":{}}}"#, quote(text));
    completion(model, &message, "stop", Usage::default())
}

/// A chat completion that a filter stopped: `finish_reason: content_filter`.
pub fn content_filter(model: &str) -> Answer {
    let message = r#"{"role":"assistant","content":"","refusal":null}"#;
    completion(model, message, "content_filter", Usage::default())
}

/// A chat completion as a stream. Its events are [`chat_events`].
pub fn chat_stream<'a>(model: &str, deltas: impl IntoIterator<Item = &'a str>) -> Answer {
    stream(chat_events(model, deltas, Usage::default()))
}

/// The data of a chat stream's events: the role, one for each delta, the finish, the usage, `[DONE]`; four more than
/// there are deltas.
#[must_use]
pub fn chat_events<'a>(
    model: &str,
    deltas: impl IntoIterator<Item = &'a str>,
    usage: Usage,
) -> Vec<String> {
    let content = |text: &str| format!(r#"{{"content":{}}}"#, quote(text));
    let mut events = vec![chunk(model, r#"{"role":"assistant","content":""}"#, None)];
    events.extend(deltas.into_iter().map(|text| chunk(model, &content(text), None)));
    events.extend(chat_end(model, "stop", usage));
    events
}

/// A stream in which one tool is called, its arguments in these fragments. Events: the role, the tool's name, one for
/// each fragment, the finish, the usage, `[DONE]`.
pub fn tool_call_stream<'a>(
    model: &str,
    tool: &str,
    fragments: impl IntoIterator<Item = &'a str>,
) -> Answer {
    let call = format!(
        r#"{{"tool_calls":[{{"index":0,"id":"call_scripted","type":"function","function":{{"name":{},"arguments":""}}}}]}}"#,
        quote(tool),
    );
    let arguments = |text: &str| {
        format!(r#"{{"tool_calls":[{{"index":0,"function":{{"arguments":{}}}}}]}}"#, quote(text))
    };
    let mut events = vec![
        chunk(model, r#"{"role":"assistant","content":null}"#, None),
        chunk(model, &call, None),
    ];
    events.extend(fragments.into_iter().map(|text| chunk(model, &arguments(text), None)));
    events.extend(chat_end(model, "tool_calls", Usage::default()));
    stream(events)
}

/// A chat stream whose first event is an error; under a 200, and without `[DONE]`.
pub fn error_first<'c>(kind: &str, code: impl Into<Option<&'c str>>) -> Answer {
    stream([error_body(kind, code)])
}

/// A chat stream that fails after its deltas: the role, the deltas, the error; no finish and no `[DONE]`.
pub fn error_mid_stream<'a, 'c>(
    model: &str,
    deltas: impl IntoIterator<Item = &'a str>,
    kind: &str,
    code: impl Into<Option<&'c str>>,
) -> Answer {
    let mut events = chat_events(model, deltas, Usage::default());
    events.truncate(events.len() - END_EVENTS);
    events.push(error_body(kind, code));
    stream(events)
}

/// An error: this status, and an error object with this `type` and `code` (`None` for null).
pub fn error<'c>(status: u16, kind: &str, code: impl Into<Option<&'c str>>) -> Answer {
    with_id(Answer::status(status)).json(error_body(kind, code))
}

/// The body of [`error`], and the data of an error event.
#[must_use]
pub fn error_body<'c>(kind: &str, code: impl Into<Option<&'c str>>) -> String {
    format!(
        r#"{{"error":{{"message":"{MESSAGE}","type":{},"param":null,"code":{}}}}}"#,
        quote(kind),
        quote_or_null(code.into()),
    )
}

/// A response of the Responses API: 200, `status: completed`.
pub fn responses(model: &str, text: &str) -> Answer {
    let body =
        response(model, "completed", "null", &format!("[{}]", item("completed", &part(text))));
    with_id(Answer::status(200)).json(body)
}

/// A response of the Responses API that failed under a 200: `status: failed` with this `error.code`.
pub fn responses_failed(model: &str, code: &str) -> Answer {
    with_id(Answer::status(200)).json(failed(model, code))
}

/// A response as a stream. Its events are [`responses_events`].
pub fn responses_stream<'a>(model: &str, deltas: impl IntoIterator<Item = &'a str>) -> Answer {
    named_stream(responses_events(model, deltas))
}

/// A response's stream that ends in `response.failed` after its deltas, with this `error.code`.
pub fn responses_failed_mid_stream<'a>(
    model: &str,
    deltas: impl IntoIterator<Item = &'a str>,
    code: &str,
) -> Answer {
    let mut events = responses_events(model, deltas);
    events.truncate(events.len() - RESPONSES_END_EVENTS);
    let failed = failed(model, code);
    events.push(numbered("response.failed", events.len(), &format!(r#""response":{failed}"#)));
    named_stream(events)
}

/// A response's stream whose first event is an error, in the nested form that the service sends, and then
/// `response.failed`.
pub fn responses_error_first(model: &str, kind: &str, code: &str) -> Answer {
    let error = format!(
        r#""error":{{"type":{},"code":{},"message":"{MESSAGE}","param":null}}"#,
        quote(kind),
        quote(code),
    );
    let failed = format!(r#""response":{}"#, failed(model, code));
    named_stream([numbered("error", 0, &error), numbered("response.failed", 1, &failed)])
}

/// The names and data of a response stream's events: created, in progress, the item and its part opened, one for each
/// delta, text, part and item closed, completed.
#[must_use]
pub fn responses_events<'a>(
    model: &str,
    deltas: impl IntoIterator<Item = &'a str>,
) -> Vec<(&'static str, String)> {
    let begun = format!(r#""response":{}"#, response(model, "in_progress", "null", "[]"));
    let at = r#""item_id":"msg_scripted","output_index":0,"content_index":0"#;
    let mut events = Vec::new();
    let mut push = |name: &'static str, fields: &str| {
        let event = numbered(name, events.len(), fields);
        events.push(event);
    };
    push("response.created", &begun);
    push("response.in_progress", &begun);
    let opened = r#"{"id":"msg_scripted","type":"message","status":"in_progress","role":"assistant","content":[]}"#;
    push("response.output_item.added", &format!(r#""output_index":0,"item":{opened}"#));
    push("response.content_part.added", &format!(r#"{at},"part":{}"#, part("")));
    let mut text = String::new();
    for delta in deltas {
        text.push_str(delta);
        push("response.output_text.delta", &format!(r#"{at},"delta":{}"#, quote(delta)));
    }
    let (part, text) = (part(&text), quote(&text));
    let item = item("completed", &part);
    push("response.output_text.done", &format!(r#"{at},"text":{text}"#));
    push("response.content_part.done", &format!(r#"{at},"part":{part}"#));
    push("response.output_item.done", &format!(r#""output_index":0,"item":{item}"#));
    let done = response(model, "completed", "null", &format!("[{item}]"));
    push("response.completed", &format!(r#""response":{done}"#));
    events
}

/// An embedding of two numbers.
pub fn embeddings(model: &str) -> Answer {
    let input = Usage::default().input;
    with_id(Answer::status(200)).json(format!(
        r#"{{"object":"list","data":[{{"object":"embedding","index":0,"embedding":[0.25,-0.5]}}],"model":{},"usage":{{"prompt_tokens":{input},"total_tokens":{input}}}}}"#,
        quote(model),
    ))
}

/// The list of these models.
pub fn models<'a>(models: impl IntoIterator<Item = &'a str>) -> Answer {
    let entry = |model: &str| {
        format!(
            r#"{{"id":{},"object":"model","created":{CREATED},"owned_by":"scripted"}}"#,
            quote(model)
        )
    };
    let list = models.into_iter().map(entry).collect::<Vec<_>>().join(",");
    with_id(Answer::status(200)).json(format!(r#"{{"object":"list","data":[{list}]}}"#))
}

fn completion(model: &str, message: &str, finish: &str, usage: Usage) -> Answer {
    with_id(Answer::status(200)).json(format!(
        r#"{{"id":"chatcmpl-scripted","object":"chat.completion","created":{CREATED},"model":{},"choices":[{{"index":0,"message":{message},"logprobs":null,"finish_reason":"{finish}"}}],"usage":{}}}"#,
        quote(model),
        chat_usage(usage),
    ))
}

fn chunk(model: &str, delta: &str, finish: Option<&str>) -> String {
    let choice = format!(
        r#"{{"index":0,"delta":{delta},"logprobs":null,"finish_reason":{}}}"#,
        quote_or_null(finish),
    );
    chunk_of(model, &choice, "null")
}

fn chunk_of(model: &str, choices: &str, usage: &str) -> String {
    format!(
        r#"{{"id":"chatcmpl-scripted","object":"chat.completion.chunk","created":{CREATED},"model":{},"choices":[{choices}],"usage":{usage}}}"#,
        quote(model),
    )
}

fn chat_end(model: &str, finish: &str, usage: Usage) -> [String; END_EVENTS] {
    [chunk(model, "{}", Some(finish)), chunk_of(model, "", &chat_usage(usage)), "[DONE]".to_owned()]
}

fn chat_usage(usage: Usage) -> String {
    format!(
        r#"{{"prompt_tokens":{},"completion_tokens":{},"total_tokens":{}}}"#,
        usage.input,
        usage.output,
        usage.total(),
    )
}

fn response(model: &str, status: &str, error: &str, output: &str) -> String {
    let usage = Usage::default();
    let usage = match status {
        "completed" => format!(
            r#"{{"input_tokens":{},"output_tokens":{},"total_tokens":{}}}"#,
            usage.input,
            usage.output,
            usage.total(),
        ),
        _ => "null".to_owned(),
    };
    format!(
        r#"{{"id":"resp_scripted","object":"response","created_at":{CREATED},"status":"{status}","error":{error},"incomplete_details":null,"model":{},"output":{output},"usage":{usage}}}"#,
        quote(model),
    )
}

fn failed(model: &str, code: &str) -> String {
    let error = format!(r#"{{"code":{},"message":"{MESSAGE}"}}"#, quote(code));
    response(model, "failed", &error, "[]")
}

fn item(status: &str, part: &str) -> String {
    format!(
        r#"{{"id":"msg_scripted","type":"message","status":"{status}","role":"assistant","content":[{part}]}}"#
    )
}

fn part(text: &str) -> String {
    format!(r#"{{"type":"output_text","text":{},"annotations":[]}}"#, quote(text))
}

fn numbered(name: &'static str, number: usize, fields: &str) -> (&'static str, String) {
    (name, format!(r#"{{"type":"{name}","sequence_number":{number},{fields}}}"#))
}

fn stream(events: impl IntoIterator<Item = String>) -> Answer {
    events.into_iter().fold(with_id(Answer::sse()), Answer::event)
}

fn named_stream(events: impl IntoIterator<Item = (&'static str, String)>) -> Answer {
    let start = with_id(Answer::sse());
    events.into_iter().fold(start, |answer, (name, data)| answer.named_event(name, data))
}

fn with_id(answer: Answer) -> Answer {
    answer.header("x-request-id", REQUEST_ID)
}

/// The events that end a chat stream: finish, usage, `[DONE]`.
const END_EVENTS: usize = 3;

/// The events that end a response's stream: text, part and item closed, completed.
const RESPONSES_END_EVENTS: usize = 4;
