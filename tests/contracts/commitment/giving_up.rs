//! What the caller gets as the last word of a call that failed.

use backstop::testing::script::openai;
use backstop::testing::{Outcome, Script, ScriptedBody, ScriptedService, Step};
use backstop::{ClassifyLayer, Error, Hold};
use http::HeaderMap;
use tower::{ServiceBuilder, ServiceExt};

use super::packed::gzip;
use super::wires::{WIRES, Way};
use crate::support::{CHAT, Read, error_of, exact_backoff, frames, post, read, sse};

struct LastWord {
    attempts: usize,
    status: u16,
    headers: HeaderMap,
    body: Read<Error>,
}

/// One retry, and the same answer to both attempts.
async fn give_up(path: &str, hold: Hold, answer: Outcome) -> LastWord {
    let provider = ScriptedService::new(Script::new([answer]).repeat_last());
    let stack = ServiceBuilder::new()
        .layer(exact_backoff().max_retries(1).build().unwrap())
        .layer(ClassifyLayer::builder().hold(hold).build().unwrap())
        .service(provider.clone());
    let response = stack.oneshot(post(path)).await.unwrap();
    let (head, body) = response.into_parts();
    LastWord {
        attempts: provider.calls(),
        status: head.status.as_u16(),
        headers: head.headers,
        body: read(body).await,
    }
}

impl LastWord {
    /// It is an error document of the length that it says, and no more packed than it says.
    fn assert_is_error_document(&self, case: &str) {
        assert!(self.body.end.is_ok(), "{case}: {:?}", self.body);
        let length = self.body.bytes.len().to_string();
        assert_eq!(self.headers["content-length"], length.as_str(), "{case}");
        assert_eq!(self.headers["content-type"], "application/json", "{case}");
        for gone in ["content-encoding", "transfer-encoding", "trailer"] {
            assert!(!self.headers.contains_key(gone), "{case}: {:?}", self.headers);
        }
    }
}

#[tokio::test(start_paused = true)]
async fn an_error_event_under_a_200_becomes_an_error_document_with_its_own_status() {
    for wire in &WIRES {
        for (hold, kept) in [(Hold::FirstContent, 0), (Hold::Complete, 0), (Hold::Complete, 3)] {
            let sent = wire.sent("first", kept, Way::ErrorEvent);
            let got =
                give_up(wire.path, hold, wire.broken_answer(sent.clone(), Way::ErrorEvent)).await;
            let case = format!("{} {hold:?} {kept}", wire.name);
            assert_eq!((got.attempts, got.status), (2, wire.error_status), "{case}");
            got.assert_is_error_document(&case);
            // The provider's own object, and nothing of the answer before it.
            let error: serde_json::Value = serde_json::from_slice(&got.body.bytes).unwrap();
            let object = error["error"].to_string();
            let event: String = sent.concat().split_whitespace().collect();
            let words = ["server_error", "overloaded_error", "UNAVAILABLE"];
            assert!(
                words.iter().any(|word| object.contains(word) && event.contains(word)),
                "{case}"
            );
            assert!(!got.body.text().contains("first"), "{case}: {}", got.body.text());
            assert_eq!(error["type"] == "error", wire.name == "anthropic", "{case}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_packed_error_under_a_200_is_shown_unpacked() {
    let error = openai::error_body("server_error", "rate_limit_exceeded");
    let document = Outcome::status(200)
        .json(gzip(&error))
        .header("content-encoding", "gzip")
        .header("x-request-id", "r1");
    let got = give_up(CHAT, Hold::FirstContent, document).await;
    assert_eq!((got.attempts, got.status), (2, 429));
    got.assert_is_error_document("document");
    assert_eq!(got.body.text(), error);
    assert_eq!(got.headers["x-request-id"], "r1", "what is not of the bytes stays");

    let stream = sse(gzip(format!("data: {error}\n\n")).into()).header("content-encoding", "gzip");
    let got = give_up(CHAT, Hold::FirstContent, stream).await;
    assert_eq!((got.attempts, got.status, got.body.text()), (2, 429, error));
    got.assert_is_error_document("stream");
}

#[tokio::test(start_paused = true)]
async fn what_holds_no_error_object_becomes_a_502_that_names_what_came() {
    let html = || {
        Outcome::status(200)
            .header("content-type", "text/html")
            .body("<!DOCTYPE html><html><body>Welcome</body></html>")
    };
    let json = |text: &'static str| Outcome::status(200).json(text);
    for wire in &WIRES {
        let path = wire.path;
        let document_path = path.replace("streamGenerateContent", "generateContent");
        let cut = || wire.broken_answer(wire.sent("first", 2, Way::Eof), Way::Eof);
        let broken = || wire.broken_answer(wire.sent("first", 2, Way::Broken), Way::Broken);
        for (path, answer, code, words) in [
            (&*document_path, html(), "html_page", "an HTML page"),
            (&document_path, json(""), "empty_body", "an empty body"),
            (&document_path, json("  \n"), "empty_body", "an empty body"),
            (&document_path, json("{\"id\":\"x"), "cut_json", "ends in its middle"),
            (&document_path, json("hello"), "not_json", "not JSON"),
            (&document_path, json("{}"), "no_answer", "an answer that has no"),
            (path, cut(), "truncated_stream", "ended before its end marker"),
            (path, broken(), "connection_broken", "broke off"),
        ] {
            let got = give_up(path, Hold::Complete, answer).await;
            let case = format!("{} {code}", wire.name);
            assert_eq!((got.attempts, got.status), (2, 502), "{case}: {}", got.body.text());
            got.assert_is_error_document(&case);
            let (told, message) = error_of(&got.body.bytes);
            assert_eq!(told, code, "{case}");
            assert!(message.contains(words), "{case}: {message}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn silence_under_a_200_becomes_a_504_that_names_the_timeout() {
    for wire in &WIRES {
        let silent = wire.broken_answer(wire.sent("first", 1, Way::Silence), Way::Silence);
        let got = give_up(wire.path, Hold::Complete, silent).await;
        assert_eq!((got.attempts, got.status), (2, 504), "{}", wire.name);
        got.assert_is_error_document(wire.name);
        let (code, message) = error_of(&got.body.bytes);
        assert_eq!(code, "timeout", "{}", wire.name);
        assert!(message.contains("timeouts.idle"), "{}: {message}", wire.name);
    }
}

#[tokio::test(start_paused = true)]
async fn an_answer_whose_status_tells_of_the_failure_is_handed_on_byte_for_byte() {
    let page = "<html>bad gateway</html>";
    let object = openai::error_body("any", "any");
    for wire in &WIRES {
        for code in
            [400, 401, 402, 403, 404, 409, 413, 418, 422, 429, 500, 501, 502, 503, 504, 529, 599]
        {
            for (kind, bytes) in [
                ("application/json", object.clone().into_bytes()),
                ("application/json", Vec::new()),
                ("application/json", object.as_bytes()[..20].to_vec()),
                ("text/html", page.as_bytes().to_vec()),
                ("text/event-stream", format!("data: {object}\n\n").into_bytes()),
                ("gzip", gzip(&object)),
                ("gzip", object.clone().into_bytes()),
            ] {
                let mut answer = Outcome::status(code)
                    .header("retry-after", "1")
                    .header("set-cookie", "a=1")
                    .header("set-cookie", "b=2")
                    .header("x-Odd", " as it came ")
                    .body(ScriptedBody::new(frames(bytes.chunks(7).map(<[u8]>::to_vec))));
                answer = match kind {
                    "gzip" => answer.header("content-encoding", "gzip"),
                    kind => answer.header("content-type", kind),
                };
                let plain = ScriptedService::new([answer.clone()]);
                let sent = plain.oneshot(post("/")).await.unwrap().headers().clone();
                let got = give_up(wire.path, Hold::FirstContent, answer).await;
                let case = format!("{} {code} {kind}", wire.name);
                assert_eq!((got.status, &got.headers), (code, &sent), "{case}");
                assert_eq!(got.body.bytes, bytes, "{case}");
                assert!(got.body.end.is_ok(), "{case}");
            }
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_failed_answer_that_breaks_off_keeps_what_came_of_it_and_ends_abnormally() {
    let body = ScriptedBody::new([Step::data("{\"error\":"), Step::error("reset")]).unknown_size();
    let got = give_up(CHAT, Hold::FirstContent, Outcome::status(500).json(body)).await;
    assert_eq!((got.attempts, got.status, got.body.text()), (2, 500, "{\"error\":".to_owned()));
    assert!(got.body.end.unwrap_err().to_string().contains("reset"));
}

#[tokio::test(start_paused = true)]
async fn a_whole_answer_whose_own_finish_reason_tells_of_the_failure_is_handed_on_as_it_came() {
    let answer = openai::content_filter("m");
    let sent = super::documents::bytes_of(answer.clone()).await;
    let got = give_up(CHAT, Hold::FirstContent, answer.into()).await;
    assert_eq!((got.attempts, got.status), (1, 200), "a refusal is not retried");
    assert_eq!(got.body.bytes, sent);
    assert!(got.body.end.is_ok());
}
