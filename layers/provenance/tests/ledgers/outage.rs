//! Files that cannot be written, and those who hear of it.

use std::fs;
use std::io;
use std::path::Path;
use std::process::Command;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicUsize, Ordering};

use backstop_core::Error;
use backstop_provenance::jsonl::{self, JsonlLedger, LedgerError};
use backstop_provenance::{Ledger, OnFailure, Outcome, ProvenanceLayer, Slot};
use tower::{Layer, ServiceExt};
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Level, Metadata, Subscriber};

use crate::parts::{block_on, call_finished, call_started, fresh, id, ids, keep};
use crate::support::*;

/// Counts the errors that tell of a path with [`WATCHED`] in it, whatever thread says them.
struct Errors;

static ERRORS: AtomicUsize = AtomicUsize::new(0);
const WATCHED: &str = "said-once";

impl Subscriber for Errors {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        *metadata.level() == Level::ERROR
    }
    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }
    fn record(&self, _: &Id, _: &Record<'_>) {}
    fn record_follows_from(&self, _: &Id, _: &Id) {}
    fn event(&self, event: &Event<'_>) {
        struct Watch;
        impl Visit for Watch {
            fn record_debug(&mut self, field: &Field, value: &dyn std::fmt::Debug) {
                if field.name() == "error" && format!("{value:?}").contains(WATCHED) {
                    ERRORS.fetch_add(1, Ordering::Relaxed);
                }
            }
        }
        event.record(&mut Watch);
    }
    fn enter(&self, _: &Id) {}
    fn exit(&self, _: &Id) {}
}

fn watch() {
    static WATCH: OnceLock<()> = OnceLock::new();
    WATCH.get_or_init(|| tracing::subscriber::set_global_default(Errors).unwrap());
}

/// A ledger whose file was there and then became something else.
async fn spoiled(path: &Path, spoil: impl FnOnce()) -> JsonlLedger {
    let ledger = JsonlLedger::open(path).unwrap();
    keep(&ledger, id(0)).await.unwrap();
    ledger.close().await.unwrap();
    drop(ledger);
    let ledger = JsonlLedger::open(path).unwrap();
    spoil();
    ledger
}

#[test]
fn b034_a_file_that_became_a_directory_refuses_is_told_once_and_recovers() {
    watch();
    let path = fresh(WATCHED);
    let aside = path.with_extension("aside");
    block_on(async {
        let ledger = spoiled(&path, || {
            fs::rename(&path, &aside).unwrap();
            fs::create_dir(&path).unwrap();
        })
        .await;
        for refused in 1..=5 {
            let error = ledger.started(call_started(id(refused))).await.unwrap_err();
            assert!(matches!(error, LedgerError::Open { .. }), "{error}");
            let text = error.to_string();
            assert!(
                text.contains(path.to_str().unwrap()) && text.contains("name a file"),
                "{text}"
            );
            assert_eq!(u128::from(ledger.lost()), refused);
        }
        assert_eq!(ERRORS.load(Ordering::Relaxed), 1);
        fs::remove_dir(&path).unwrap();
        for number in 10..30 {
            keep(&ledger, id(number)).await.unwrap();
        }
        assert_eq!(ledger.lost(), 5);
    });
    let told = jsonl::calls(&path).unwrap();
    assert_eq!(ids(&told.calls), (10..30).map(id).collect::<Vec<_>>());
    assert_eq!(ids(&jsonl::calls(&aside).unwrap().calls), [id(0)]);
}

#[cfg(target_os = "linux")]
#[test]
fn b034_a_full_disk_refuses_and_finishes_wait_for_space() {
    use std::os::unix::fs::symlink;

    let path = fresh("full");
    let file = path.with_extension("real");
    fs::write(&file, "").unwrap();
    symlink(&file, &path).unwrap();
    block_on(async {
        let ledger = JsonlLedger::open(&path).unwrap();
        let open = ledger.started(call_started(id(1))).await.unwrap();
        fs::remove_file(&path).unwrap();
        symlink("/dev/full", &path).unwrap();
        open.finish(call_finished(id(1)));
        for refused in 1..=3 {
            let error = ledger.started(call_started(id(100))).await.unwrap_err();
            let LedgerError::Write { cause, .. } = &error else { panic!("{error}") };
            assert_eq!(cause.kind(), io::ErrorKind::StorageFull);
            assert!(error.to_string().contains("free some space"), "{error}");
            assert_eq!(ledger.lost(), refused);
        }
        let error = ledger.close().await.unwrap_err();
        assert!(matches!(error, LedgerError::Write { .. }), "{error}");
        fs::remove_file(&path).unwrap();
        symlink(&file, &path).unwrap();
        ledger.close().await.unwrap();
    });
    let told = jsonl::calls(&path).unwrap();
    assert_eq!((told.calls.len(), told.calls[0].outcome), (1, Outcome::Ok));
    assert!(told.damaged.is_empty());
}

#[cfg(target_os = "linux")]
#[test]
fn what_waits_for_space_is_written_on_an_idle_process_too() {
    use std::os::unix::fs::symlink;

    let path = fresh("full-idle");
    let file = path.with_extension("real");
    fs::write(&file, "").unwrap();
    symlink(&file, &path).unwrap();
    block_on(async {
        let ledger = JsonlLedger::open(&path).unwrap();
        let open = ledger.started(call_started(id(1))).await.unwrap();
        fs::remove_file(&path).unwrap();
        symlink("/dev/full", &path).unwrap();
        open.finish(call_finished(id(1)));
        assert!(ledger.started(call_started(id(2))).await.is_err(), "the outage was met");
        fs::remove_file(&path).unwrap();
        symlink(&file, &path).unwrap();
        // No other record comes, and nobody closes the ledger.
        while jsonl::calls(&path).unwrap().calls[0].outcome != Outcome::Ok {
            tokio::time::sleep(std::time::Duration::from_millis(20)).await;
        }
    });
}

#[cfg(target_os = "linux")]
#[test]
fn finishes_that_wait_for_space_are_bounded_and_counted() {
    use std::os::unix::fs::symlink;

    let path = fresh("full-long");
    block_on(async {
        let ledger = JsonlLedger::open(&path).unwrap();
        let slots = 5000_u128;
        let mut open = Vec::new();
        for number in 0..slots {
            open.push(ledger.started(call_started(id(number))).await.unwrap());
        }
        let file = path.with_extension("real");
        fs::rename(&path, &file).unwrap();
        symlink("/dev/full", &path).unwrap();
        for (number, slot) in (0..).zip(open) {
            slot.finish(call_finished(id(number)));
        }
        assert!(ledger.close().await.is_err());
        let lost = ledger.lost();
        assert!(lost > 0 && u128::from(lost) < slots, "{lost}");
        fs::remove_file(&path).unwrap();
        fs::rename(&file, &path).unwrap();
        ledger.close().await.unwrap();
        let told = jsonl::calls(&path).unwrap();
        let whole = told.calls.iter().filter(|call| call.outcome == Outcome::Ok).count();
        assert_eq!(whole as u64 + lost, 5000);
        assert!(told.damaged.is_empty());
    });
}

#[test]
fn b034_both_policies_of_the_layer_meet_a_ledger_that_fails() {
    let path = fresh("policies");
    block_on(async {
        let ledger = spoiled(&path, || {
            fs::remove_file(&path).unwrap();
            fs::create_dir(&path).unwrap();
        })
        .await;
        let layer = |policy| {
            let builder = ProvenanceLayer::builder().ledger(ledger.clone());
            builder.on_failure(policy).build().unwrap()
        };
        let provider = Provider::new([answer(200, [Piece::Data("{}")])]);
        let refusing = layer(OnFailure::Refuse).layer(provider.clone());
        let error = refusing.oneshot(ask(CHAT)).await.unwrap_err();
        let Error::Ledger(source) = &error else { panic!("{error}") };
        assert!(source.downcast_ref::<LedgerError>().is_some());
        assert_eq!(provider.calls(), 0);
        let going_on = layer(OnFailure::Continue);
        let answer = going_on.layer(provider.clone()).oneshot(ask(CHAT)).await.unwrap();
        read(answer.into_body(), 9).await;
        assert_eq!((provider.calls(), going_on.losses(), ledger.lost()), (1, 1, 2));
    });
}

#[test]
fn a_ledger_that_cannot_be_opened_says_what_to_do() {
    let path = fresh("unopened");
    let error = JsonlLedger::open(path.parent().unwrap()).unwrap_err();
    assert!(error.to_string().contains("name a file"), "{error}");
    let error = JsonlLedger::open(path.join("deeper").join("calls.jsonl")).unwrap_err();
    assert!(error.to_string().contains("make the directory"), "{error}");
}

#[cfg(unix)]
#[test]
fn b034_what_a_limit_cuts_in_two_is_closed_and_all_that_was_kept_is_there() {
    let path = fresh("limit");
    // A write past the limit is cut there, the next one fails with EFBIG.
    let script = r#"trap '' XFSZ; ulimit -S -f 64; exec "$0" "$@""#;
    let mut child = Command::new("sh");
    child.args(["-c", script]).arg(std::env::current_exe().unwrap());
    child.args(["--exact", "outage::child_fills_the_disk", "--ignored", "--nocapture"]);
    let out = child.env("LEDGER_PATH", &path).output().unwrap();
    let text = String::from_utf8(out.stdout).unwrap();
    assert!(out.status.success(), "{text} {}", String::from_utf8_lossy(&out.stderr));
    let kept: u128 =
        text.lines().find_map(|line| line.strip_prefix("kept ")?.parse().ok()).unwrap();
    let full = jsonl::calls(path.with_extension("full")).unwrap();
    assert!(kept > 10, "{kept}");
    let told: Vec<_> = ids(&full.calls);
    assert!((0..kept).all(|number| told.contains(&id(number))));
    assert_eq!(full.damaged.len(), 1, "one line was cut: {:?}", full.damaged);
    let later = jsonl::calls(&path).unwrap();
    assert!(later.damaged.is_empty());
    let whole = later.calls.iter().filter(|call| call.outcome == Outcome::Ok);
    let whole: Vec<_> = whole.map(|call| call.call).collect();
    assert!((1000..1020).all(|number| whole.contains(&id(number))));
}

#[test]
#[ignore = "a child of another test"]
fn child_fills_the_disk() {
    let Ok(path) = std::env::var("LEDGER_PATH") else { return };
    let path = Path::new(&path);
    block_on(async {
        let ledger = JsonlLedger::open(path).unwrap();
        let mut kept = 0;
        let error = loop {
            match keep(&ledger, id(kept)).await {
                Ok(()) => kept += 1,
                Err(error) => break error,
            }
            assert!(kept < 1000, "there is a limit");
        };
        assert!(matches!(&error, LedgerError::Write { .. }), "{error}");
        for _ in 0..10 {
            assert!(ledger.started(call_started(id(999))).await.is_err());
        }
        println!("\nkept {kept}");
        fs::rename(path, path.with_extension("full")).unwrap();
        for number in 1000..1020 {
            keep(&ledger, id(number)).await.unwrap();
        }
        ledger.close().await.unwrap();
        assert_eq!(ledger.lost(), 11);
    });
}
