//! The parts of one call, as the layers make them, for other calls to be made of.

use std::sync::OnceLock;

use backstop_backoff::BackoffLayer;
use backstop_core::{CallId, CallOptions};
use backstop_provenance::{AttemptLayer, CallRecord, Finished, Ledger, ProvenanceLayer, Started};
use tower::{ServiceBuilder, ServiceExt};

use crate::support::Piece::Data;
use crate::support::*;

/// A call with two attempts of which the second is good, as layers tell it of `ledger`.
pub(crate) async fn run<L: Ledger>(ledger: L) {
    let service = ServiceBuilder::new()
        .layer(ProvenanceLayer::recording(ledger.clone()))
        .layer(BackoffLayer::new())
        .layer(AttemptLayer::recording(ledger))
        .service(Provider::new([answer(529, [Data("{}")]), answer(200, [Data(chat::WHOLE)])]));
    let mut request = ask(CHAT);
    request.extensions_mut().insert(CallOptions::new().run("run-1").node("node-7"));
    read(service.oneshot(request).await.unwrap().into_body(), 9).await;
}

/// The parts of the call that [`run`] makes: six of them.
pub(crate) fn template() -> &'static [Entry] {
    static TEMPLATE: OnceLock<Vec<Entry>> = OnceLock::new();
    TEMPLATE.get_or_init(|| {
        let thread = std::thread::spawn(|| {
            let mut runtime = tokio::runtime::Builder::new_current_thread();
            let runtime = runtime.enable_all().start_paused(true).build().unwrap();
            let book = Book::new();
            runtime.block_on(run(book.clone()));
            let entries = book.entries();
            assert_eq!(entries.len(), 6, "{entries:?}");
            entries
        });
        thread.join().unwrap()
    })
}

/// The parts of a call with this ID.
pub(crate) fn parts(id: CallId) -> Vec<Entry> {
    let mut parts = template().to_vec();
    for part in &mut parts {
        match part {
            Entry::Started(Started::Call(call)) => call.call = id,
            Entry::Started(Started::Attempt(attempt)) => attempt.call = Some(id),
            Entry::Finished(Finished::Call(call)) => call.call = id,
            Entry::Finished(Finished::Attempt(attempt)) => attempt.call = Some(id),
            _ => unreachable!("there are no others"),
        }
    }
    parts
}

pub(crate) fn id(number: u128) -> CallId {
    CallId::new(new_year(), number)
}

pub(crate) fn call_started(id: CallId) -> Started {
    match parts(id).swap_remove(0) {
        Entry::Started(started) => started,
        Entry::Finished(_) => unreachable!("it begins with the start"),
    }
}

pub(crate) fn call_finished(id: CallId) -> Finished {
    match parts(id).swap_remove(5) {
        Entry::Finished(finished) => finished,
        Entry::Started(_) => unreachable!("it ends with the finish"),
    }
}

/// A call's start and finish.
#[cfg(feature = "jsonl")]
pub(crate) async fn keep<L: Ledger>(ledger: &L, id: CallId) -> Result<(), L::Error> {
    let slot = ledger.started(call_started(id)).await?;
    backstop_provenance::Slot::finish(slot, call_finished(id));
    Ok(())
}

pub(crate) fn ids(calls: &[CallRecord]) -> Vec<CallId> {
    calls.iter().map(|call| call.call).collect()
}

/// A path in a directory of its own, where nothing is.
#[cfg(feature = "jsonl")]
pub(crate) fn fresh(name: &str) -> std::path::PathBuf {
    let directory = std::path::Path::new(env!("CARGO_TARGET_TMPDIR")).join("ledgers").join(name);
    let _ = std::fs::remove_dir_all(&directory);
    std::fs::create_dir_all(&directory).unwrap();
    directory.join("calls.jsonl")
}

/// Waits for the writer's thread, which no clock of tokio knows.
#[cfg(feature = "jsonl")]
pub(crate) fn block_on<F: Future>(future: F) -> F::Output {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(future)
}
