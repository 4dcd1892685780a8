use backstop_provenance::{Journal, Outcome};
use proptest::prelude::*;

use crate::parts::{id, parts};
use crate::support::Entry;

fn add(journal: &mut Journal, part: &Entry) {
    match part {
        Entry::Started(started) => journal.started(started),
        Entry::Finished(finished) => journal.finished(finished),
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn parts_may_come_in_any_order_and_twice(
        order in Just((0..6).chain(0..6).collect::<Vec<usize>>()).prop_shuffle(),
    ) {
        let parts = parts(id(1));
        let mut plain = Journal::new();
        parts.iter().for_each(|part| add(&mut plain, part));
        let mut shuffled = Journal::new();
        order.iter().for_each(|at| add(&mut shuffled, &parts[*at]));
        prop_assert_eq!(plain.into_calls(), shuffled.into_calls());
    }

    #[test]
    fn whatever_is_missing_the_rest_is_told(
        present in proptest::collection::vec(any::<bool>(), 18),
    ) {
        let mut journal = Journal::new();
        let all: Vec<_> = (0..3).flat_map(|n| parts(id(n))).collect();
        for (part, _) in all.iter().zip(&present).filter(|(_, is_present)| **is_present) {
            add(&mut journal, part);
        }
        let calls = journal.into_calls();
        for call in &calls {
            let n = (0..3).find(|n| id(*n) == call.call).unwrap();
            let has = |at: usize| present[usize::try_from(n).unwrap() * 6 + at];
            let outcome = if has(5) { Outcome::Ok } else { Outcome::Interrupted };
            prop_assert_eq!(call.outcome, outcome);
            prop_assert_eq!(call.started_at.is_some(), has(0));
            prop_assert_eq!(call.duration_ms.is_some(), has(5));
            let attempts = usize::from(has(1) || has(2)) + usize::from(has(3) || has(4));
            prop_assert_eq!(call.attempts.len(), attempts);
            for attempt in &call.attempts {
                let at = if attempt.attempt == 1 { 1 } else { 3 };
                prop_assert_eq!(attempt.endpoint.is_some(), has(at));
                prop_assert_eq!(attempt.class == "interrupted", !has(at + 1));
            }
        }
        let expected = (0..3).filter(|n| present[n * 6..n * 6 + 6].contains(&true)).count();
        prop_assert_eq!(calls.len(), expected);
    }
}
