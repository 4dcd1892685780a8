//! Streams that fail at every boundary between two events, in every way, in every dialect.

use backstop::{Class, Hold};

use super::wires::{Got, HOLDS, IDLE, WAYS, WIRES, Way, Wire, call};
use crate::support::millis;

/// Breaks a stream at each boundary in each way, and gives each to `check` with the number of events before the break.
async fn break_everywhere(hold: Hold, check: impl Fn(&Wire, usize, Way, &Got)) {
    for wire in &WIRES {
        for kept in 0..=wire.events("first").len() {
            for way in WAYS {
                let broken = wire.broken_answer(wire.sent("first", kept, way), way);
                let got = call(wire, hold, [broken, wire.good_answer("second")]).await;
                check(wire, kept, way, &got);
            }
        }
    }
}

/// What must hold in any case: one attempt's bytes alone, whole or ending abnormally.
fn assert_honest(wire: &Wire, kept: usize, way: Way, got: &Got) {
    let case = format!("{}, {kept} events, {way:?}: {got:#?}", wire.name);
    assert_eq!(got.status, 200, "{case}");
    let first = wire.sent("first", kept, way).concat();
    match got.attempts {
        1 => {
            assert_eq!(got.text, first, "{case}");
            assert_eq!(got.end.is_err(), wire.fails(kept, way), "{case}");
        }
        _ => {
            assert_eq!(got.text, wire.good("second"), "{case}");
            assert!(got.end.is_ok(), "{case}");
        }
    }
}

/// A failure that was retried cost its own time and one wait.
fn assert_retried(wire: &Wire, kept: usize, way: Way, got: &Got) {
    let case = format!("{}, {kept} events, {way:?}: {got:#?}", wire.name);
    assert_eq!(got.attempts, 2, "{case}");
    let own = if way == Way::Silence { IDLE } else { millis(0) };
    assert_eq!(got.elapsed, own + millis(500), "{case}");
}

fn assert_not_retried(wire: &Wire, kept: usize, way: Way, got: &Got) {
    let case = format!("{}, {kept} events, {way:?}: {got:#?}", wire.name);
    assert_eq!(got.attempts, 1, "{case}");
    let own = if way == Way::Silence { IDLE } else { millis(0) };
    assert_eq!(got.elapsed, own, "{case}");
}

#[tokio::test(start_paused = true)]
async fn a_good_stream_is_handed_on_byte_for_byte_in_every_mode() {
    for wire in &WIRES {
        for hold in HOLDS {
            let got = call(wire, hold, [wire.good_answer("only")]).await;
            assert_eq!((got.attempts, got.status), (1, 200), "{} {hold:?}", wire.name);
            assert_eq!(got.text, wire.good("only"), "{} {hold:?}", wire.name);
            assert!(got.end.is_ok(), "{} {hold:?}: {got:?}", wire.name);
            if hold != Hold::Headers {
                assert_eq!(got.verdict.map(|verdict| verdict.class()), Some(Class::Success));
            }
        }
    }
}

#[tokio::test(start_paused = true)]
async fn held_until_complete_every_failure_is_retried_and_invisible() {
    break_everywhere(Hold::Complete, |wire, kept, way, got| {
        assert_honest(wire, kept, way, got);
        if wire.fails(kept, way) {
            assert_retried(wire, kept, way, got);
        } else {
            assert_eq!(got.attempts, 1, "{}, {kept} events, {way:?}", wire.name);
        }
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn held_until_content_a_failure_is_retried_before_it_and_never_after() {
    break_everywhere(Hold::FirstContent, |wire, kept, way, got| {
        assert_honest(wire, kept, way, got);
        if wire.fails(kept, way) && kept < wire.until_content {
            assert_retried(wire, kept, way, got);
        } else if wire.fails(kept, way) {
            assert_not_retried(wire, kept, way, got);
        } else {
            assert_eq!(got.attempts, 1, "{}, {kept} events, {way:?}", wire.name);
        }
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn held_until_its_head_an_answer_is_never_retried_and_its_failure_is_an_abnormal_end() {
    break_everywhere(Hold::Headers, |wire, kept, way, got| {
        assert_honest(wire, kept, way, got);
        if wire.fails(kept, way) {
            assert_not_retried(wire, kept, way, got);
        } else {
            assert_eq!(got.attempts, 1, "{}, {kept} events, {way:?}", wire.name);
        }
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn after_its_own_end_a_stream_cannot_fail_any_more() {
    for wire in WIRES.iter().filter(|wire| wire.has_end) {
        let all = wire.events("first").len();
        for hold in HOLDS {
            for way in WAYS {
                let broken = wire.broken_answer(wire.sent("first", all, way), way);
                let got = call(wire, hold, [broken, wire.good_answer("second")]).await;
                let case = format!("{} {hold:?} {way:?}: {got:#?}", wire.name);
                assert_eq!(got.attempts, 1, "{case}");
                assert!(got.end.is_ok(), "{case}");
                assert!(got.text.starts_with(&wire.good("first")), "{case}");
            }
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_stream_that_ends_at_any_byte_is_whole_only_with_its_end_in_it() {
    for wire in &WIRES {
        let (events, good) = (wire.events("first"), wire.good("first"));
        let needed: usize = events[..events.len() - wire.dispensable].iter().map(String::len).sum();
        let needed = good[..needed].trim_end().len();
        let (second, whole) = (wire.good_answer("second"), wire.good("second"));
        for cut in 0..good.len() {
            let broken = wire.broken_answer([good.as_bytes()[..cut].to_vec()], Way::Eof);
            let script = [broken, second.clone()];
            let got = call(wire, Hold::Complete, script).await;
            let case = format!("{} cut at {cut} of {needed}", wire.name);
            assert!(got.end.is_ok(), "{case}");
            if cut < needed {
                assert_eq!((got.attempts, got.text), (2, whole.clone()), "{case}");
            } else {
                assert_eq!(got.attempts, 1, "{case}");
                assert_eq!(got.text.as_bytes(), &good.as_bytes()[..cut], "{case}");
            }
        }
    }
}
