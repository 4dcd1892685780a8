//! `docs/defaults.md` says what the code does: every row of its tables is compared with a value that is read off the
//! built layers, or measured on them. Nothing here repeats a number of the page.

use std::collections::BTreeMap;
use std::time::Duration;

use backstop::classify::ClassifyBuilder;
use backstop::client::hyper::HyperClient;
use backstop::client::reqwest::client_builder;
use backstop::dialect::Dialect;
use backstop::testing::{Outcome, ScriptedBody, ScriptedService, Step};
use backstop::{
    BackoffLayer, Chain, Class, ClassifyLayer, FallbackRouterLayer, Hold, Jitter, Profile,
    ProvenanceLayer, RequestBody, Schedule, Verdict, backoff::BackoffBuilder,
};
use http::Request;
use tokio::time::{Instant, sleep, timeout};
use tower::{ServiceBuilder, ServiceExt};

type Table = BTreeMap<String, String>;

#[tokio::test(start_paused = true)]
async fn the_page_of_defaults_states_what_the_code_does() {
    let code = computed().await;
    let page = rows(include_str!("../../docs/defaults.md"));
    let mut wrong = Vec::new();
    for (key, value) in &code {
        match page.get(key) {
            Some(stated) if stated == value => {}
            Some(stated) => {
                wrong.push(format!("{key}: the page says {stated:?}, the code {value:?}"))
            }
            None => wrong.push(format!("{key}: not on the page; the code says {value:?}")),
        }
    }
    wrong.extend(
        page.keys()
            .filter(|key| !code.contains_key(*key))
            .map(|key| format!("{key}: on the page, but not in the code")),
    );
    assert!(wrong.is_empty(), "docs/defaults.md and the code differ:\n{}", wrong.join("\n"));
}

#[test]
fn a_layer_without_a_builder_has_the_builders_defaults() {
    assert_eq!(backoff(&BackoffLayer::new()), backoff(&built(BackoffLayer::builder())));
    assert_eq!(backoff(&BackoffLayer::default()), backoff(&BackoffLayer::new()));
    let built = ClassifyLayer::builder().build().unwrap();
    assert_eq!(settings(&ClassifyLayer::new()), settings(&built));
    assert_eq!(settings(&ClassifyLayer::default()), settings(&built));
}

/// Every default, by its key on the page.
async fn computed() -> Table {
    let defaults = backoff(&BackoffLayer::new());
    let mut table = prefixed("backoff", &defaults);
    let mut set = |key: &str, value: String| {
        let before = table.insert(key.to_owned(), value);
        assert_eq!(before, None, "{key} is computed twice");
    };

    let mut clients = Table::new();
    flatten("hyper_client", &format!("{:?}", HyperClient::builder()), &mut clients);
    flatten("reqwest", &format!("{:?}", client_builder()), &mut clients);
    // The rest of reqwest's are its own defaults.
    let ours = |key: &String| key.starts_with("hyper_client") || key == "reqwest.connect_timeout";
    clients.into_iter().filter(|(key, _)| ours(key)).for_each(|(key, value)| set(&key, value));

    set("backoff.seed", seed());
    let schedule = schedule(&defaults);
    let waits = waits_of(BackoffLayer::builder().jitter(Jitter::None)).await;
    let (nominal, longest) = schedule.total(u32::try_from(waits.len()).unwrap());
    assert_eq!(waits.iter().sum::<Duration>(), nominal, "the real waits are the schedule's");
    set("waits.retries", waits.len().to_string());
    set("waits.nominal", list(&waits));
    set("waits.sum", format!("{nominal:?}"));
    set("waits.longest_sum", format!("{longest:?}"));
    set("waits.longest", format!("{:?}", schedule.longest_wait()));
    set("waits.hint_spread", schedule.hint_spread().to_string());
    let attempts = attempts_after_a_hint_of_the_whole_time(&defaults).await;
    set("waits.attempts_after_60s_hint", attempts.to_string());

    for (name, builder) in [
        ("anthropic", BackoffLayer::anthropic()),
        ("gemini_free_tier", BackoffLayer::gemini_free_tier()),
    ] {
        let preset = backoff(&built(builder.clone()));
        for (key, value) in preset.iter().filter(|(key, value)| defaults.get(*key) != Some(*value))
        {
            set(&format!("{name}.{key}"), value.clone());
        }
        let waits = waits_of(builder.jitter(Jitter::None)).await;
        set(&format!("{name}.waits"), list(&waits));
        set(&format!("{name}.attempts"), (waits.len() + 1).to_string());
    }

    for (key, value) in settings(&ClassifyLayer::new()) {
        // What is none here depends on the kind of answer; measured below.
        if !["hold_limit", "hold_overflow"].contains(&key.as_str()) {
            set(&format!("classify.{key}"), value);
        }
    }
    for (name, settings) in [
        ("fallback", settings(&FallbackRouterLayer::new(chain()))),
        ("provenance", settings(&ProvenanceLayer::new())),
    ] {
        for (key, value) in settings {
            let key = key.strip_prefix("keeper.").unwrap_or(&key);
            // Of the actions and the schedule there is one set of defaults, which is the backoff's.
            let same = key.replace("actions.", "on.").replace("schedule.", "");
            let shared = ["actions.", "schedule."].iter().any(|group| key.starts_with(group));
            if shared {
                assert_eq!(defaults.get(&same), Some(&value), "{name}.{key}");
            } else if !["seed.", "clock.", "chain", "ledger", "losses."]
                .iter()
                .any(|no| key.starts_with(no))
            {
                set(&format!("{name}.{key}"), value);
            }
        }
    }
    for (name, hold, kind) in [
        ("stream", Hold::FirstContent, STREAM),
        ("whole_stream", Hold::Complete, STREAM),
        ("document", Hold::Complete, DOCUMENT),
    ] {
        let (limit, overflow) = held(ClassifyLayer::builder().hold(hold), 200, kind).await;
        set(&format!("classify.hold_limit.{name}"), bytes(limit));
        set(&format!("classify.hold_overflow.{name}"), overflow.to_owned());
    }
    let (limit, _) = held(ClassifyLayer::builder(), 503, DOCUMENT).await;
    set("fixed.error_body", bytes(limit));
    set("fixed.error_body_time", format!("{:?}", error_body_time().await));
    set("fixed.drain", bytes(drained_bytes().await));
    set("fixed.drain_time", format!("{:?}", drain_time().await));
    set("fixed.message", bytes(message_bytes()));
    set("features.default", default_features());
    for (class, statuses) in statuses_by_class() {
        set(&format!("status.{class}"), statuses);
    }
    table
}

/// What each status means where nothing else is known, as ranges.
fn statuses_by_class() -> BTreeMap<&'static str, String> {
    let mut ranges: BTreeMap<&'static str, Vec<(u16, u16)>> = BTreeMap::new();
    for code in 200..600 {
        let status = http::StatusCode::from_u16(code).unwrap();
        let now = || std::time::SystemTime::UNIX_EPOCH;
        let class = Verdict::of_head(status, &http::HeaderMap::new(), now).class();
        let ranges = ranges.entry(class.as_str()).or_default();
        match ranges.last_mut() {
            Some((_, last)) if *last + 1 == code => *last = code,
            _ => ranges.push((code, code)),
        }
    }
    let text = |(first, last): &(u16, u16)| match first == last {
        true => first.to_string(),
        false => format!("{first}-{last}"),
    };
    let text = |ranges: Vec<_>| ranges.iter().map(text).collect::<Vec<_>>().join(", ");
    ranges.into_iter().map(|(class, ranges)| (class, text(ranges))).collect()
}

/// The rows ``| `key` | `value` | .. |`` of the page.
fn rows(page: &str) -> Table {
    let code = |cell: &str| Some(cell.trim().strip_prefix('`')?.strip_suffix('`')?.to_owned());
    let mut table = Table::new();
    for line in page.lines() {
        let mut cells = line.split('|').skip(1);
        let (Some(Some(key)), Some(Some(value))) = (cells.next().map(code), cells.next().map(code))
        else {
            continue;
        };
        assert_eq!(table.insert(key.clone(), value), None, "{key} stands on the page twice");
    }
    assert!(!table.is_empty(), "the page has no table");
    table
}

/// What a layer of backoff is set to, by the builder's words.
fn backoff(layer: &BackoffLayer) -> Table {
    let short = |key: String| {
        let group = ["bounds.guards.", "guards.", "schedule."];
        let short = group.iter().find_map(|group| key.strip_prefix(group)).unwrap_or(&key);
        short.replace("actions.", "on.")
    };
    let is_setting = |key: &String| !NO_SETTINGS.iter().any(|other| key.starts_with(other));
    let settings = settings(layer).into_iter().filter(|(key, _)| is_setting(key));
    settings.map(|(key, value)| (short(key), value)).collect()
}

/// Never the same twice; or what each call fills in; or what follows from the settings.
const NO_SETTINGS: [&str; 5] =
    ["seed.", "clock.", "bounds.attempts", "bounds.deadline", "keeps_head"];

/// What a layer is set to, read off its `Debug` output: a setting that is added to a layer is here by itself, and is
/// then missing on the page.
fn settings(layer: &impl std::fmt::Debug) -> Table {
    let mut all = Table::new();
    flatten("", &format!("{layer:?}"), &mut all);
    let key = |key: String| key.strip_prefix("config.").unwrap().to_owned();
    all.into_iter().map(|(name, value)| (key(name), value)).collect()
}

/// Takes `Debug` output apart: `Name { a: 1, b: Other { c: 2 } }` holds `a`, and `b.c`.
fn flatten(path: &str, debug: &str, out: &mut Table) {
    let Some((_, fields)) = debug.split_once('{').filter(|_| debug.ends_with('}')) else {
        out.insert(path.to_owned(), plain(path, debug));
        return;
    };
    for field in split_at_commas(fields.strip_suffix('}').unwrap()) {
        // Without a name: the two dots of what is not shown.
        let Some((name, value)) = field.split_once(": ") else { continue };
        let name = name.trim().trim_matches('"');
        let path = if path.is_empty() { name.to_owned() } else { format!("{path}.{name}") };
        flatten(&path, value.trim(), out);
    }
}

fn split_at_commas(fields: &str) -> Vec<&str> {
    let (mut parts, mut start, mut depth) = (Vec::new(), 0, 0);
    for (at, c) in fields.char_indices() {
        match c {
            '{' | '(' | '[' => depth += 1,
            '}' | ')' | ']' => depth -= 1,
            ',' if depth == 0 => {
                parts.push(&fields[start..at]);
                start = at + 1;
            }
            _ => {}
        }
    }
    parts.push(&fields[start..]);
    parts
}

/// A value as the page writes it.
fn plain(path: &str, debug: &str) -> String {
    let inner = ["Finite(", "Some(", "Additive("]
        .iter()
        .find_map(|wrap| debug.strip_prefix(wrap)?.strip_suffix(')'))
        .unwrap_or(debug);
    match inner {
        "None" | "Unlimited" => "none".to_owned(),
        // `Debug` says whether there is one.
        "false" if path.ends_with(".classifier") => "none".to_owned(),
        number if path.ends_with("_limit") => bytes(number.parse().unwrap()),
        word => {
            let mut out = String::new();
            for (at, c) in word.char_indices() {
                if c.is_ascii_uppercase() && at > 0 {
                    out.push('-');
                }
                out.push(c.to_ascii_lowercase());
            }
            out
        }
    }
}

fn bytes(count: u64) -> String {
    match (count % (1 << 20), count % (1 << 10)) {
        (0, _) => format!("{} MiB", count >> 20),
        (_, 0) => format!("{} KiB", count >> 10),
        _ => format!("{count} B"),
    }
}

fn list(waits: &[Duration]) -> String {
    waits.iter().map(|wait| format!("{wait:?}")).collect::<Vec<_>>().join(", ")
}

fn prefixed(prefix: &str, table: &Table) -> Table {
    table.iter().map(|(key, value)| (format!("{prefix}.{key}"), value.clone())).collect()
}

fn chain() -> Chain {
    Chain::single(Profile::new("id", "model", "provider", Dialect::OPENAI).unwrap())
}

fn built(builder: BackoffBuilder) -> BackoffLayer {
    builder.build().unwrap()
}

/// The schedule of a layer with these settings, which has to be the schedule's own default.
fn schedule(settings: &Table) -> Schedule {
    let schedule = Schedule::default();
    let mut own = Table::new();
    flatten("", &format!("{schedule:?}"), &mut own);
    assert_eq!(own.len(), 4, "{own:?}");
    for (key, value) in own {
        assert_eq!(settings.get(&key), Some(&value), "{key}");
    }
    schedule
}

fn seed() -> String {
    let root = || settings(&BackoffLayer::new()).remove("seed.root").unwrap();
    if root() == root() { "fixed".to_owned() } else { "random".to_owned() }
}

fn default_features() -> String {
    let manifest = include_str!("../../Cargo.toml");
    let line = manifest.lines().find_map(|line| line.strip_prefix("default = [")).unwrap();
    line.trim_end_matches(']').replace('"', "")
}

fn call() -> Request<RequestBody> {
    Request::post("http://llm.test/v1/chat/completions").body(RequestBody::from("{}")).unwrap()
}

/// The waits between the attempts of a call to a provider that is always down.
async fn waits_of(builder: BackoffBuilder) -> Vec<Duration> {
    let provider = ScriptedService::from_fn(|_| Outcome::status(503));
    let service = ServiceBuilder::new().layer(built(builder)).service(provider.clone());
    let response = service.oneshot(call()).await.unwrap();
    assert_eq!(response.status(), 503);
    let log = provider.log();
    log.windows(2).map(|pair| pair[1].at - pair[0].at).collect()
}

/// How many attempts there are if the first failure's hint alone uses up `max_retry_time`.
async fn attempts_after_a_hint_of_the_whole_time(defaults: &Table) -> usize {
    let whole = defaults["max_retry_time"].strip_suffix('s').unwrap();
    let hint = Outcome::status(503).header("retry-after", whole);
    let provider =
        ScriptedService::from_fn(
            move |call| {
                if call.index == 0 { hint.clone() } else { Outcome::status(503) }
            },
        );
    let service = ServiceBuilder::new().layer(BackoffLayer::new()).service(provider.clone());
    service.oneshot(call()).await.unwrap();
    provider.calls()
}

/// How many bytes of an answer are held at most, and what happens past that.
///
/// The first answer goes on without end, in pieces, and tells by how much was read of it where about the limit is. The
/// second and third are as long as the limit and one byte longer, so that it is exact.
async fn held(builder: ClassifyBuilder, status: u16, kind: Kind) -> (u64, &'static str) {
    let layer = builder.build().unwrap();
    let piece = Step::data(kind.piece.repeat(PIECE / kind.piece.len()));
    let (read, verdict) = release(&layer, status, kind, vec![piece; 1024]).await.unwrap();
    let limit = read - PIECE as u64;
    let exact = Step::data(kind.piece.repeat(usize::try_from(limit).unwrap() / kind.piece.len()));
    assert_eq!(release(&layer, status, kind, vec![exact.clone()]).await, None, "at the limit");
    let longer = vec![exact, Step::data(" ")];
    let past = release(&layer, status, kind, longer).await;
    assert_eq!(past, Some((limit + 1, verdict)), "one byte past the limit");
    (limit, if verdict == Some(Class::TooLarge) { "fail" } else { "commit" })
}

/// How much was read of an answer of these steps when it was released, and its class then; `None` if it is still held.
async fn release(
    layer: &ClassifyLayer,
    status: u16,
    kind: Kind,
    mut steps: Vec<Step>,
) -> Option<(u64, Option<Class>)> {
    steps.push(Step::forever());
    let body = ScriptedBody::new(steps);
    let probe = body.probe();
    let answer = Outcome::status(status).header("content-type", kind.content_type).body(body);
    let service =
        ServiceBuilder::new().layer(layer.clone()).service(ScriptedService::new([answer]));
    let response = timeout(Duration::from_secs(1), service.oneshot(call())).await.ok()?.unwrap();
    Some((probe.bytes(), Verdict::of(&response).map(Verdict::class)))
}

#[derive(Clone, Copy)]
struct Kind {
    content_type: &'static str,
    /// Its length divides [`PIECE`].
    piece: &'static str,
}

/// A stream that has nothing to say yet.
const STREAM: Kind = Kind { content_type: "text/event-stream", piece: ": keep-alive..\n\n" };
const DOCUMENT: Kind = Kind { content_type: "application/json", piece: "                " };
/// Divides every limit, so that one piece more than fits is read; and 1024 of them are more than any.
const PIECE: usize = 64 * 1024;

/// How long a failed answer may take to explain itself.
async fn error_body_time() -> Duration {
    let silent = Outcome::status(503).body(ScriptedBody::new([Step::forever()]));
    let service =
        ServiceBuilder::new().layer(ClassifyLayer::new()).service(ScriptedService::new([silent]));
    let start = Instant::now();
    service.oneshot(call()).await.unwrap();
    start.elapsed()
}

/// How many bytes of a failed answer are read at most before it is dropped.
async fn drained_bytes() -> u64 {
    let body = ScriptedBody::new(vec![Step::data("x"); 16 * 1024]);
    let probe = body.probe();
    let script = [Outcome::status(503).body(body), Outcome::status(200)];
    let service =
        ServiceBuilder::new().layer(BackoffLayer::new()).service(ScriptedService::new(script));
    service.oneshot(call()).await.unwrap();
    assert!(probe.is_dropped());
    // The byte that was too much.
    probe.bytes() - 1
}

/// How long a failed answer that does not end is read before it is dropped.
async fn drain_time() -> Duration {
    let body = ScriptedBody::new([Step::forever()]);
    let probe = body.probe();
    let script = [Outcome::status(503).body(body), Outcome::status(200)];
    let service =
        ServiceBuilder::new().layer(BackoffLayer::new()).service(ScriptedService::new(script));
    let start = Instant::now();
    let call = tokio::spawn(service.oneshot(call()));
    while !probe.is_dropped() {
        sleep(Duration::from_millis(1)).await;
        // The call has its turn in this very millisecond.
        tokio::task::yield_now().await;
    }
    let elapsed = start.elapsed();
    call.await.unwrap().unwrap();
    elapsed
}

/// How much of a provider's error text is kept.
fn message_bytes() -> u64 {
    let verdict = Verdict::new(Class::Transient).with_message(&".".repeat(1 << 16));
    verdict.message().unwrap().len() as u64
}
