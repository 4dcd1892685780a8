//! The streams of every dialect, event by event, and the ways in which they break.

use backstop::testing::script::{Usage, anthropic, gemini, openai};
use backstop::testing::{Outcome, ScriptedBody, ScriptedService, Step};
use backstop::{CallOptions, ClassifyLayer, Error, Hold, Verdict};
use bytes::Bytes;
use std::io::ErrorKind;
use std::time::Duration;
use tokio::time::Instant;
use tower::{ServiceBuilder, ServiceExt};

use crate::support::{bounded, exact_backoff, frames, post, read};

/// A dialect's stream, and where in it things happen.
#[derive(Debug)]
pub(super) struct Wire {
    pub(super) name: &'static str,
    pub(super) path: &'static str,
    content_type: &'static str,
    events: fn(&str) -> Vec<String>,
    /// The events up to and including the first that carries content.
    pub(super) until_content: usize,
    /// The last events without which a clean end is still a good one.
    pub(super) dispensable: usize,
    /// Whether the last event is an end of the stream's own, after which nothing matters.
    pub(super) has_end: bool,
    error: fn(usize) -> String,
    pub(super) error_status: u16,
}

/// How a stream breaks after some of its events.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Way {
    /// The bytes end cleanly.
    Eof,
    /// The connection breaks.
    Broken,
    /// The dialect's error event comes, and then a clean end.
    ErrorEvent,
    /// Nothing comes any more.
    Silence,
}

pub(super) const WAYS: [Way; 4] = [Way::Eof, Way::Broken, Way::ErrorEvent, Way::Silence];
pub(super) const HOLDS: [Hold; 3] = [Hold::Headers, Hold::FirstContent, Hold::Complete];
/// The default of `timeouts.idle`.
pub(super) const IDLE: Duration = Duration::from_secs(300);

pub(super) const WIRES: [Wire; 5] = [
    Wire {
        name: "openai chat",
        path: "/v1/chat/completions",
        content_type: "text/event-stream",
        events: |mark| unnamed(openai::chat_events(mark, deltas(mark), Usage::default()), "\n\n"),
        until_content: 2,
        // The usage and `[DONE]`: an SDK ends quietly once every choice has its finish reason.
        dispensable: 2,
        has_end: true,
        error: |_| unnamed([openai::error_body("server_error", None)], "\n\n").concat(),
        error_status: 500,
    },
    Wire {
        name: "openai responses",
        path: "/v1/responses",
        content_type: "text/event-stream",
        events: |mark| named(openai::responses_events(mark, deltas(mark))),
        until_content: 5,
        dispensable: 0,
        has_end: true,
        error: |_| {
            let error = r#"{"type":"error","sequence_number":9,"error":{"type":"server_error","code":"server_error","message":"m"}}"#;
            named([("error", error.to_owned())]).concat()
        },
        error_status: 500,
    },
    Wire {
        name: "anthropic",
        path: "/v1/messages",
        content_type: "text/event-stream",
        events: |mark| named(anthropic::message_events(mark, deltas(mark))),
        until_content: 4,
        dispensable: 0,
        has_end: true,
        error: |_| named([("error", anthropic::error_body("overloaded_error"))]).concat(),
        error_status: 529,
    },
    Wire {
        name: "gemini sse",
        path: "/v1beta/models/m:streamGenerateContent?alt=sse",
        content_type: "text/event-stream",
        events: |mark| unnamed(gemini::events(mark, deltas(mark)), "\r\n\r\n"),
        until_content: 1,
        dispensable: 0,
        has_end: false,
        error: |_| unnamed([gemini::error_body(503, "UNAVAILABLE")], "\r\n\r\n").concat(),
        error_status: 503,
    },
    Wire {
        name: "gemini array",
        path: "/v1beta/models/m:streamGenerateContent",
        content_type: "application/json",
        events: |mark| {
            let mut events = gemini::events(mark, deltas(mark));
            for (n, event) in events.iter_mut().enumerate() {
                event.insert_str(0, if n == 0 { "[" } else { ",\r\n" });
            }
            events.push("]".to_owned());
            events
        },
        until_content: 1,
        dispensable: 0,
        has_end: true,
        error: |before| {
            let start = if before == 0 { "[" } else { ",\r\n" };
            format!("{start}{}]", gemini::error_body(503, "UNAVAILABLE"))
        },
        error_status: 503,
    },
];

impl Wire {
    /// The events of a good stream, in which `mark` stands everywhere, and letters of every length.
    pub(super) fn events(&self, mark: &str) -> Vec<String> {
        (self.events)(mark)
    }

    pub(super) fn good(&self, mark: &str) -> String {
        self.events(mark).concat()
    }

    /// The first `kept` events, and the way in which it goes on: what a provider sends.
    pub(super) fn sent(&self, mark: &str, kept: usize, way: Way) -> Vec<String> {
        let mut events = self.events(mark);
        events.truncate(kept);
        if way == Way::ErrorEvent {
            events.push((self.error)(kept));
        }
        events
    }

    /// Whether a stream that breaks so has failed.
    pub(super) fn fails(&self, kept: usize, way: Way) -> bool {
        let all = self.events("").len();
        let over = self.has_end && kept == all;
        !over && (way != Way::Eof || kept < all - self.dispensable)
    }

    pub(super) fn answer(&self, body: ScriptedBody) -> Outcome {
        Outcome::status(200)
            .header("content-type", self.content_type)
            .header("x-request-id", "r1")
            .body(body)
    }

    /// A good answer of unknown length, one frame for each event.
    pub(super) fn good_answer(&self, mark: &str) -> Outcome {
        self.answer(ScriptedBody::new(frames(self.events(mark))).unknown_size())
    }

    /// An answer that breaks, its bytes in these pieces.
    pub(super) fn broken_answer<D: Into<Bytes>>(
        &self,
        pieces: impl IntoIterator<Item = D>,
        way: Way,
    ) -> Outcome {
        let mut steps = frames(pieces);
        steps.extend(way.step());
        self.answer(ScriptedBody::new(steps).unknown_size())
    }
}

impl Way {
    /// What ends the body.
    pub(super) fn step(self) -> Option<Step> {
        match self {
            Self::Eof | Self::ErrorEvent => None,
            Self::Broken => Some(Step::io_error(ErrorKind::ConnectionReset)),
            Self::Silence => Some(Step::forever()),
        }
    }
}

/// What a caller got.
#[derive(Debug)]
pub(super) struct Got {
    pub(super) attempts: usize,
    pub(super) status: u16,
    pub(super) verdict: Option<Verdict>,
    pub(super) text: String,
    pub(super) end: Result<(), Error>,
    pub(super) elapsed: Duration,
}

/// Backoff over Classify, with these answers of the provider.
pub(super) async fn call(
    wire: &Wire,
    hold: Hold,
    script: impl IntoIterator<Item = Outcome>,
) -> Got {
    let provider = ScriptedService::new(script.into_iter().collect::<Vec<_>>());
    let stack = ServiceBuilder::new()
        .layer(exact_backoff().build().unwrap())
        .layer(ClassifyLayer::new())
        .service(provider.clone());
    let start = Instant::now();
    let mut request = post(wire.path);
    request.extensions_mut().insert(CallOptions::new().hold(hold));
    let response = bounded(stack.oneshot(request)).await.unwrap();
    let (status, verdict) = (response.status().as_u16(), Verdict::of(&response).cloned());
    let body = bounded(read(response.into_body())).await;
    Got {
        attempts: provider.calls(),
        status,
        verdict,
        text: body.text(),
        end: body.end,
        elapsed: start.elapsed(),
    }
}

fn deltas(mark: &str) -> [&str; 3] {
    [mark, "grüße 日本", "🙂 tail"]
}

fn unnamed(events: impl IntoIterator<Item = String>, end: &str) -> Vec<String> {
    events.into_iter().map(|data| format!("data: {data}{end}")).collect()
}

fn named(events: impl IntoIterator<Item = (&'static str, String)>) -> Vec<String> {
    events.into_iter().map(|(name, data)| format!("event: {name}\ndata: {data}\n\n")).collect()
}
