//! The clients below a stack, and those above it: on real sockets, and the provider's log says what was sent.
//!
//! What every client at the bottom has to do is written once here, over any of them.

mod async_openai;
mod hyper;
mod reqwest;

use std::error::Error as StdError;
use std::fmt;
use std::future::poll_fn;
use std::time::Duration;

use backstop::testing::script::openai;
use backstop::testing::{Answer, ExchangeEnd, ScriptedProvider, unused_addr};
use backstop::{
    BackoffLayer, BoxError, Class, ClassifyLayer, Error, Jitter, RequestBody, Schedule, Verdict,
};
use bytes::Bytes;
use http::{Request, Response};
use http_body::Body;
use http_body_util::BodyExt;
use tokio::time::timeout;
use tower::{Service, ServiceBuilder, ServiceExt};

use crate::rig::{ASK, ms, post, receive, secs};
use crate::support::CHAT;

/// A query that nobody may see again.
const SECRET: &str = "?key=AIzaSyA-abcdefg_hijklmn-op1234567abcd";

fn quick_backoff() -> BackoffLayer {
    let schedule = Schedule::new(ms(1), ms(5)).with_jitter(Jitter::None);
    BackoffLayer::builder().max_retries(3).schedule(schedule).build().unwrap()
}

fn chat(provider: &ScriptedProvider) -> Request<RequestBody> {
    post(format!("{}{CHAT}", provider.url()), ASK)
}

/// The bytes of an answer's body as they come when nothing is between its sender and us.
async fn body_on_the_wire(answer: &Answer) -> Vec<u8> {
    let provider = ScriptedProvider::start([answer.clone()]).await.unwrap();
    let response = crate::rig::client().oneshot(chat(&provider)).await.unwrap();
    response.into_body().collect().await.unwrap().to_bytes().into()
}

/// Everything an error says: its own words and its sources'.
fn all_words(error: &(dyn StdError + 'static)) -> String {
    let mut words = format!("{error} {error:?} {error:#?}");
    let mut next = error.source();
    while let Some(source) = next {
        words += &format!(" {source} {source:?} {source:#?}");
        next = source.source();
    }
    words
}

fn hides_the_url(error: &(dyn StdError + 'static)) {
    let words = all_words(error);
    assert!(!words.contains("abcdefg") && !words.contains("completions"), "{words}");
}

/// A client at the bottom of a stack. The bodies of its answers are `Sync`, so that reqwest can stand above it.
trait Bottom<RB>:
    Service<Request<RequestBody>, Response = Response<RB>, Error = Error, Future: Send>
    + Clone
    + fmt::Debug
    + Send
    + Sync
    + 'static
{
}

impl<S, RB> Bottom<RB> for S where
    S: Service<Request<RequestBody>, Response = Response<RB>, Error = Error, Future: Send>
        + Clone
        + fmt::Debug
        + Send
        + Sync
        + 'static
{
}

/// Plain, chunked, streamed and compressed answers come as they were sent.
async fn answers_are_the_providers_bytes<RB>(client: impl Bottom<RB>)
where
    RB: Body<Data = Bytes>,
    RB::Error: fmt::Debug,
{
    let answers = [
        openai::chat("m", "hello"),
        openai::chat("m", "hello").chunked(),
        openai::chat_stream("m", ["a", "b", "c"]),
        openai::chat_stream("m", ["a", "b", "c"]).pause_between(ms(5)),
        Answer::status(200)
            .header("content-encoding", "gzip")
            .json(crate::rig::gzip(r#"{"packed":true}"#)),
    ];
    let provider = ScriptedProvider::start(answers.clone()).await.unwrap();
    for answer in answers {
        let response = client.clone().oneshot(chat(&provider)).await.unwrap();
        let received = receive(response).await;
        assert_eq!(received.status, 200);
        assert!(received.error.is_none());
        assert_eq!(received.bytes(), body_on_the_wire(&answer).await);
    }
}

/// One request for each call, whatever comes back: a redirect, a failure, a reset, a closed connection.
async fn each_call_is_one_request<RB>(client: impl Bottom<RB>) {
    let provider = ScriptedProvider::start([
        Answer::status(301).header("location", "/elsewhere"),
        Answer::status(307).header("location", "/elsewhere"),
        Answer::status(503).header("retry-after", "0"),
        Answer::nothing().reset(),
        Answer::nothing().close(),
        openai::chat("m", "hello"),
    ])
    .await
    .unwrap();
    let mut seen = Vec::new();
    for _ in 0..6 {
        let result = client.clone().oneshot(chat(&provider)).await;
        seen.push(result.map_or(0, |response| response.status().as_u16()));
    }
    assert_eq!(seen, [301, 307, 503, 0, 0, 200]);
    let log = provider.log();
    assert_eq!(log.iter().map(|seen| seen.path()).collect::<Vec<_>>(), [CHAT; 6]);
    assert_eq!(provider.exhausted(), 0);
}

/// A body of one piece, of many and of none is announced by its length and arrives whole.
async fn content_length_is_exact<RB>(client: impl Bottom<RB>) {
    let pieces = ["{\"model\":", "\"m\"", ",\"messages\":[]}"];
    let large = Bytes::from(vec![b'x'; 3_000_000]);
    let bodies = [
        RequestBody::from(ASK),
        RequestBody::from_pieces(pieces.map(Bytes::from)),
        RequestBody::from_pieces([large.clone(), large]),
        RequestBody::empty(),
    ];
    let script = bodies.each_ref().map(|_| openai::chat("m", "hello"));
    let provider = ScriptedProvider::start(script).await.unwrap();
    for body in bodies.clone() {
        let request = post(format!("{}{CHAT}", provider.url()), body);
        assert_eq!(client.clone().oneshot(request).await.unwrap().status(), 200);
    }
    for (seen, body) in provider.log().iter().zip(bodies) {
        // Of an empty body hyper says nothing, which means the same (RFC 9112, 6.3).
        let announced = (!body.is_empty()).then(|| body.len().to_string());
        assert_eq!(seen.header("content-length"), announced.as_deref());
        assert_eq!(seen.header("transfer-encoding"), None);
        assert_eq!(seen.body, body.to_bytes());
    }
}

/// Neither a refused connection, nor a reset, nor what breaks off in an answer says where it went.
async fn errors_hide_the_url<RB>(client: impl Bottom<RB>)
where
    RB: Body<Data = Bytes>,
    RB::Error: StdError + 'static,
{
    let nobody = unused_addr().unwrap();
    let request = post(format!("{}{CHAT}{SECRET}", nobody.url()), ASK);
    let error = client.clone().oneshot(request).await.err().expect("nobody listens");
    assert_eq!(error.verdict().map(Verdict::class), Some(Class::Transient));
    hides_the_url(&error);

    let provider = ScriptedProvider::start([
        Answer::nothing().reset(),
        openai::chat_stream("m", ["a", "b"]).cut_after_events(1).reset(),
    ])
    .await
    .unwrap();
    let url = format!("{}{CHAT}{SECRET}", provider.url());
    let error = client.clone().oneshot(post(&url, ASK)).await.err().expect("it was reset");
    assert_eq!(error.verdict().map(Verdict::class), Some(Class::Transient));
    hides_the_url(&error);

    let response = client.clone().oneshot(post(&url, ASK)).await.unwrap();
    hides_the_url(&receive(response).await.error.expect("it was cut"));
    assert_eq!(provider.requests(), 2);

    let secretive = format!("{client:?}");
    assert!(!secretive.contains("abcdefg"), "{secretive}");
}

/// A relative URI is the caller's mistake: it is said so, and not repeated.
async fn a_relative_uri_is_no_failed_attempt<RB>(client: impl Bottom<RB>)
where
    RB: Body<Data = Bytes> + Unpin + Send + 'static,
    RB::Error: Into<BoxError>,
{
    let stack = ServiceBuilder::new()
        .layer(quick_backoff())
        .layer(ClassifyLayer::new())
        .service(client.clone());
    let relative = || post(format!("{CHAT}{SECRET}"), ASK);
    let errors = [client.oneshot(relative()).await.err(), stack.oneshot(relative()).await.err()];
    for error in errors.into_iter().map(Option::unwrap) {
        assert!(matches!(error, Error::Misconfigured { .. }), "{error:?}");
        assert!(error.to_string().contains("relative"), "{error}");
        hides_the_url(&error);
    }
}

/// Dropped before the head, and dropped in the middle of a stream: the provider sees its peer go.
async fn dropping_closes_the_connection<RB>(client: impl Bottom<RB>)
where
    RB: Body<Data = Bytes> + Send + Unpin + 'static,
    RB::Error: fmt::Debug,
{
    let provider = ScriptedProvider::start([
        Answer::nothing().silence(),
        openai::chat_stream("m", ["a"; 50]).pause_between(ms(100)),
    ])
    .await
    .unwrap();
    let call = tokio::spawn(client.clone().oneshot(chat(&provider)));
    provider.wait_for_requests(1).await;
    call.abort();
    timeout(secs(20), provider.wait_until_idle()).await.unwrap();

    let response = client.oneshot(chat(&provider)).await.unwrap();
    let mut body = response.into_body();
    assert!(body.frame().await.unwrap().unwrap().is_data());
    drop(body);
    timeout(secs(20), provider.wait_until_idle()).await.unwrap();
    timeout(secs(20), provider.wait_until_disconnected()).await.unwrap();
    let gone = |end: Option<ExchangeEnd>| matches!(end, Some(ExchangeEnd::PeerGone(_)));
    assert!(provider.log().iter().all(|seen| gone(seen.end)), "{:?}", provider.log());
}

/// Both layers over it save a call from a full provider, a reset and a broken stream, and its bytes are one answer's.
async fn a_stack_over_it_saves_the_call<RB>(client: impl Bottom<RB>)
where
    RB: Body<Data = Bytes> + Unpin + Send + 'static,
    RB::Error: Into<BoxError>,
{
    let good = openai::chat_stream("m", ["the ", "answer"]);
    let provider = ScriptedProvider::start([
        openai::error(429, "rate_limit_error", "rate_limit_exceeded"),
        Answer::nothing().reset(),
        openai::chat_stream("m", ["lost"]).cut_after_events(0).reset(),
        good.clone(),
    ])
    .await
    .unwrap();
    let mut stack =
        ServiceBuilder::new().layer(quick_backoff()).layer(ClassifyLayer::new()).service(client);
    let call = async {
        poll_fn(|cx| Service::<Request<RequestBody>>::poll_ready(&mut stack, cx)).await.unwrap();
        stack.call(chat(&provider)).await.unwrap()
    };
    let received = receive(timeout(secs(20), call).await.unwrap()).await;
    assert_eq!((received.status.as_u16(), received.error.is_none()), (200, true));
    assert_eq!(received.bytes(), body_on_the_wire(&good).await);
    let log = provider.log();
    assert_eq!((log.len(), provider.exhausted()), (4, 0));
    assert!(log.iter().all(|seen| seen.body == ASK && seen.target == CHAT));
}

/// A connection that a provider let die while it was idle costs no request and no answer.
async fn a_dead_idle_connection_costs_one_attempt_at_most<RB>(client: impl Bottom<RB>)
where
    RB: Body<Data = Bytes> + Unpin + Send + 'static,
    RB::Error: Into<BoxError> + fmt::Debug,
{
    let provider = ScriptedProvider::builder()
        .script([openai::chat("m", "one"), openai::chat("m", "two")])
        .close_idle_after(ms(20))
        .start()
        .await
        .unwrap();
    let stack =
        ServiceBuilder::new().layer(quick_backoff()).layer(ClassifyLayer::new()).service(client);
    for _ in 0..2 {
        let response = stack.clone().oneshot(chat(&provider)).await.unwrap();
        assert!(receive(response).await.error.is_none());
        tokio::time::sleep(Duration::from_millis(60)).await;
    }
    assert_eq!((provider.requests(), provider.connections()), (2, 2));
}

/// The contracts above, as tests of one client.
macro_rules! contracts_of_a_bottom {
    ($client:expr) => {
        crate::clients::contracts_of_a_bottom!($client;
            answers_are_the_providers_bytes,
            each_call_is_one_request,
            content_length_is_exact,
            errors_hide_the_url,
            a_relative_uri_is_no_failed_attempt,
            dropping_closes_the_connection,
            a_stack_over_it_saves_the_call,
            a_dead_idle_connection_costs_one_attempt_at_most,
        );
    };
    ($client:expr; $($contract:ident,)*) => {
        $(
            #[tokio::test]
            async fn $contract() {
                crate::clients::$contract($client).await;
            }
        )*
    };
}
use contracts_of_a_bottom;
