use std::collections::BTreeMap;
use std::io::Read;

use backstop_core::dialect::{BodyEnd, Dialect, Mode, Presentation};
use backstop_core::{Action, ActionTable, Verdict};
use serde_json::{Value, json};

use crate::support::{Case, Random, cases, judged, known_cases};

/// What a case expects of a verdict, and what else it tolerates.
fn differences(case: &Case, verdict: &Verdict) -> Vec<String> {
    let got = got(verdict);
    let ended_well = case.expect["stream_end"].is_null() || case.expect["stream_end"] == "complete";
    let mut differences = Vec::new();
    for (field, expected) in case.expect.as_object().unwrap() {
        let is_asserted = match field.as_str() {
            "alt" => false,
            // Of a stream that did not end well nobody promises these.
            "usage" | "model" | "request_id" => ended_well || !expected.is_null(),
            _ => true,
        };
        if is_asserted && got[field] != *expected {
            let tolerated = case.expect["alt"][field]
                .as_array()
                .is_some_and(|others| others.contains(&got[field]));
            let word = if tolerated { "tolerated" } else { "WRONG" };
            differences.push(format!(
                "{}: {field} is {}, expected {expected} ({word})",
                case.id, got[field]
            ));
        }
    }
    differences
}

fn got(verdict: &Verdict) -> Value {
    let class = match verdict.class().as_str() {
        class @ ("auth" | "invalid_request" | "not_found" | "too_large") => {
            format!("permanent:{class}")
        }
        class => class.to_owned(),
    };
    json!({
        "class": class,
        "retryable": ActionTable::default().decide(verdict) == Action::Retry,
        "retry_after_ms": verdict.hint().map(|hint| u64::try_from(hint.wait().as_millis()).unwrap()),
        "code": verdict.code(),
        "stream_end": verdict.stream_end().map(|end| end.as_str()),
        "content_started": verdict.content_started(),
        "usage": verdict.usage().map(|u| json!({"input": u.input_tokens, "output": u.output_tokens})),
        "model": verdict.model(),
        "request_id": verdict.request_id(),
    })
}

#[test]
fn every_case_of_a_known_dialect_is_judged_as_expected() {
    let mut wrong = Vec::new();
    let mut judged = BTreeMap::<_, u32>::new();
    for case in known_cases() {
        assert_eq!(case.judge(Mode::Provider).is_stream(), case.streaming, "{}", case.id);
        let (verdict, _) = case.judged(Mode::Provider);
        wrong.extend(differences(&case, &verdict));
        *judged.entry(case.provider).or_default() += 1;
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert_eq!(
        judged.into_iter().collect::<Vec<_>>(),
        [("anthropic".to_owned(), 57), ("gemini".to_owned(), 36), ("openai".to_owned(), 100),]
    );
}

/// So that nobody takes a case for passed that was never looked at.
#[test]
fn the_other_cases_are_counted() {
    let mut skipped = BTreeMap::<_, u32>::new();
    for case in cases() {
        let why = if Dialect::from_name(&case.provider).is_none() {
            case.provider
        } else if case.status == 0 {
            "no answer came: the layer judges the error".to_owned()
        } else {
            continue;
        };
        *skipped.entry(why).or_default() += 1;
    }
    println!("cases not judged here: {skipped:#?}");
    assert_eq!(skipped.values().sum::<u32>(), 186, "a new dialect changes this number");
}

#[test]
fn no_cut_changes_a_verdict() {
    let mut random = Random(7);
    let mut streams = 0;
    for case in known_cases().into_iter().filter(|case| case.streaming) {
        streams += 1;
        let whole = case.judged(Mode::Provider);
        let bytes = case.chunks.concat();
        let check = |chunks: &[&[u8]]| {
            let cut = judged(case.judge(Mode::Provider), b"", chunks.iter().copied(), case.end);
            assert_eq!(
                cut,
                whole,
                "{} cut as {:?}",
                case.id,
                chunks.iter().map(|c| c.len()).collect::<Vec<_>>()
            );
        };
        for at in 0..=bytes.len() {
            let (head, tail) = bytes.split_at(at);
            check(&[head, tail]);
        }
        check(&bytes.chunks(1).collect::<Vec<_>>());
        for _ in 0..16 {
            check(&random.cut(&bytes));
        }
    }
    assert!(streams > 70, "{streams}");
}

/// A layer that releases a stream at its first content asks before the end.
#[test]
fn the_verdict_so_far_is_a_success_until_something_fails() {
    for case in known_cases().into_iter().filter(|case| case.streaming) {
        let mut judge = case.judge(Mode::Provider);
        for chunk in &case.chunks {
            judge.push(chunk);
            if judge.is_whole() {
                break;
            }
            let so_far = judge.verdict_so_far();
            assert_eq!(so_far.stream_end(), None, "{}", case.id);
            assert_eq!(so_far.content_started(), Some(judge.content_started()), "{}", case.id);
        }
    }
}

#[test]
fn compressed_bodies_say_more_once_they_are_unpacked() {
    let mut unpacked = 0;
    for case in known_cases().iter().filter(|case| case.end == BodyEnd::Unread) {
        let mut body = Vec::new();
        flate2::read::GzDecoder::new(&case.body[..]).read_to_end(&mut body).unwrap();
        let (verdict, _) = judged(case.judge(Mode::Provider), &body, [], BodyEnd::Eof);
        for difference in differences(case, &verdict) {
            assert!(difference.ends_with("(tolerated)"), "{difference}");
        }
        assert!(verdict.code().is_some(), "{}", case.id);
        unpacked += 1;
    }
    assert!(unpacked > 0);
}

/// What a case says of an answer that is shown at the end: a 2xx that failed is no 2xx any more,
/// unless the answer itself tells.
#[test]
fn no_failure_is_shown_as_an_answer() {
    for case in known_cases() {
        let (verdict, shown) = case.judged(Mode::Provider);
        let by_finish = verdict.evidence() == backstop_core::Evidence::FinishReason;
        let is_bad_2xx = (200..300).contains(&case.status) && verdict.class().is_failure();
        match shown {
            Presentation::AsSent => assert!(!is_bad_2xx || by_finish, "{}", case.id),
            Presentation::Error { status, body } => {
                assert!(is_bad_2xx, "{}", case.id);
                assert_eq!(status, verdict.effective_status(), "{}", case.id);
                assert!(status.is_client_error() || status.is_server_error(), "{}", case.id);
                let body: Value = serde_json::from_slice(&body).unwrap();
                assert!(body["error"]["message"].is_string(), "{}: {body}", case.id);
                assert_eq!(body["type"] == "error", case.provider == "anthropic", "{}", case.id);
            }
            other => panic!("{}: {other:?}", case.id),
        }
    }
}
