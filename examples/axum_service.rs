//! An axum app whose handler asks an LLM through the stack: retries, the declared fallback and who answered
//! are no business of the handler's.
//!
//! `cargo run --example axum_service --features testing`

use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::extract::State;
use axum::http::{Request, Response, StatusCode};
use axum::routing::post;
use backstop::dialect::Dialect;
use backstop::stack::StackService;
use backstop::testing::{BoxError, ScriptedProvider, script};
use backstop::{CallOptions, Chain, Error, Profile, RequestBody, Rung, Schedule, Stack};
use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use tower::{Layer, ServiceExt};

type Llm = StackService<Client<HttpConnector, RequestBody>>;

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), BoxError> {
    // Two providers: the first one has a bad day.
    let sol = ScriptedProvider::start([
        script::openai::error(503, "server_error", "server_is_overloaded"),
        script::openai::chat("gpt-5.6-sol", "Yes."),
        script::openai::error(401, "invalid_request_error", "invalid_api_key"),
    ])
    .await?;
    let spare = ScriptedProvider::start([script::openai::chat("gpt-5.5", "Perhaps.")]).await?;

    let profile = |id: &str, model: &str, url: String| {
        Profile::new(id, model, id, Dialect::OPENAI)?
            .with_endpoint(url.parse()?)?
            .with_api_key(&format!("key-of-{id}"))
            .map_err(BoxError::from)
    };
    let chain = Chain::new([
        Rung::new(profile("sol", "gpt-5.6-sol", sol.url())?, 3)?,
        Rung::new(profile("spare", "gpt-5.5", spare.url())?, 1)?,
    ])?;
    let quick = Schedule::new(Duration::from_millis(50), Duration::from_secs(10));
    let stack = Stack::builder(chain)
        .backoff(|backoff| backoff.schedule(quick))
        .deadline(Duration::from_secs(30))
        .answer_headers(true)
        .build()?;
    let client = Client::builder(TokioExecutor::new())
        .retry_canceled_requests(false)
        .build_http::<RequestBody>();

    // The service, on a socket.
    let app = Router::new().route("/ask", post(ask)).with_state(stack.layer(client));
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await?;
    let address = listener.local_addr()?;
    tokio::spawn(async move { axum::serve(listener, app).await });

    // And somebody who uses it.
    let user = Client::builder(TokioExecutor::new()).build_http::<Full<Bytes>>();
    for question in ["Is it done?", "And now?"] {
        let request = Request::post(format!("http://{address}/ask")).body(Full::from(question))?;
        let answer = user.request(request).await?;
        let header = |name: &str| {
            let value = answer.headers().get(name).and_then(|value| value.to_str().ok());
            value.unwrap_or("nobody").to_owned()
        };
        let (who, attempts) = (header("x-backstop-profile"), header("x-backstop-attempts"));
        let text = answer.into_body().collect().await?.to_bytes();
        println!("{question} {} ({who}, {attempts} attempts)", String::from_utf8_lossy(&text));
    }
    assert_eq!((sol.requests(), spare.requests()), (3, 1), "three failures and a fallback");
    Ok(())
}

/// Asks the model, and hands on what it says.
async fn ask(State(llm): State<Llm>, question: String) -> Result<Response<Body>, Refusal> {
    let body = serde_json::json!({
        "model": "whatever the chain says",
        "messages": [{ "role": "user", "content": question }],
    });
    let mut request = Request::post("/v1/chat/completions")
        .header("content-type", "application/json")
        .body(RequestBody::from(body.to_string()))
        .map_err(|_| Refusal(StatusCode::BAD_REQUEST))?;
    request.extensions_mut().insert(CallOptions::new().node("ask"));
    let (head, answer) = llm.oneshot(request).await?.into_parts();
    if !head.status.is_success() {
        return Err(Refusal(head.status));
    }
    // Read to its end: only now is the call recorded as one that ended well.
    let answer = answer.collect().await?.to_bytes();
    let answer: serde_json::Value =
        serde_json::from_slice(&answer).map_err(|_| Refusal(StatusCode::BAD_GATEWAY))?;
    let text = answer["choices"][0]["message"]["content"].as_str().unwrap_or_default();
    let mut response = Response::new(Body::from(text.to_owned()));
    for name in ["x-backstop-profile", "x-backstop-attempts"] {
        if let Some(value) = head.headers.get(name) {
            response.headers_mut().insert(name, value.clone());
        }
    }
    Ok(response)
}

/// A status is all that users of this service are told.
struct Refusal(StatusCode);

impl From<Error> for Refusal {
    fn from(error: Error) -> Self {
        eprintln!("the call failed: {error}");
        Self(error.status())
    }
}

impl axum::response::IntoResponse for Refusal {
    fn into_response(self) -> Response<Body> {
        (self.0, "no answer today").into_response()
    }
}
