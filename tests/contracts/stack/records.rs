//! The record of a call equals what the providers saw of it.

use backstop::dialect::Dialect;
use backstop::provenance::CallRecord;
use backstop::testing::{Answer, Script, ScriptedProvider, SeenRequest, script};
use backstop::{CallOptions, Chain, Hold, Outcome, Profile, Provenance, Rung};
use tower::{Layer, ServiceExt};

use super::recording;
use crate::rig::{client, post, receive};

/// The providers' weather of one seed: what each rung's provider answers, one after the other.
fn weather(random: &mut fastrand::Rng, model: &str) -> Vec<Answer> {
    let words = ["All ", "is ", "well."];
    let one = |random: &mut fastrand::Rng| match random.u32(..12) {
        0..3 => script::openai::chat(model, "All is well."),
        3 => script::openai::chat_stream(model, words),
        4 => script::openai::error(429, "requests", "rate_limit_exceeded"),
        5 => script::openai::error(503, "server_error", "server_is_overloaded"),
        6 => script::openai::error(400, "invalid_request_error", "invalid_prompt"),
        7 => script::openai::error(401, "invalid_request_error", "invalid_api_key"),
        8 => Answer::nothing().reset(),
        9 => script::openai::chat_stream(model, words).cut_after_events(2),
        10 => script::openai::error_first("server_error", None),
        _ => script::openai::error(429, "insufficient_quota", "insufficient_quota"),
    };
    (0..400).map(|_| one(random)).collect()
}

/// Sends seeded calls one after the other, and compares record and log of each.
#[tokio::test]
async fn the_record_equals_what_the_providers_saw_for_seeded_mixed_calls() {
    let (mut outcomes, mut fallbacks, mut attempts) = (Vec::new(), 0, 0);
    for seed in 0..6 {
        let mut random = fastrand::Rng::with_seed(seed);
        let mut providers = Vec::new();
        for rung in 0..3 {
            let script = Script::new(weather(&mut random, &format!("model-{rung}-2026")));
            providers.push(ScriptedProvider::start(script).await.unwrap());
        }
        let rungs = providers.iter().enumerate().map(|(n, provider)| {
            let profile = Profile::new(
                format!("id-{n}"),
                format!("model-{n}"),
                format!("p-{n}"),
                Dialect::OPENAI,
            );
            let profile = profile.unwrap().with_endpoint(provider.url().parse().unwrap());
            let profile = profile.unwrap().with_api_key(&format!("key-{n}")).unwrap();
            Rung::new(profile, 3 - n as u32).unwrap()
        });
        let chain = Chain::new(rungs).unwrap();
        let hold = [Hold::FirstContent, Hold::Complete][seed as usize % 2];
        let (stack, ledger) = recording(chain);
        let stack = stack.hold(hold).build().unwrap().layer(client());
        let mut seen = [0; 3];
        for n in 0..30 {
            let body = format!(r#"{{"model":"alias-x","n":{n},"messages":[]}}"#);
            let mut request = post("http://nobody.test/v1/chat/completions", body.clone());
            let node = format!("node-{n}");
            request.extensions_mut().insert(CallOptions::new().run("r").node(&*node));
            let who = Provenance::new();
            request.extensions_mut().insert(who.clone());
            let answer = match stack.clone().oneshot(request).await {
                Ok(response) => Some(receive(response).await),
                Err(_) => None,
            };
            let records = ledger.calls();
            assert_eq!(records.len(), n + 1, "one record a call");
            let record = records.iter().find(|r| r.node.as_deref() == Some(&*node)).unwrap();
            let log = news(&providers, &mut seen);
            compare(record, &log, &body);
            let delivered = answer.as_ref().is_some_and(|a| a.status == 200 && a.error.is_none());
            assert_eq!(record.outcome == Outcome::Ok, delivered, "{record:#?}");
            assert_eq!(who.outcome(), Some(record.outcome));
            let producer = record.produced_by.as_ref().and_then(|own| own.profile.clone());
            if let (true, Some(answer)) = (delivered, answer) {
                let rung = record.attempts.last().unwrap().rung.unwrap();
                assert_eq!(producer, Some(format!("id-{rung}")));
                let reported = format!("model-{rung}-2026");
                assert!(answer.text().contains(&reported), "the bytes are that rung's");
                let recorded = record.produced_by.as_ref().unwrap();
                assert_eq!(recorded.reported_model.as_ref(), Some(&reported));
                assert_eq!(record.fallback_used, rung > 0);
                fallbacks += usize::from(rung > 0);
            } else {
                assert_eq!(producer, None, "{record:#?}");
            }
            outcomes.push(record.outcome);
            attempts += record.attempts.len();
        }
    }
    // The seeds reach everything.
    for outcome in [Outcome::Ok, Outcome::Incomplete, Outcome::Rejected] {
        assert!(outcomes.contains(&outcome), "no call was {outcome:?}");
    }
    assert!(fallbacks > 5 && attempts > 250, "{fallbacks} fallbacks, {attempts} attempts");
}

/// What each provider saw since this was asked last, with its rung.
fn news(providers: &[ScriptedProvider], seen: &mut [usize; 3]) -> Vec<(u32, SeenRequest)> {
    let mut all = Vec::new();
    for (rung, (provider, seen)) in (0..).zip(providers.iter().zip(seen)) {
        let log = provider.log();
        all.extend(log[*seen..].iter().cloned().map(|request| (rung, request)));
        *seen = log.len();
    }
    all.sort_by_key(|(_, request)| request.arrived);
    all
}

fn compare(record: &CallRecord, log: &[(u32, SeenRequest)], sent: &str) {
    assert_eq!(record.attempts.len(), log.len(), "{record:#?}");
    assert_eq!(record.retries as usize + 1, log.len().max(1));
    for (n, (attempt, (rung, seen))) in (1..).zip(record.attempts.iter().zip(log)) {
        assert_eq!((attempt.attempt, attempt.rung), (n, Some(*rung)), "number and order");
        let model = format!("model-{rung}");
        assert_eq!(attempt.model.as_ref(), Some(&model));
        let body = String::from_utf8(seen.body.to_vec()).unwrap();
        assert_eq!(body, sent.replace("alias-x", &model), "every other byte is the caller's");
        assert_eq!(attempt.request_bytes, Some(body.len() as u64));
        assert_eq!(seen.header("authorization").unwrap(), format!("Bearer key-{rung}"));
        let endpoint = attempt.endpoint.as_ref().unwrap();
        let host = seen.header("host").unwrap();
        assert_eq!(*endpoint, format!("http://{host}{}", seen.path()));
    }
    let failed = record.attempts.split_last().map_or(&[][..], |(_, before)| before);
    for attempt in failed {
        assert!(attempt.class != "success" && attempt.class != "cancelled", "{attempt:#?}");
    }
    assert_eq!(record.requested_model.as_deref(), Some("alias-x"));
    assert_eq!(record.planned_chain.len(), 3);
}

/// B030: a backup answered, and the record and the headers say so, not the primary's name.
#[tokio::test]
async fn b030_the_producer_is_who_answered() {
    for streams in [false, true] {
        let p = ScriptedProvider::start([Answer::status(503)]).await.unwrap();
        let answer = if streams {
            script::openai::chat_stream("model-b-2025-01-01", ["a", "b"])
        } else {
            script::openai::chat("model-b-2025-01-01", "ab")
        };
        let q = ScriptedProvider::start([answer]).await.unwrap();
        let profile = |id: &str, model: &str, url: String| {
            let profile = Profile::new(id, model, id, Dialect::OPENAI).unwrap();
            profile.with_endpoint(url.parse().unwrap()).unwrap().without_api_key()
        };
        let chain = Chain::new([
            Rung::new(profile("P", "model-a", p.url()), 1).unwrap(),
            Rung::new(profile("Q", "model-b", q.url()), 1).unwrap(),
        ]);
        let (stack, ledger) = recording(chain.unwrap());
        let stack = stack.answer_headers(true).hold(Hold::Complete).build().unwrap();
        let request = post("http://nobody.test/v1/chat/completions", r#"{"model":"alias-x"}"#);
        let answer = receive(stack.layer(client()).oneshot(request).await.unwrap()).await;
        let header = |name| answer.header(name).unwrap();
        assert_eq!(header("x-backstop-profile"), "Q");
        assert_eq!(header("x-backstop-model"), "model-b-2025-01-01");
        assert_eq!((header("x-backstop-attempts"), header("x-backstop-fallback")), ("2", "true"));
        assert!(answer.header("x-should-retry").is_none(), "a good answer needs no last word");
        assert!(answer.text().contains("model-b-2025-01-01"), "the body's model is Q's own");
        let record = ledger.calls().remove(0);
        assert_eq!(record.requested_model.as_deref(), Some("alias-x"));
        let attempts: Vec<_> = record
            .attempts
            .iter()
            .map(|a| {
                (a.profile.as_deref(), a.model.as_deref(), a.status, a.reported_model.as_deref())
            })
            .collect();
        assert_eq!(
            attempts,
            [
                (Some("P"), Some("model-a"), Some(503), None),
                (Some("Q"), Some("model-b"), Some(200), Some("model-b-2025-01-01")),
            ]
        );
        let producer = record.produced_by.unwrap();
        assert_eq!(producer.profile.as_deref(), Some("Q"));
        assert_eq!(producer.reported_model.as_deref(), Some("model-b-2025-01-01"));
        assert!(record.fallback_used && record.outcome == Outcome::Ok);
    }
}

#[tokio::test]
async fn what_is_handed_on_as_a_failure_tells_sdks_not_to_try_again() {
    let provider =
        ScriptedProvider::start(Script::new([Answer::status(503)]).repeat_last()).await.unwrap();
    let profile = Profile::new("p", "m", "p", Dialect::OPENAI).unwrap();
    let chain = Chain::new([Rung::new(profile, 2).unwrap()]).unwrap();
    let (stack, ledger) = recording(chain);
    let request = post(format!("{}/v1/chat/completions", provider.url()), r#"{"model":"x"}"#);
    let answer = stack.build().unwrap().layer(client()).oneshot(request).await.unwrap();
    assert_eq!((answer.status().as_u16(), provider.requests()), (503, 2));
    assert_eq!(answer.headers()["x-should-retry"], "false");
    drop(answer);
    assert_eq!(ledger.calls()[0].outcome, Outcome::Incomplete);
}

#[tokio::test]
async fn the_usage_of_every_attempt_is_kept_apart() {
    let spent = script::openai::chat_stream("m-2026", ["All ", "is "]).cut_after_events(2);
    let provider = ScriptedProvider::start([spent, script::openai::chat("m-2026", "All is well.")])
        .await
        .unwrap();
    let profile = Profile::new("p", "m", "p", Dialect::OPENAI).unwrap();
    let (stack, ledger) = recording(Chain::single(profile));
    let stack = stack.hold(Hold::Complete).build().unwrap().layer(client());
    let request = post(format!("{}/v1/chat/completions", provider.url()), r#"{"model":"x"}"#);
    receive(stack.oneshot(request).await.unwrap()).await;
    let record = ledger.calls().remove(0);
    let usages: Vec<_> = record.attempts.iter().map(|a| a.usage.is_some()).collect();
    assert_eq!(usages, [false, true], "what broke off told no usage");
    assert_eq!(record.usage, record.attempts[1].usage);
    assert_eq!(record.attempts[0].stream_end.as_deref(), Some("truncated"));
}
