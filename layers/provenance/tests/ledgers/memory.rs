use std::hint::black_box;

use backstop_core::RequestBody;
use backstop_provenance::{
    AttemptLayer, AttemptRecord, Finished, Ledger, MemoryLedger, Outcome, Slot, Started,
};
use tower::{Layer, ServiceExt};

use crate::parts::{self, call_finished, call_started, id, ids, parts, run};
use crate::support::*;

#[tokio::test(start_paused = true)]
async fn a_call_reads_as_a_report_shows_it() {
    let ledger = MemoryLedger::new();
    run(ledger.clone()).await;
    let calls = ledger.calls();
    let [call] = calls.as_slice() else { panic!("{calls:?}") };
    assert_eq!((call.outcome, call.retries, call.fallback_used), (Outcome::Ok, 1, false));
    assert_eq!(call.requested_model.as_deref(), Some("alias-x"));
    assert_eq!(call.path.as_deref(), Some("/v1/chat/completions"));
    assert_eq!(call.attempts_made, Some(2));
    let classes: Vec<_> = call.attempts.iter().map(|attempt| attempt.class.as_str()).collect();
    assert_eq!(classes, ["overloaded", "success"]);
    let json = serde_json::to_value(call).unwrap();
    // Whether they keep their order is up to a feature of serde_json that another crate may set.
    let mut keys: Vec<_> = json.as_object().unwrap().keys().map(String::as_str).collect();
    keys.sort_unstable();
    let mut expected = [
        "call",
        "run",
        "node",
        "lane",
        "labels",
        "route",
        "outcome",
        "planned_chain",
        "produced_by",
        "fallback_used",
        "retries",
        "waited_ms",
        "request_sha256",
        "caller_retry",
        "started_at",
        "duration_ms",
        "usage",
        "decisions",
        "attempts",
    ];
    expected.sort_unstable();
    assert_eq!(keys, expected);
    assert_eq!((&json["run"], &json["node"]), (&"run-1".into(), &"node-7".into()));
    assert_eq!(json["outcome"], "ok");
    assert!(json["lane"].is_null() && json["route"].is_null());
    assert_eq!(json["produced_by"]["model"], "alias-x");
    assert_eq!(json["waited_ms"], json["attempts"][1]["wait_ms"]);
    assert_eq!(json["attempts"][1]["wait_reason"], "schedule");
    assert_eq!(json["attempts"][0]["status"], 529);
    let mut keys: Vec<_> =
        json["attempts"][0].as_object().unwrap().keys().map(String::as_str).collect();
    keys.sort_unstable();
    let mut expected = [
        "attempt",
        "rung",
        "profile",
        "model",
        "endpoint",
        "wait_ms",
        "wait_reason",
        "unprocessed",
        "status",
        "class",
        "code",
        "hint_ms",
        "request_id",
        "reported_model",
        "started_at",
        "first_byte_ms",
        "first_content_ms",
        "duration_ms",
        "bytes",
        "stream_end",
        "usage",
        "error",
    ];
    expected.sort_unstable();
    assert_eq!(keys, expected);
    assert_eq!(call.request_sha256.as_ref().map(String::len), SHA.then_some(64));
    let back: backstop_provenance::CallRecord = serde_json::from_value(json).unwrap();
    assert_eq!((back.call, back.planned_chain, back.usage), (call.call, vec![], call.usage));
}

const SHA: bool = cfg!(feature = "digest");

#[test]
fn the_newest_calls_stay_and_the_others_are_counted() {
    let ledger = MemoryLedger::with_capacity(3);
    for number in 0..5 {
        keep_all(&ledger, number);
        assert_eq!(ledger.dropped(), u64::try_from(number).unwrap().saturating_sub(2));
    }
    let calls = ledger.calls();
    assert_eq!(ids(&calls), [id(2), id(3), id(4)]);
    assert!(calls.iter().all(|call| call.outcome == Outcome::Ok && call.attempts.len() == 2));
}

/// All parts of a call, in their order.
fn keep_all(ledger: &MemoryLedger, number: u128) {
    let mut slots = Vec::new();
    for part in parts(id(number)) {
        match part {
            Entry::Started(started) => slots.push(start(ledger, started)),
            Entry::Finished(finished) => slots.pop().unwrap().finish(finished),
        }
    }
}

fn start(ledger: &MemoryLedger, started: Started) -> backstop_provenance::MemorySlot {
    ledger.started(started).into_inner().unwrap()
}

#[test]
fn an_open_call_is_interrupted_and_one_that_had_to_go_does_not_come_back() {
    let ledger = MemoryLedger::with_capacity(2);
    let old = start(&ledger, call_started(id(0)));
    assert_eq!(ledger.calls()[0].outcome, Outcome::Interrupted);
    for number in 1..3 {
        start(&ledger, call_started(id(number))).finish(call_finished(id(number)));
    }
    old.finish(call_finished(id(0)));
    assert_eq!((ids(&ledger.calls()), ledger.dropped()), (vec![id(1), id(2)], 1));
}

#[test]
fn attempts_of_one_call_without_end_stay_bounded() {
    let ledger = MemoryLedger::with_capacity(2);
    let parts = parts(id(0));
    let _call = start(&ledger, call_started(id(0)));
    for _ in 0..1000 {
        let (Entry::Started(started), Entry::Finished(finished)) = (&parts[1], &parts[2]) else {
            panic!("{parts:?}")
        };
        start(&ledger, started.clone()).finish(finished.clone());
    }
    assert!(ledger.calls().is_empty());
    assert_eq!(ledger.dropped(), 1);
}

#[test]
fn bodies_that_are_not_hashed_yet_stay_bounded() {
    let ledger = MemoryLedger::new();
    let body = "x".repeat(1024 * 1024);
    let info = allocation_counter::measure(|| {
        for number in 0..64 {
            let Started::Call(mut call) = call_started(id(number)) else { panic!("no call") };
            call.body = RequestBody::from(body.clone());
            start(&ledger, Started::Call(call)).finish(call_finished(id(number)));
        }
    });
    assert!(info.bytes_current < 18 * 1024 * 1024, "{info:?}");
    let calls = ledger.calls();
    assert!(calls.iter().all(|call| call.request_sha256.is_some() == SHA));
    let distinct: std::collections::HashSet<_> =
        calls.iter().map(|call| call.request_sha256.clone()).collect();
    assert_eq!(distinct.len(), 1);
    // Of abc, as FIPS 180-2 has it.
    let ledger = MemoryLedger::new();
    let Started::Call(mut call) = call_started(id(0)) else { panic!("no call") };
    call.body = RequestBody::from_pieces(["a".into(), "bc".into()]);
    let _slot = start(&ledger, Started::Call(call));
    let sha256 = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";
    assert_eq!(ledger.calls()[0].request_sha256.as_deref(), SHA.then_some(sha256));
    assert_eq!(ledger.calls()[0].request_sha256.as_deref(), SHA.then_some(sha256), "again");
}

#[tokio::test(start_paused = true)]
async fn attempts_without_a_call_are_told_apart() {
    let ledger = MemoryLedger::new();
    for status in [200, 429] {
        let service = AttemptLayer::recording(ledger.clone())
            .layer(Provider::new([answer(status, [Piece::Data("{}")])]));
        read(service.oneshot(ask(CHAT)).await.unwrap().into_body(), 9).await;
    }
    let attempt = match &parts::template()[1] {
        Entry::Started(Started::Attempt(attempt)) => attempt.clone(),
        other => panic!("{other:?}"),
    };
    let mut alone = attempt;
    alone.call = None;
    let _slot = start(&ledger, Started::Attempt(alone));
    let classes: Vec<_> =
        ledger.attempts_alone().into_iter().map(|attempt| attempt.class).collect();
    assert_eq!(classes, ["success", "rate_limited", AttemptRecord::INTERRUPTED]);
    assert!(ledger.calls().is_empty());
}

#[test]
fn threads_lose_nothing() {
    let ledger = MemoryLedger::new();
    std::thread::scope(|scope| {
        for thread in 0..4 {
            let ledger = &ledger;
            scope.spawn(move || (0..500).for_each(|n| keep_all(ledger, thread * 1000 + n)));
        }
        for _ in 0..20 {
            assert!(ledger.calls().len() <= 2000);
        }
    });
    let calls = ledger.calls();
    assert_eq!((calls.len(), ledger.dropped()), (2000, 0));
    assert!(calls.iter().all(|call| call.outcome == Outcome::Ok && call.attempts.len() == 2));
}

/// `cargo test --release -p backstop-provenance --test ledgers --all-features -- --ignored --nocapture times`
#[test]
#[ignore = "prints times"]
#[expect(clippy::disallowed_methods, reason = "measures real time")]
fn times() {
    let n = 20_000_u128;
    let pairs: Vec<_> = (0..n).map(|n| (call_started(id(n)), call_finished(id(n)))).collect();
    let ledger = MemoryLedger::new();
    // Full, as it is for most of its life.
    for (started, finished) in pairs.clone() {
        start(&ledger, started).finish(finished);
    }
    let copies = pairs.clone();
    let began = std::time::Instant::now();
    for (started, finished) in copies {
        start(&ledger, started).finish(finished);
    }
    let took = began.elapsed().as_nanos() / n;
    let began = std::time::Instant::now();
    for (started, finished) in pairs {
        drop(black_box::<(Started, Finished)>((started, finished)));
    }
    let free = began.elapsed().as_nanos() / n;
    println!("memory: {took} ns for a start and a finish, of which some {free} to free them");
    let began = std::time::Instant::now();
    let calls = black_box(ledger.calls()).len() as u128;
    println!("memory: {} ns a call to read", began.elapsed().as_nanos() / calls);
}
