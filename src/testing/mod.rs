//! Test doubles for stacks of LLM layers: a provider that misbehaves as scripted, and services and bodies that hold
//! their users to the rules. For the tests of this project, and for those of your own stack.
//!
//! | to test | take |
//! |---|---|
//! | what a layer decides, waits and reports | [`ScriptedService`] under tokio's paused clock: exact and instant |
//! | how a layer treats readiness and reservations | [`ReadinessProbe`] around any service, with three attempts |
//! | how a layer reads a body, and ends it | [`ScriptedBody`] |
//! | a whole client: pools, resets, half-sent answers | [`ScriptedProvider`], a real server on 127.0.0.1 |
//! | that a connection is refused | [`unused_addr`] |
//!
//! Answers in the dialects of OpenAI, Anthropic and Gemini are in [`script`]; an [`Answer`] serves both the provider on
//! a socket and the service in memory.
//!
//! ```
//! # #[tokio::main(flavor = "current_thread", start_paused = true)]
//! # async fn main() -> Result<(), backstop::testing::BoxError> {
//! use std::time::Duration;
//! use backstop::testing::{Outcome, ReadinessProbe, ScriptedBody, ScriptedService, script::openai};
//! use tower_service::Service;
//!
//! // In memory: an overloaded provider that answers well on the second try.
//! let provider = ScriptedService::new([
//!     openai::error(503, "service_unavailable_error", "server_is_overloaded"),
//!     openai::chat("model-a", "hello").after(Duration::from_secs(2)),
//! ]);
//! let mut service = ReadinessProbe::new(provider.clone());
//! let probe = service.probe();
//!
//! // Here your layers would go around `service`.
//! for expected in [503, 200] {
//!     std::future::poll_fn(|cx| Service::<http::Request<ScriptedBody>>::poll_ready(&mut service, cx)).await?;
//!     let request = http::Request::post("/v1/chat/completions").body(ScriptedBody::full("{}"))?;
//!     assert_eq!(service.call(request).await?.status(), expected);
//! }
//! assert_eq!(provider.log()[0].body, "{}");
//! assert_eq!((probe.calls(), probe.live_permits()), (2, 0));
//! # Ok(())
//! # }
//! ```
//!
//! And on a real socket, where the second answer breaks in the middle:
//!
//! ```
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> std::io::Result<()> {
//! use backstop::testing::{ScriptedProvider, script::anthropic};
//!
//! let provider = ScriptedProvider::start([
//!     anthropic::error(529, "overloaded_error"),
//!     anthropic::message_stream("model-a", ["half ", "an answer"]).cut_after_events(4).reset(),
//!     anthropic::message_stream("model-a", ["a ", "whole ", "answer"]),
//! ])
//! .await?;
//! // Point your client at `provider.url()`; afterwards ask `provider.log()` what really happened.
//! assert!(provider.url().starts_with("http://127.0.0.1:"));
//! assert!(provider.log().is_empty());
//! provider.shutdown().await;
//! # Ok(())
//! # }
//! ```
//!
//! # Panics
//!
//! Doubles panic where a test is wrong: an unready service is called, a status or header cannot exist. They do not
//! panic for what a peer sends.

mod answer;
mod body;
mod connection;
mod error;
mod exchange;
mod log;
mod outcome;
mod probe;
mod provider;
pub mod script;
mod service;
mod wire;

pub use self::{
    answer::Answer,
    body::{BodyProbe, ScriptedBody, Step},
    error::{BoxError, ScriptedError},
    log::{ExchangeEnd, SeenRequest},
    outcome::Outcome,
    probe::{Probe, ProbeFuture, Readiness, ReadinessProbe},
    provider::{ProviderBuilder, ScriptedProvider, UnusedAddr, unused_addr},
    script::Script,
    service::{CallEnd, ScriptedFuture, ScriptedService, SeenCall},
};
