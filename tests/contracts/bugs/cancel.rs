//! A caller who is gone: B043.

use backstop::classify::Timeouts;
use backstop::testing::script::openai;
use backstop::testing::{
    Answer, CallEnd, ExchangeEnd, Outcome, ReadinessProbe, Script, ScriptedBody, ScriptedProvider,
    ScriptedService, Step,
};
use backstop::vocabulary::StreamEnd;
use backstop::{AttemptCell, Class, ClassifyLayer};
use http_body_util::BodyExt;
use tokio::time::{Instant, sleep, timeout};
use tower::{Layer, ServiceExt};

use crate::rig::{ASK, CHAT, client, doubling, ms, post, rig, secs};

fn timeouts() -> Timeouts {
    Timeouts::new().head(Some(secs(2)))
}

#[tokio::test(start_paused = true)]
async fn b043_a_caller_who_leaves_during_an_attempt_ends_it_at_once_and_there_is_no_other() {
    let service = ScriptedService::new(Script::new([Outcome::never()]).repeat_last());
    let probed = ReadinessProbe::new(service.clone());
    let probe = probed.probe();
    let classify = ClassifyLayer::builder().timeouts(timeouts());
    let rig = rig(doubling(secs(1)).max_retries(2), classify, probed);
    let start = Instant::now();
    assert!(timeout(ms(500), rig.send(post(CHAT, ASK))).await.is_err());
    assert_eq!(service.log()[0].end, Some(CallEnd::Dropped(start + ms(500))));
    sleep(secs(15)).await;
    assert_eq!((service.calls(), probe.in_flight(), probe.live_permits()), (1, 0, 0));
    drop(rig);
    assert_eq!(probe.live_instances(), 0, "nothing outlives the call");
}

#[tokio::test(start_paused = true)]
async fn b043_a_caller_who_leaves_during_a_wait_ends_it_at_once_and_no_attempt_follows() {
    for with_classify in [true, false] {
        let service = ScriptedService::new(Script::new([Outcome::status(503)]).repeat_last());
        let probed = ReadinessProbe::new(service.clone());
        let probe = probed.probe();
        let backoff = doubling(secs(1)).max_retries(2);
        // Waits of 1 and 2 s: at 1.2 s it is the second.
        let leave = ms(1_200);
        if with_classify {
            let rig = rig(backoff, ClassifyLayer::builder().timeouts(timeouts()), probed);
            assert!(timeout(leave, rig.send(post(CHAT, ASK))).await.is_err());
        } else {
            let alone = backoff.build().unwrap().layer(probed);
            assert!(timeout(leave, alone.oneshot(post(CHAT, ASK))).await.is_err());
        }
        assert_eq!((service.calls(), probe.live_permits()), (2, 0));
        sleep(secs(15)).await;
        assert_eq!((service.calls(), probe.in_flight(), probe.live_permits()), (2, 0, 0));
        assert_eq!(probe.max_in_flight(), 1);
        assert_eq!(probe.live_instances(), 0, "nothing outlives the call");
    }
}

#[tokio::test(start_paused = true)]
async fn b043_a_caller_who_stops_reading_a_stream_leaves_it_cancelled_and_closes_it() {
    let events = openai::chat_events("model-a", ["a", "b", "c", "d"], Default::default());
    let steps = events.iter().map(|data| Step::data(format!("data: {data}\n\n")));
    let body = ScriptedBody::new(steps.collect::<Vec<_>>()).unknown_size();
    let probe = body.probe();
    let answer = Outcome::status(200).header("content-type", "text/event-stream").body(body);
    let service = ScriptedService::new([answer]);
    let rig = rig(doubling(secs(1)).max_retries(2), ClassifyLayer::builder(), service.clone());
    let response = rig.stack.oneshot(post(CHAT, ASK)).await.unwrap();
    let cell = AttemptCell::of(&response).unwrap().clone();
    let mut body = Box::pin(response.into_body());
    for _ in 0..4 {
        body.frame().await.unwrap().unwrap();
    }
    assert!(!probe.is_dropped());
    drop(body);
    assert!(probe.is_dropped());
    let last = cell.last_verdict().unwrap();
    assert_eq!((last.class(), last.stream_end()), (Class::Cancelled, Some(StreamEnd::Truncated)));
    assert!(cell.end().is_some() && cell.bytes() > 0);
    sleep(secs(15)).await;
    assert_eq!(service.calls(), 1);
}

#[tokio::test]
async fn b043_the_connection_closes_with_the_caller() {
    let stream = openai::chat_stream("model-a", ["a", "b", "c"]).cut_after_events(3).silence();
    let provider = ScriptedProvider::start([Answer::nothing().silence(), stream]).await.unwrap();
    let url = format!("{}/v1/chat/completions", provider.url());
    let classify = ClassifyLayer::builder().timeouts(timeouts());
    let rig = rig(doubling(ms(50)).max_retries(2), classify, client());

    let gone = timeout(ms(500), rig.send(post(&url, ASK))).await;
    assert!(gone.is_err());
    timeout(secs(10), provider.wait_until_disconnected()).await.unwrap();
    assert_eq!(provider.requests(), 1);

    let response = rig.stack.clone().oneshot(post(&url, ASK)).await.unwrap();
    let mut body = Box::pin(response.into_body());
    body.frame().await.unwrap().unwrap();
    drop(body);
    timeout(secs(10), provider.wait_until_disconnected()).await.unwrap();

    // Longer than every wait and timeout that was set would need for another send.
    sleep(ms(300)).await;
    let log = provider.log();
    assert_eq!(log.len(), 2);
    assert!(log.iter().all(|seen| matches!(seen.end, Some(ExchangeEnd::PeerGone(_)))), "{log:?}");
}
