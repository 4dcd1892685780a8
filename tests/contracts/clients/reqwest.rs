//! reqwest at the bottom, and reqwest on top.

use backstop::client::reqwest::{Client, ReqwestClient, client_builder};
use backstop::testing::script::openai;
use backstop::testing::{Answer, ScriptedProvider};
use backstop::{AttemptCell, CallOptions, Class, ClassifyLayer, Error, RequestBody, Verdict};
use http::{Request, Response};
use tower::{Service, ServiceBuilder, ServiceExt};

use super::{SECRET, all_words, body_on_the_wire, chat, hides_the_url, quick_backoff};
use crate::rig::{ASK, ms};
use crate::support::CHAT;

fn bottom() -> ReqwestClient {
    ReqwestClient::new(client_builder().build().unwrap())
}

super::contracts_of_a_bottom!(bottom());

/// The two layers over reqwest, with reqwest's own types above.
fn top() -> Client<
    impl Service<
        Request<reqwest::Body>,
        Response = Response<backstop::classify::ClassifyBody<reqwest::Body>>,
        Error = Error,
        Future: Send,
    > + Clone,
> {
    let stack = ServiceBuilder::new().layer(quick_backoff()).layer(ClassifyLayer::new());
    Client::new(stack.service(bottom()))
}

fn request(provider: &ScriptedProvider) -> reqwest::Request {
    let url = format!("{}{CHAT}{SECRET}", provider.url());
    let request = reqwest::Client::new().post(url).header("content-type", "application/json");
    request.body(ASK).build().unwrap()
}

#[tokio::test]
async fn code_written_for_reqwest_survives_failures_with_one_line_changed() {
    let good = openai::chat_stream("m", ["the ", "answer"]);
    let provider = ScriptedProvider::start([
        openai::error(429, "rate_limit_error", "rate_limit_exceeded"),
        Answer::nothing().reset(),
        good.clone(),
    ])
    .await
    .unwrap();
    let request = request(&provider);
    let url = format!("{}{CHAT}", provider.url());
    // On another thread, as a server's handlers are.
    let call = tokio::spawn(top().execute(request));
    let response = call.await.unwrap().unwrap().error_for_status().unwrap();
    assert_eq!(response.url().as_str(), url);
    assert!(!format!("{response:?}").contains("abcdefg"));
    assert!(response.extensions().get::<AttemptCell>().is_some());
    assert_eq!(response.bytes().await.unwrap(), body_on_the_wire(&good).await);
    let log = provider.log();
    assert_eq!((log.len(), provider.exhausted()), (3, 0));
    assert!(log.iter().all(|seen| seen.body == ASK && seen.header("content-type").is_some()));
}

#[tokio::test]
async fn the_last_answer_comes_with_its_status_and_options_reach_the_layers() {
    let script = [503; 2].map(|status| openai::error(status, "server_error", None));
    let provider = ScriptedProvider::start(script).await.unwrap();
    let options = CallOptions::new().max_retries(1);
    let response = top().execute_with(request(&provider), options).await.unwrap();
    assert_eq!((response.status().as_u16(), provider.requests()), (503, 2));
    assert!(response.error_for_status().is_err());
}

#[tokio::test]
async fn an_answer_that_breaks_off_is_an_error_of_its_reader() {
    let script =
        [openai::chat_stream("m", ["a", "b", "c"]).pause_between(ms(1)).cut_after_events(3)];
    let provider = ScriptedProvider::start(script).await.unwrap();
    let response = top().execute(request(&provider)).await.unwrap();
    let words = all_words(&response.text().await.unwrap_err());
    assert!(words.contains("broke off") && !words.contains("abcdefg"), "{words}");
    assert_eq!(provider.requests(), 1);
}

#[tokio::test]
async fn a_timeout_of_reqwest_is_a_timeout() {
    let provider = ScriptedProvider::start([Answer::nothing().silence()]).await.unwrap();
    let http = client_builder().timeout(ms(50)).build().unwrap();
    let error = ReqwestClient::from(http).oneshot(chat(&provider)).await.unwrap_err();
    assert_eq!(error.verdict().map(Verdict::class), Some(Class::Timeout));
    assert_eq!((error.status().as_u16(), provider.requests()), (504, 1));
    hides_the_url(&error);
}

#[tokio::test]
async fn what_reqwest_refuses_to_send_is_not_repeated() {
    let stack = ServiceBuilder::new().layer(quick_backoff()).layer(ClassifyLayer::new());
    let request = Request::post(format!("ftp://provider.test{CHAT}{SECRET}"));
    let request = request.body(RequestBody::from(ASK)).unwrap();
    let error = stack.service(bottom()).oneshot(request).await.unwrap_err();
    assert!(matches!(error, Error::Misconfigured { .. }), "{error}");
    hides_the_url(&error);
}
