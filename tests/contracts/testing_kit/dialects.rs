//! The ready answers are what the providers' own clients would parse.

use backstop::testing::{
    Answer, ScriptedBody, ScriptedService,
    script::{Usage, anthropic, gemini, openai},
};
use http::{Request, Response};
use http_body_util::BodyExt;
use serde_json::Value;
use tower_service::Service;

const AWKWARD: &str = "a \"quoted\" \\ line\nand\ttab \u{1} é";

async fn answered(answer: Answer) -> (Response<()>, String) {
    let mut service = ScriptedService::new([answer]);
    let (head, body) =
        service.call(Request::new(ScriptedBody::empty())).await.unwrap().into_parts();
    let body = body.collect().await.unwrap().to_bytes();
    (Response::from_parts(head, ()), String::from_utf8(body.to_vec()).unwrap())
}

async fn json(answer: Answer) -> (u16, Value) {
    let (head, body) = answered(answer).await;
    assert_eq!(head.headers()["content-type"], "application/json");
    (head.status().as_u16(), serde_json::from_str(&body).expect(&body))
}

/// The names and documents of a stream's events; `[DONE]` as a string.
async fn events(answer: Answer) -> Vec<(String, Value)> {
    let (head, body) = answered(answer).await;
    assert_eq!(
        (head.status().as_u16(), &head.headers()["content-type"]),
        (200, &"text/event-stream".parse().unwrap())
    );
    let body = body.replace("\r\n", "\n");
    let parse = |event: &str| {
        let field = |name: &str| {
            let lines = event.lines().filter_map(|line| line.strip_prefix(name));
            lines.collect::<Vec<_>>().join("\n")
        };
        let data = field("data: ");
        let value = if data == "[DONE]" {
            Value::from(data)
        } else {
            serde_json::from_str(&data).expect(&data)
        };
        (field("event: "), value)
    };
    body.strip_suffix("\n\n").unwrap().split("\n\n").map(parse).collect()
}

fn names(events: &[(String, Value)]) -> Vec<&str> {
    events.iter().map(|(name, _)| name.as_str()).collect()
}

#[tokio::test]
async fn openai_answers() {
    let (status, body) = json(openai::chat_with_usage("m \"1\"", AWKWARD, Usage::new(3, 2))).await;
    assert_eq!(
        (status, body["model"].as_str(), body["choices"][0]["message"]["content"].as_str()),
        (200, Some("m \"1\""), Some(AWKWARD))
    );
    assert_eq!(
        (body["usage"]["prompt_tokens"].as_u64(), body["usage"]["total_tokens"].as_u64()),
        (Some(3), Some(5))
    );
    let (_, body) = json(openai::refusal("m", "no")).await;
    assert_eq!(body["choices"][0]["message"]["refusal"], "no");
    let (_, body) = json(openai::content_filter("m")).await;
    assert_eq!(body["choices"][0]["finish_reason"], "content_filter");
    let (status, body) = json(openai::error(429, "insufficient_quota", "insufficient_quota")).await;
    assert_eq!((status, &body["error"]["code"]), (429, &Value::from("insufficient_quota")));
    let (_, body) = json(openai::error(500, "server_error", None)).await;
    assert_eq!(body["error"]["code"], Value::Null);
    let (_, body) = json(openai::embeddings("m")).await;
    assert_eq!(body["data"][0]["embedding"][1], -0.5);
    let (_, body) = json(openai::models(["a", "b"])).await;
    assert_eq!(body["data"][1]["id"], "b");
    let (_, body) = json(openai::responses("m", AWKWARD)).await;
    assert_eq!(
        (&body["status"], body["output"][0]["content"][0]["text"].as_str()),
        (&Value::from("completed"), Some(AWKWARD))
    );
    let (_, body) = json(openai::responses_failed("m", "server_error")).await;
    assert_eq!(
        (&body["status"], &body["error"]["code"]),
        (&Value::from("failed"), &Value::from("server_error"))
    );
}

#[tokio::test]
async fn openai_chat_streams() {
    let good = events(openai::chat_stream("m", ["a", AWKWARD])).await;
    assert_eq!(good.len(), 6);
    assert_eq!(good[0].1["choices"][0]["delta"]["role"], "assistant");
    assert_eq!(good[2].1["choices"][0]["delta"]["content"], AWKWARD);
    assert_eq!(good[3].1["choices"][0]["finish_reason"], "stop");
    assert_eq!(good[4].1["usage"]["completion_tokens"], 5);
    assert_eq!(good[5].1, "[DONE]");
    let tool = events(openai::tool_call_stream("m", "f", ["{\"co", "de\":1}"])).await;
    assert_eq!(
        tool[3].1["choices"][0]["delta"]["tool_calls"][0]["function"]["arguments"],
        "de\":1}"
    );
    let first = events(openai::error_first("server_error", None)).await;
    assert_eq!((first.len(), &first[0].1["error"]["type"]), (1, &Value::from("server_error")));
    let mid = events(openai::error_mid_stream("m", ["a", "b"], "server_error", "overloaded")).await;
    assert_eq!((mid.len(), &mid[3].1["error"]["code"]), (4, &Value::from("overloaded")));
}

#[tokio::test]
async fn openai_response_streams() {
    let good = events(openai::responses_stream("m", ["a", "b"])).await;
    assert_eq!(good.len(), 10);
    for (n, (name, data)) in good.iter().enumerate() {
        assert_eq!(
            (data["type"].as_str(), data["sequence_number"].as_u64()),
            (Some(name.as_str()), Some(n as u64))
        );
    }
    assert_eq!(good[6].1["text"], "ab");
    assert_eq!(good[9].1["response"]["output"][0]["content"][0]["text"], "ab");
    assert_eq!(good[9].1["response"]["usage"]["total_tokens"], 17);
    let first =
        events(openai::responses_error_first("m", "too_many_requests", "rate_limit_exceeded"))
            .await;
    assert_eq!(names(&first), ["error", "response.failed"]);
    let mid = events(openai::responses_failed_mid_stream("m", ["a"], "server_error")).await;
    assert_eq!(mid.last().unwrap().1["response"]["error"]["code"], "server_error");
    assert_eq!(mid.last().unwrap().1["sequence_number"], 5);
}

#[tokio::test]
async fn anthropic_answers() {
    let (_, body) = json(anthropic::message_with_usage("m", AWKWARD, Usage::new(3, 2))).await;
    assert_eq!(
        (body["content"][0]["text"].as_str(), body["usage"]["output_tokens"].as_u64()),
        (Some(AWKWARD), Some(2))
    );
    let (_, body) = json(anthropic::refusal("m")).await;
    assert_eq!(body["stop_reason"], "refusal");
    let (_, body) = json(anthropic::count_tokens(9)).await;
    assert_eq!(body["input_tokens"], 9);
    let (status, body) = json(anthropic::error(529, "overloaded_error")).await;
    assert_eq!((status, &body["error"]["type"]), (529, &Value::from("overloaded_error")));
    let (_, body) =
        json(anthropic::error_with_code(429, "rate_limit_error", "enforced_spend_limit_reached"))
            .await;
    assert_eq!(body["error"]["details"]["error_code"], "enforced_spend_limit_reached");
}

#[tokio::test]
async fn anthropic_streams() {
    let good = events(anthropic::message_stream("m", ["a", "b"])).await;
    let expected = [
        "message_start",
        "content_block_start",
        "ping",
        "content_block_delta",
        "content_block_delta",
        "content_block_stop",
        "message_delta",
        "message_stop",
    ];
    assert_eq!(names(&good), expected);
    assert!(good.iter().all(|(name, data)| data["type"] == **name));
    assert_eq!(
        (&good[0].1["message"]["model"], &good[4].1["delta"]["text"]),
        (&Value::from("m"), &Value::from("b"))
    );
    let tool = events(anthropic::tool_use_stream("m", "f", ["{\"co", "de\":1}"])).await;
    assert_eq!(tool[4].1["delta"]["partial_json"], "de\":1}");
    assert_eq!(names(&events(anthropic::error_first("overloaded_error")).await), ["error"]);
    let mid = events(anthropic::error_mid_stream("m", ["a"], "overloaded_error")).await;
    assert_eq!(names(&mid)[3..], ["content_block_delta", "error"]);
}

#[tokio::test]
async fn gemini_answers() {
    let (_, body) = json(gemini::content_with_usage("m", AWKWARD, Usage::new(3, 2))).await;
    assert_eq!(body["candidates"][0]["content"]["parts"][0]["text"], AWKWARD);
    assert_eq!(
        (&body["modelVersion"], &body["usageMetadata"]["totalTokenCount"]),
        (&Value::from("m"), &Value::from(5))
    );
    let (_, body) = json(gemini::blocked("m", "SAFETY")).await;
    assert_eq!(body["promptFeedback"]["blockReason"], "SAFETY");
    let (status, body) = json(gemini::error(503, "UNAVAILABLE")).await;
    assert_eq!(
        (status, &body["error"]["code"], &body["error"]["status"]),
        (503, &Value::from(503), &Value::from("UNAVAILABLE"))
    );
    let (_, body) = json(gemini::error_array(503, "UNAVAILABLE")).await;
    assert_eq!(body[0]["error"]["code"], 503);
    let (_, body) = json(gemini::quota("RequestsPerDay", Some("17s"))).await;
    assert_eq!(body["error"]["details"][0]["violations"][0]["quotaId"], "RequestsPerDay");
    assert_eq!(body["error"]["details"][1]["retryDelay"], "17s");
}

#[tokio::test]
async fn gemini_streams() {
    let good = events(gemini::stream_sse("m", ["a", "b"])).await;
    assert_eq!(
        (&good[0].1["candidates"][0]["finishReason"], &good[1].1["candidates"][0]["finishReason"]),
        (&Value::Null, &Value::from("STOP"))
    );
    let (_, array) = json(gemini::stream_array("m", ["a", "b", "c"])).await;
    assert_eq!(array.as_array().unwrap().len(), 3);
    let (_, cut) = answered(gemini::stream_array("m", ["a", "b"]).cut_after_events(2)).await;
    assert!(serde_json::from_str::<Value>(&cut).is_err());
    let (_, array) = json(gemini::error_mid_array("m", ["a"], 500, "INTERNAL")).await;
    assert_eq!(array[1]["error"]["status"], "INTERNAL");
    let mid = events(gemini::error_mid_stream("m", ["a"], 503, "UNAVAILABLE")).await;
    assert_eq!(mid[1].1["error"]["code"], 503);
    assert_eq!(events(gemini::error_first(503, "UNAVAILABLE")).await.len(), 1);
}
