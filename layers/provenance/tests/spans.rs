//! What a subscriber sees: one span for each call, whatever the retries; those of attempts if it asks.
#![expect(
    clippy::unwrap_used,
    reason = "clippy's allowance for tests does not reach the helpers of an integration test"
)]

use std::collections::BTreeMap;
use std::fmt::Debug;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use backstop_backoff::BackoffLayer;
use backstop_classify::ClassifyLayer;
use backstop_core::{CallOptions, Jitter, Schedule};
use backstop_provenance::{AttemptLayer, OnFailure, ProvenanceLayer};
use tokio::sync::watch;
use tower::{ServiceBuilder, ServiceExt};
use tracing::field::{Field, Visit};
use tracing::subscriber::Interest;
use tracing::{Event, Level, Metadata, Subscriber, span};

use support::Piece::{Data, Hang};
use support::messages::{BEGIN, DELTA, EVENT, STOP};
use support::*;

#[path = "support/mod.rs"]
mod support;

type Fields = BTreeMap<&'static str, String>;

/// Takes down spans and events of the targets that it asks for.
#[derive(Clone)]
struct Listener {
    targets: &'static [&'static str],
    next: Arc<AtomicU64>,
    seen: Arc<watch::Sender<Seen>>,
}

#[derive(Clone, Debug, Default)]
struct Seen {
    /// Name and fields, in the order of their beginning.
    spans: Vec<(&'static str, Fields)>,
    /// How often each was entered.
    entered: Vec<u32>,
    closed: Vec<u64>,
    /// The span and the fields of each event at `info` and above.
    events: Vec<(Option<u64>, Level, Fields)>,
}

impl Listener {
    fn new(targets: &'static [&'static str]) -> Self {
        Self { targets, next: Arc::default(), seen: Arc::new(watch::Sender::default()) }
    }

    fn seen(&self) -> Seen {
        self.seen.borrow().clone()
    }
}

struct Reader<'a>(&'a mut Fields);

impl Visit for Reader<'_> {
    fn record_str(&mut self, field: &Field, value: &str) {
        self.0.insert(field.name(), value.to_owned());
    }

    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        self.0.insert(field.name(), format!("{value:?}"));
    }
}

impl Subscriber for Listener {
    fn register_callsite(&self, _: &'static Metadata<'static>) -> Interest {
        Interest::sometimes()
    }

    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        self.targets.contains(&metadata.target())
    }

    fn new_span(&self, attributes: &span::Attributes<'_>) -> span::Id {
        let mut fields = Fields::new();
        attributes.record(&mut Reader(&mut fields));
        let name = attributes.metadata().name();
        self.seen.send_modify(|seen| {
            seen.spans.push((name, fields));
            seen.entered.push(0);
        });
        span::Id::from_u64(self.next.fetch_add(1, Ordering::Relaxed) + 1)
    }

    fn record(&self, id: &span::Id, values: &span::Record<'_>) {
        let at = id.into_u64() as usize - 1;
        self.seen.send_modify(|seen| values.record(&mut Reader(&mut seen.spans[at].1)));
    }

    fn record_follows_from(&self, _: &span::Id, _: &span::Id) {}

    fn event(&self, event: &Event<'_>) {
        let mut fields = Fields::new();
        event.record(&mut Reader(&mut fields));
        let parent = event.parent().map(span::Id::into_u64);
        let level = *event.metadata().level();
        if level <= Level::INFO {
            self.seen.send_modify(|seen| seen.events.push((parent, level, fields)));
        }
    }

    fn enter(&self, id: &span::Id) {
        let at = id.into_u64() as usize - 1;
        self.seen.send_modify(|seen| seen.entered[at] += 1);
    }

    fn exit(&self, _: &span::Id) {}

    fn try_close(&self, id: span::Id) -> bool {
        self.seen.send_modify(|seen| seen.closed.push(id.into_u64()));
        true
    }
}

/// Two failures and a good stream.
async fn call() {
    let schedule = Schedule::new(secs(1), secs(60)).with_jitter(Jitter::None);
    let script = [
        answer(529, [Data("{}")]),
        answer(529, [Data("{}")]),
        stream([Data(BEGIN), Data(EVENT), Data(DELTA), Data(STOP)]),
    ];
    let service = ServiceBuilder::new()
        .layer(ProvenanceLayer::new())
        .layer(BackoffLayer::builder().schedule(schedule).build().unwrap())
        .layer(AttemptLayer::new())
        .layer(ClassifyLayer::new())
        .service(Provider::new(script));
    let mut request = ask(MESSAGES);
    request.extensions_mut().insert(CallOptions::new().run("r").node("n"));
    let response = service.oneshot(request).await.unwrap();
    read(response.into_body(), 9).await;
}

#[tokio::test(start_paused = true)]
async fn one_call_is_one_span_and_one_event_whatever_the_retries() {
    let listener = Listener::new(&["backstop"]);
    let _guard = tracing::subscriber::set_default(listener.clone());
    call().await;
    let Seen { spans, entered, closed, events } = listener.seen();
    assert_eq!(spans.len(), 1, "{spans:#?}");
    let (name, fields) = &spans[0];
    assert_eq!(*name, "llm call");
    for (field, value) in [
        ("otel.kind", "client"),
        ("gen_ai.operation.name", "chat"),
        ("gen_ai.provider.name", "anthropic"),
        ("gen_ai.request.model", "alias-x"),
        ("gen_ai.response.model", "claude-x"),
        ("gen_ai.usage.input_tokens", "9"),
        ("gen_ai.usage.output_tokens", "4"),
        ("http.response.status_code", "200"),
        ("backstop.run", "r"),
        ("backstop.node", "n"),
        ("backstop.attempts", "3"),
        ("backstop.waited_ms", "3000"),
        ("backstop.fallback", "false"),
        ("backstop.outcome", "ok"),
    ] {
        assert_eq!(fields.get(field).map(String::as_str), Some(value), "{field}: {fields:#?}");
    }
    assert!(fields.contains_key("backstop.call.id") && !fields.contains_key("error.type"));
    assert!(entered[0] >= 5, "entered for the call and for each frame: {}", entered[0]);
    assert_eq!(closed, [1], "closed when the body is gone");
    assert_eq!(events.len(), 1, "{events:#?}");
    let (parent, level, fields) = &events[0];
    assert_eq!((*parent, *level), (Some(1), Level::INFO));
    assert_eq!(fields["outcome"], "ok");
    assert_eq!(fields["message"], "the call is over");
}

#[tokio::test(start_paused = true)]
async fn who_asks_for_attempts_sees_one_span_for_each_in_that_of_the_call() {
    let listener = Listener::new(&["backstop", "backstop::attempt"]);
    let _guard = tracing::subscriber::set_default(listener.clone());
    call().await;
    let spans = listener.seen().spans;
    let names: Vec<_> = spans.iter().map(|(name, _)| *name).collect();
    assert_eq!(names, ["llm call", "llm attempt", "llm attempt", "llm attempt"]);
    for (n, (_, fields)) in spans[1..].iter().enumerate() {
        assert_eq!(fields["http.request.resend_count"], n.to_string());
        assert_eq!(fields["backstop.attempt"], (n + 1).to_string());
        assert_eq!(fields["url.full"], MESSAGES);
        assert_eq!(fields["backstop.call.id"], spans[0].1["backstop.call.id"]);
        assert_eq!(fields["backstop.class"], if n == 2 { "success" } else { "overloaded" });
        assert_eq!(fields["http.response.status_code"], if n == 2 { "200" } else { "529" });
    }
    assert_eq!(spans[2].1["backstop.wait_ms"], "1000");
    assert_eq!(spans[2].1["error.type"], "overloaded");
    assert_eq!(spans[3].1["gen_ai.response.model"], "claude-x");
    assert_eq!(listener.seen().closed.len(), 4);
}

#[tokio::test(start_paused = true)]
async fn a_call_that_failed_or_was_left_says_so() {
    for (frames, level, outcome, error) in
        [(9, Level::WARN, "incomplete", "overloaded"), (0, Level::INFO, "cancelled", "cancelled")]
    {
        let listener = Listener::new(&["backstop"]);
        let _guard = tracing::subscriber::set_default(listener.clone());
        let response = if frames == 0 { answer(200, [Hang]) } else { answer(503, [Data("{}")]) };
        let service =
            ServiceBuilder::new().layer(ProvenanceLayer::new()).service(Provider::new([response]));
        read(service.oneshot(ask(CHAT)).await.unwrap().into_body(), frames).await;
        let Seen { spans, events, .. } = listener.seen();
        assert_eq!(spans[0].1["backstop.outcome"], outcome);
        assert_eq!(spans[0].1["error.type"], error);
        assert_eq!((events.len(), events[0].1), (1, level));
    }
}

#[tokio::test(start_paused = true)]
async fn an_outage_of_the_ledger_is_said_once_and_so_is_its_end() {
    for on_failure in [OnFailure::Continue, OnFailure::Refuse] {
        let listener = Listener::new(&["backstop"]);
        let _guard = tracing::subscriber::set_default(listener.clone());
        let book =
            Book::scripted([Start::Fail, Start::Fail, Start::Keep, Start::Keep, Start::Fail]);
        let layer = ProvenanceLayer::builder().ledger(book).on_failure(on_failure).build().unwrap();
        let script = (0..5).map(|_| answer(200, [Data("{}")]));
        let service = ServiceBuilder::new().layer(&layer).service(Provider::new(script));
        for _ in 0..5 {
            if let Ok(response) = service.clone().oneshot(ask(CHAT)).await {
                read(response.into_body(), 9).await;
            }
        }
        let events = listener.seen().events;
        let said: Vec<_> = events
            .iter()
            .map(|(_, level, fields)| (*level, &*fields["message"]))
            .filter(|(_, message)| *message != "the call is over")
            .collect();
        let goes_on = on_failure == OnFailure::Continue;
        let what = if goes_on { "calls go on without" } else { "calls are refused" };
        let lost = format!("the ledger does not keep records: {what}");
        let back = (Level::INFO, "the ledger keeps records again");
        assert_eq!(said, [(Level::ERROR, &*lost), back, (Level::ERROR, &*lost)]);
        assert_eq!(layer.losses(), if goes_on { 3 } else { 0 });
        let error = events.iter().find_map(|(.., fields)| fields.get("error"));
        assert_eq!(error.map(String::as_str), Some("no space left on the device"));
    }
}
