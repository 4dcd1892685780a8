//! async-openai's typed calls through a stack.

use async_openai::Client;
use async_openai::config::OpenAIConfig;
use async_openai::error::OpenAIError;
use async_openai::types::chat::{
    ChatCompletionRequestUserMessage, CreateChatCompletionRequest,
    CreateChatCompletionStreamResponse,
};
use backstop::backoff::BackoffBuilder;
use backstop::client::async_openai::{HttpService, error_of};
use backstop::client::hyper::HyperClient;
use backstop::client::reqwest::{ReqwestClient, client_builder};
use backstop::testing::script::openai;
use backstop::testing::{Answer, ExchangeEnd, ScriptedProvider, unused_addr};
use backstop::{BackoffLayer, CallOptions, ClassifyLayer, Error, Jitter, OnExhausted, Schedule};
use tokio::time::timeout;
use tower::ServiceBuilder;

use super::Bottom;
use crate::rig::{ms, secs};
use crate::support::CHAT;

fn backoff() -> BackoffBuilder {
    let schedule = Schedule::new(ms(1), ms(5)).with_jitter(Jitter::None);
    BackoffLayer::builder().max_retries(3).schedule(schedule)
}

fn config(url: &str) -> OpenAIConfig {
    OpenAIConfig::new().with_api_base(format!("{url}/v1")).with_api_key("sk-not-a-key")
}

fn client_over<RB>(
    url: &str,
    backoff: BackoffBuilder,
    bottom: impl Bottom<RB>,
) -> Client<OpenAIConfig>
where
    RB: http_body::Body<Data = bytes::Bytes> + Send + Sync + Unpin + 'static,
    RB::Error: Into<backstop::BoxError>,
{
    let stack = ServiceBuilder::new()
        .layer(backoff.build().unwrap())
        .layer(ClassifyLayer::new())
        .service(bottom);
    Client::with_config(config(url)).with_http_service(HttpService::new(stack))
}

fn client(url: &str, backoff: BackoffBuilder) -> Client<OpenAIConfig> {
    client_over(url, backoff, ReqwestClient::new(client_builder().build().unwrap()))
}

fn ask() -> CreateChatCompletionRequest {
    CreateChatCompletionRequest {
        model: "m".into(),
        messages: vec![ChatCompletionRequestUserMessage::from("hello").into()],
        ..Default::default()
    }
}

fn troubled() -> [Answer; 4] {
    [
        openai::error(429, "rate_limit_error", "rate_limit_exceeded"),
        Answer::nothing().reset(),
        Answer::status(200).json(openai::error_body("server_error", None)),
        openai::chat("m", "the answer"),
    ]
}

#[tokio::test]
async fn a_typed_call_survives_and_the_provider_sees_exactly_the_stacks_attempts() {
    for hyper in [false, true] {
        let provider = ScriptedProvider::start(troubled()).await.unwrap();
        let url = provider.url();
        let client = match hyper {
            true => client_over(&url, backoff(), HyperClient::new().unwrap()),
            false => client(&url, backoff()),
        };
        let answer = client.chat().create(ask()).await.unwrap();
        assert_eq!(answer.choices[0].message.content.as_deref(), Some("the answer"));
        let log = provider.log();
        assert_eq!((log.len(), provider.exhausted()), (4, 0));
        for seen in &log {
            assert_eq!((seen.path(), &seen.body), (CHAT, &log[0].body));
            assert_eq!(seen.header("authorization"), Some("Bearer sk-not-a-key"));
            let length = seen.body.len().to_string();
            assert_eq!(seen.header("content-length"), Some(length.as_str()));
        }
    }
}

#[tokio::test]
async fn its_own_retries_are_gone() {
    let script = [503; 8].map(|status| openai::error(status, "server_error", None));
    let provider = ScriptedProvider::start(script).await.unwrap();
    let client = client(&provider.url(), backoff().max_retries(0));
    let error = client.chat().create(ask()).await.unwrap_err();
    assert!(matches!(error, OpenAIError::ApiError(_)), "{error:?}");
    assert!(error_of(&error).is_none());
    assert_eq!(provider.requests(), 1);
}

#[tokio::test]
async fn a_streamed_call_survives_what_fails_before_its_first_content() {
    let provider = ScriptedProvider::start([
        openai::error(503, "server_error", None),
        openai::error_first("server_error", None),
        openai::chat_stream("m", ["the ", "answer"]),
    ])
    .await
    .unwrap();
    let client = client(&provider.url(), backoff());
    let text = read(client.chat().create_stream(ask()).await.unwrap()).await.unwrap();
    assert_eq!((text.as_str(), provider.requests()), ("the answer", 3));
}

#[tokio::test]
async fn a_stream_that_breaks_off_ends_with_an_error() {
    let script = [openai::chat_stream("m", ["a", "b", "c"]).cut_after_events(3)];
    let provider = ScriptedProvider::start(script).await.unwrap();
    let client = client(&provider.url(), backoff());
    let error = read(client.chat().create_stream(ask()).await.unwrap()).await.unwrap_err();
    assert!(matches!(error, OpenAIError::StreamError(_)), "{error:?}");
    assert_eq!(provider.requests(), 1);
}

#[tokio::test]
async fn dropping_a_stream_closes_the_connection() {
    let script = [openai::chat_stream("m", ["a"; 50]).pause_between(ms(100))];
    let provider = ScriptedProvider::start(script).await.unwrap();
    let client = client(&provider.url(), backoff());
    let mut stream = client.chat().create_stream(ask()).await.unwrap();
    assert!(next(&mut stream).await.unwrap().is_ok());
    drop(stream);
    timeout(secs(20), provider.wait_until_disconnected()).await.unwrap();
    assert!(matches!(provider.log()[0].end, Some(ExchangeEnd::PeerGone(_))));
}

#[tokio::test]
async fn an_error_of_the_stack_is_found_in_async_openais() {
    let nobody = unused_addr().unwrap();
    let refused = client(&nobody.url(), backoff()).chat().create(ask()).await.unwrap_err();
    let provider =
        ScriptedProvider::start([503; 4].map(|status| openai::error(status, "server_error", None)))
            .await
            .unwrap();
    let patient = backoff().on_exhausted(OnExhausted::Error);
    let given_up = client(&provider.url(), patient).chat().create(ask()).await.unwrap_err();
    for error in [refused, given_up] {
        let Some(Error::Exhausted(exhausted)) = error_of(&error) else { panic!("{error:?}") };
        assert_eq!(exhausted.retries(), 3);
        assert!(!super::all_words(&error).contains("sk-not-a-key"));
    }
    assert_eq!(provider.requests(), 4);
}

#[tokio::test]
async fn options_of_the_service_are_those_of_its_calls() {
    let provider = ScriptedProvider::start(troubled()).await.unwrap();
    let stack = ServiceBuilder::new()
        .layer(backoff().build().unwrap())
        .layer(ClassifyLayer::new())
        .service(HyperClient::new().unwrap());
    let service = HttpService::new(stack).options(CallOptions::new().max_retries(0));
    let client = Client::with_config(config(&provider.url())).with_http_service(service);
    let error = client.chat().create(ask()).await.unwrap_err();
    assert_eq!(provider.requests(), 1);
    let OpenAIError::ApiError(answer) = error else { panic!("{error:?}") };
    assert_eq!(answer.status_code, 429);
}

type Events = async_openai::types::chat::ChatCompletionResponseStream;

async fn next(
    stream: &mut Events,
) -> Option<Result<CreateChatCompletionStreamResponse, OpenAIError>> {
    std::future::poll_fn(|cx| stream.as_mut().poll_next(cx)).await
}

async fn read(mut stream: Events) -> Result<String, OpenAIError> {
    let mut text = String::new();
    while let Some(event) = next(&mut stream).await {
        let delta = event?.choices.into_iter().next().and_then(|choice| choice.delta.content);
        text += &delta.unwrap_or_default();
    }
    Ok(text)
}
