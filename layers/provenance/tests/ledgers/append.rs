//! What stands in the file.

use std::fs;
use std::io::Write;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::task::{Context, Waker};

use backstop_core::CallId;
use backstop_provenance::jsonl::{self, Fsync, JsonlLedger, LedgerError};
use backstop_provenance::{AttemptLayer, Ledger, Outcome, Slot};
use tower::{Layer, ServiceExt};

use crate::parts::{block_on, call_finished, call_started, fresh, id, ids, keep, run};
use crate::support::*;

#[test]
fn a_call_comes_back_as_it_was_told() {
    let path = fresh("whole");
    let memory = backstop_provenance::MemoryLedger::new();
    block_on(async {
        let ledger = JsonlLedger::builder().fsync(Fsync::Started).open(&path).unwrap();
        run(ledger.clone()).await;
        ledger.close().await.unwrap();
        let lines = fs::read_to_string(&path).unwrap();
        let lines: Vec<serde_json::Value> =
            lines.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        let records: Vec<_> = lines.iter().map(|line| line["record"].as_str().unwrap()).collect();
        let expected = [
            "call_started",
            "attempt_started",
            "attempt_finished",
            "attempt_started",
            "attempt_finished",
            "call_finished",
        ];
        assert_eq!(records, expected);
        assert!(lines.iter().all(|line| line["schema"] == "backstop/record/v1"));
        assert_eq!((ledger.lost(), ledger.repaired()), (0, None));
        run(memory.clone()).await;
    });
    let told = jsonl::calls(&path).unwrap();
    assert!(told.damaged.is_empty() && told.attempts_alone.is_empty());
    let (call, same) = (&told.calls[0], &memory.calls()[0]);
    assert_eq!((told.calls.len(), call.outcome), (1, Outcome::Ok));
    assert_eq!(call.request_sha256, same.request_sha256);
    assert_eq!((&call.usage, &call.produced_by), (&same.usage, &same.produced_by));
    assert_eq!((&call.run, &call.path, &call.error), (&same.run, &same.path, &same.error));
    assert_eq!(call.attempts.len(), same.attempts.len());
    assert_eq!(call.attempts[0].endpoint, same.attempts[0].endpoint);
}

#[test]
fn b033_a_torn_last_line_is_left_behind_and_the_next_one_begun() {
    let path = fresh("torn");
    block_on(async {
        let ledger = JsonlLedger::open(&path).unwrap();
        keep(&ledger, id(1)).await.unwrap();
    });
    let len = fs::metadata(&path).unwrap().len();
    let fragment = br#"{"request":"r1","attempt":1,"sta"#;
    fs::OpenOptions::new().append(true).open(&path).unwrap().write_all(fragment).unwrap();
    block_on(async {
        let ledger = JsonlLedger::open(&path).unwrap();
        assert_eq!(ledger.repaired(), Some(len));
        keep(&ledger, id(2)).await.unwrap();
        keep(&ledger, id(3)).await.unwrap();
    });
    let told = jsonl::calls(&path).unwrap();
    assert_eq!(ids(&told.calls), [id(1), id(2), id(3)]);
    assert!(told.calls.iter().all(|call| call.outcome == Outcome::Ok));
    let damaged: Vec<_> = told.damaged.iter().map(|found| (found.offset, found.len)).collect();
    assert_eq!(damaged, [(len, fragment.len() as u64)]);
    assert_eq!(JsonlLedger::open(&path).unwrap().repaired(), None, "once is enough");
}

#[test]
fn a_line_that_another_process_tears_while_we_are_open_is_closed_too() {
    let path = fresh("torn-later");
    block_on(async {
        let ledger = JsonlLedger::open(&path).unwrap();
        keep(&ledger, id(1)).await.unwrap();
        fs::OpenOptions::new().append(true).open(&path).unwrap().write_all(b"{\"sch").unwrap();
        keep(&ledger, id(2)).await.unwrap();
        ledger.close().await.unwrap();
    });
    let told = jsonl::calls(&path).unwrap();
    let has_ended = |call: &backstop_provenance::CallRecord| call.outcome == Outcome::Ok;
    assert_eq!(ids(&told.calls), [id(1), id(2)]);
    // Where it fell between the two lines of the first call does not matter.
    assert!(told.calls.iter().all(has_ended));
    assert!(told.damaged.len() == 1 && told.damaged[0].len == 5, "{:?}", told.damaged);
}

#[test]
fn a_finish_from_a_drop_on_a_thread_without_a_runtime_is_kept() {
    struct Guard<S: Slot>(Option<S>, CallId);
    impl<S: Slot> Drop for Guard<S> {
        fn drop(&mut self) {
            if let Some(slot) = self.0.take() {
                slot.finish(call_finished(self.1));
            }
        }
    }
    let path = fresh("drop");
    let ledger = JsonlLedger::open(&path).unwrap();
    let slot = block_on(ledger.started(call_started(id(1)))).unwrap();
    let guard = Guard(Some(slot), id(1));
    // The slot is the last handle: its drop writes what is under way.
    drop(ledger);
    std::thread::spawn(move || drop(guard)).join().unwrap();
    assert_eq!(jsonl::calls(&path).unwrap().calls[0].outcome, Outcome::Ok);
}

#[test]
fn starts_on_their_way_are_handles_too() {
    let path = fresh("handles");
    let ledger = JsonlLedger::open(&path).unwrap();
    let started: Vec<_> = (0..50).map(|number| ledger.started(call_started(id(number)))).collect();
    drop(ledger);
    drop(started);
    assert_eq!(jsonl::calls(&path).unwrap().calls.len(), 50);
}

#[test]
fn a_start_that_is_dropped_midway_gives_its_place_back() {
    let path = fresh("midway");
    let ledger = JsonlLedger::builder().in_flight(1).open(&path).unwrap();
    block_on(async {
        for number in 0..100 {
            let mut cx = Context::from_waker(Waker::noop());
            let mut first = Box::pin(ledger.started(call_started(id(number * 2))));
            let mut queued = Box::pin(ledger.started(call_started(id(number * 2 + 1))));
            let _ = first.as_mut().poll(&mut cx);
            let _ = queued.as_mut().poll(&mut cx);
            drop(queued);
            drop(first);
        }
        keep(&ledger, id(1000)).await.unwrap();
    });
    drop(ledger);
    let told = jsonl::calls(&path).unwrap();
    assert!(told.damaged.is_empty());
    let (last, others) = told.calls.split_last().unwrap();
    assert_eq!((last.call, last.outcome), (id(1000), Outcome::Ok));
    // Who was still waiting for a place has left nothing behind.
    assert!(!others.is_empty());
    assert!(others.iter().all(|call| call.outcome == Outcome::Interrupted));
}

#[test]
fn more_starts_than_may_be_in_flight_wait_and_are_all_kept() {
    let path = fresh("many");
    let ledger = JsonlLedger::builder().in_flight(2).open(&path).unwrap();
    block_on(async {
        let tasks: Vec<_> = (0..200)
            .map(|number| {
                let ledger = ledger.clone();
                tokio::spawn(async move { keep(&ledger, id(number)).await })
            })
            .collect();
        for task in tasks {
            task.await.unwrap().unwrap();
        }
    });
    drop(ledger);
    let told = jsonl::calls(&path).unwrap();
    assert_eq!((told.calls.len(), told.damaged.len()), (200, 0));
    assert!(told.calls.iter().all(|call| call.outcome == Outcome::Ok));
}

#[test]
fn close_flushes_takes_no_more_starts_and_still_keeps_finishes() {
    let path = fresh("close");
    block_on(async {
        let ledger = JsonlLedger::open(&path).unwrap();
        let slot = ledger.started(call_started(id(1))).await.unwrap();
        ledger.close().await.unwrap();
        let error = ledger.started(call_started(id(2))).await.unwrap_err();
        assert!(matches!(error, LedgerError::Closed { .. }), "{error}");
        assert_eq!(error.path(), path);
        slot.finish(call_finished(id(1)));
        ledger.close().await.unwrap();
    });
    let told = jsonl::calls(&path).unwrap();
    assert_eq!((told.calls.len(), told.calls[0].outcome), (1, Outcome::Ok));
}

#[test]
fn attempts_without_a_call_are_told_apart() {
    let path = fresh("alone");
    block_on(async {
        let ledger = JsonlLedger::open(&path).unwrap();
        for status in [200, 429] {
            let service = AttemptLayer::recording(ledger.clone())
                .layer(Provider::new([answer(status, [Piece::Data("{}")])]));
            read(service.oneshot(ask(CHAT)).await.unwrap().into_body(), 9).await;
        }
    });
    let alone = jsonl::calls(&path).unwrap().attempts_alone;
    let classes: Vec<_> = alone.iter().map(|attempt| attempt.class.as_str()).collect();
    assert_eq!(classes, ["success", "rate_limited"]);
}

#[test]
fn a_record_too_long_for_a_reader_is_refused_and_the_others_are_kept() {
    let path = fresh("long");
    block_on(async {
        let ledger = JsonlLedger::open(&path).unwrap();
        let mut started = call_started(id(1));
        if let backstop_provenance::Started::Call(call) = &mut started {
            call.labels.run = Some(Arc::from("x".repeat(2 << 20)));
        }
        let error = ledger.started(started).await.unwrap_err();
        assert!(matches!(error, LedgerError::TooLong { .. }), "{error}");
        keep(&ledger, id(2)).await.unwrap();
        assert_eq!(ledger.lost(), 1);
    });
    let told = jsonl::calls(&path).unwrap();
    assert_eq!((ids(&told.calls), told.damaged.len()), (vec![id(2)], 0));
}

#[test]
fn two_processes_append_to_one_file_and_nothing_is_mixed_or_lost() {
    let path = fresh("two");
    let children: Vec<_> = ["1", "2"]
        .map(|child| {
            let mut command = Command::new(std::env::current_exe().unwrap());
            command.args(["--exact", "append::child_appends", "--ignored"]);
            command.env("LEDGER_PATH", &path).env("LEDGER_CHILD", child).stdout(Stdio::null());
            command.spawn().unwrap()
        })
        .into();
    for mut child in children {
        assert!(child.wait().unwrap().success());
    }
    let told = jsonl::calls(&path).unwrap();
    assert_eq!((told.calls.len(), told.damaged.len()), (4000, 0));
    assert!(told.calls.iter().all(|call| call.outcome == Outcome::Ok));
}

#[test]
#[ignore = "a child of another test"]
fn child_appends() {
    let (Ok(path), Ok(child)) = (std::env::var("LEDGER_PATH"), std::env::var("LEDGER_CHILD"))
    else {
        return;
    };
    let family = child.parse::<u128>().unwrap() << 32;
    block_on(async {
        let ledger = JsonlLedger::open(path).unwrap();
        let tasks: Vec<_> = (0..8)
            .map(|task| {
                let ledger = ledger.clone();
                tokio::spawn(async move {
                    for number in 0..250 {
                        keep(&ledger, id(family + task * 1000 + number)).await.unwrap();
                    }
                })
            })
            .collect();
        for task in tasks {
            task.await.unwrap();
        }
        assert_eq!(ledger.lost(), 0);
    });
}

/// `cargo test --release -p backstop-provenance --test ledgers --all-features -- --ignored --nocapture times`
#[test]
#[ignore = "prints times"]
#[expect(clippy::disallowed_methods, reason = "measures real time")]
fn times() {
    let n = 20_000_u128;
    let path = fresh("times");
    let ledger = JsonlLedger::open(&path).unwrap();
    block_on(async {
        let began = std::time::Instant::now();
        for number in 0..n / 10 {
            keep(&ledger, id(number)).await.unwrap();
        }
        let took = began.elapsed().as_nanos() * 10 / n;
        println!("jsonl: {took} ns for a start that is waited for and a finish, one by one");
        let began = std::time::Instant::now();
        for number in 0..n / 500 {
            let starts: Vec<_> =
                (0..500).map(|k| ledger.started(call_started(id(number * 500 + k)))).collect();
            for start in starts {
                start.await.unwrap().finish(call_finished(id(0)));
            }
        }
        let took = began.elapsed().as_nanos() / n;
        println!("jsonl: {took} ns for a start and a finish, 500 in flight, making them included");
    });
    drop(ledger);
    let began = std::time::Instant::now();
    let lines = jsonl::read(&path).unwrap().count();
    println!("jsonl: {} ns a line to read", began.elapsed().as_nanos() / lines as u128);
}
