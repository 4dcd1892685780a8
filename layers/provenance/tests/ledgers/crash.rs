//! Processes that are killed.

use std::collections::HashSet;
use std::io::{BufRead, BufReader, Write};
use std::process::{Command, Stdio};

use backstop_core::CallId;
use backstop_provenance::Outcome;
use backstop_provenance::jsonl::{self, JsonlLedger};

use crate::parts::{block_on, fresh, id, ids, keep};

#[test]
fn b033_after_each_kill_all_that_was_acknowledged_is_there_and_later_records_are_whole() {
    let path = fresh("killed");
    let mut acknowledged = HashSet::new();
    let mut random = fastrand::Rng::with_seed(33);
    for round in 0..ROUNDS {
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.args(["--exact", "crash::child_is_killed", "--ignored", "--nocapture"]);
        command.env("LEDGER_PATH", &path).env("LEDGER_ROUND", round.to_string());
        let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
        let mut out = BufReader::new(child.stdout.take().unwrap());
        let mut wait_for = random.u32(1..300);
        let mut line = Vec::new();
        while out.read_until(b'\n', &mut line).unwrap() > 0 {
            let text = std::str::from_utf8(&line).unwrap();
            if let Some(call) = text.strip_prefix("kept ") {
                // The pipe may hold a torn line, too; its call was acknowledged all the same.
                acknowledged.extend(CallId::parse(call.trim_end()));
                wait_for = wait_for.saturating_sub(1);
            }
            if wait_for == 0 {
                // SIGKILL. What is in the pipe is still read.
                child.kill().unwrap();
            }
            line.clear();
        }
        assert!(!child.wait().unwrap().success(), "it was killed");
        if round % 2 == 1 {
            // A kill seldom tears a line; half of them do here.
            let mut file = std::fs::OpenOptions::new().append(true).open(&path).unwrap();
            file.write_all(br#"{"schema":"backstop/record/v1","record":"call_sta"#).unwrap();
        }
        let later: Vec<_> = (0..10).map(|number| id(later_base(round) + number)).collect();
        block_on(async {
            let ledger = JsonlLedger::open(&path).unwrap();
            assert_eq!(ledger.repaired().is_some(), round % 2 == 1, "{round}");
            for call in &later {
                keep(&ledger, *call).await.unwrap();
            }
            ledger.close().await.unwrap();
        });
        let told = jsonl::calls(&path).unwrap();
        assert!(told.damaged.len() as u128 <= round + 1, "{:?}", told.damaged);
        let there: HashSet<_> = ids(&told.calls).into_iter().collect();
        assert!(acknowledged.is_subset(&there), "{round}");
        let whole = told.calls.iter().filter(|call| call.outcome == Outcome::Ok);
        let whole: HashSet<_> = whole.map(|call| call.call).collect();
        assert!(later.iter().all(|call| whole.contains(call)), "{round}");
    }
    assert!(acknowledged.len() as u128 > ROUNDS * 10, "{}", acknowledged.len());
}

fn later_base(round: u128) -> u128 {
    (round << 32) + (1 << 31)
}

#[test]
#[ignore = "a child of another test"]
fn child_is_killed() {
    let (Ok(path), Ok(round)) = (std::env::var("LEDGER_PATH"), std::env::var("LEDGER_ROUND"))
    else {
        return;
    };
    let family = round.parse::<u128>().unwrap() << 32;
    block_on(async {
        let ledger = JsonlLedger::open(path).unwrap();
        let tasks: Vec<_> = (0..4_u128)
            .map(|task| {
                let ledger = ledger.clone();
                tokio::spawn(async move {
                    for number in 0..1 << 20 {
                        let call = id(family + (task << 24) + number);
                        keep(&ledger, call).await.unwrap();
                        let mut out = std::io::stdout();
                        writeln!(out, "\nkept {call}").unwrap();
                        out.flush().unwrap();
                    }
                })
            })
            .collect();
        for task in tasks {
            task.await.unwrap();
        }
    });
}

const ROUNDS: u128 = 20;
