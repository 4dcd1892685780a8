//! The calls of an `async_openai::Client` through a stack.
//!
//! ```no_run
//! use async_openai::Client;
//! use async_openai::config::OpenAIConfig;
//! use backstop::client::async_openai::HttpService;
//! use backstop::client::reqwest::{ReqwestClient, client_builder};
//! use backstop::{BackoffLayer, ClassifyLayer};
//! use tower::ServiceBuilder;
//!
//! # fn example() -> Result<(), Box<dyn std::error::Error>> {
//! let stack = ServiceBuilder::new()
//!     .layer(BackoffLayer::new())
//!     .layer(ClassifyLayer::new())
//!     .service(ReqwestClient::new(client_builder().build()?));
//! let client = Client::with_config(OpenAIConfig::default())
//!     .with_http_service(HttpService::new(stack));
//! // `client.chat().create(..)`, `create_stream(..)` and all the others, as before.
//! # let _ = client;
//! # Ok(())
//! # }
//! ```
//!
//! It is for async-openai 0.43, whose `Client::with_http_service` puts a tower service in the place of its own transport.
//!
//! # What becomes of async-openai's own retries
//!
//! They are gone: they are a layer around its own transport (`OpenAIRetryLayer`), which `with_http_service` replaces as a whole.
//! A `with_http_client` **after** it brings both back; call it before, or not at all: the client given there then only builds
//! requests. The stack sends.
//!
//! async-openai hands down a factory, so that each retry can build its request anew. The stack needs no second one: it is asked
//! once for each call, and the body is shared by all attempts. A form with files is read whole, up to the limit of the layers.
//!
//! # Errors
//!
//! - An answer with a failing status that the stack hands on becomes `OpenAIError::ApiError`, as ever; for streamed calls too.
//!   Of a status 5xx async-openai keeps the body as the message only; of a 4xx whose body is no error object it makes
//!   `OpenAIError::JSONDeserialize`.
//! - Where there was no answer, or the stack gives an error in its place
//!   ([`OnExhausted::Error`](crate::OnExhausted)), it is `OpenAIError::Boxed` around an [`Error`]; [`error_of`] finds it.
//! - A plain answer that breaks off is `OpenAIError::Reqwest`, in which [`error_of`] finds ours. Of a stream that breaks off
//!   async-openai keeps the text alone: it ends with `OpenAIError::StreamError`, and never like a whole answer.
//!
//! # Streams
//!
//! async-openai reads a stream in a task of its own, as fast as it comes, into a queue without a bound: a slow reader does not slow
//! the provider, and timeouts between events are those of the provider. Dropping the stream ends the task and the attempt.
//!
//! # TLS
//!
//! This feature chooses none: it is that of your own `async-openai` and `reqwest`, or that of
//! [`HyperClient`](crate::client::hyper::HyperClient) at the bottom.
//!
//! # Cancellation
//!
//! Dropping a call, or a stream before its end, ends the attempt in flight.
//!
//! # Panics
//!
//! None of its own. It needs what the stack needs.

use std::error::Error as StdError;
use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};

use async_openai::error::OpenAIError;
use async_openai::middleware::HttpRequestFactory;
use backstop_core::{BoxError, CallOptions, Error};
use bytes::Bytes;
use http_body::Body;
use tower_service::Service;

use super::reqwest::send;

/// A stack of layers as the service that `async_openai::Client::with_http_service` takes.
///
/// The stack takes requests with a [`reqwest::Body`] and answers with any body that is `Send` and `Sync`; that with a
/// [`BackoffLayer`](crate::BackoffLayer) or a router on top does. The readiness of the stack is that of this service. Its future is
/// boxed, once a call, since the factory's own is too.
#[derive(Clone)]
pub struct HttpService<S> {
    stack: S,
    options: Option<CallOptions>,
}

impl<S> HttpService<S> {
    /// A service that sends through `stack`.
    pub const fn new(stack: S) -> Self {
        Self { stack, options: None }
    }

    /// Options for every call through this service. Default: none, the layers' own settings.
    ///
    /// async-openai has no way to bring options along with one call; a second client with other options shares the stack
    /// and its connections, where the stack is a clone.
    #[must_use]
    pub fn options(mut self, options: CallOptions) -> Self {
        self.options = Some(options);
        self
    }

    /// The stack.
    pub const fn get_ref(&self) -> &S {
        &self.stack
    }

    /// The stack, without the service.
    pub fn into_inner(self) -> S {
        self.stack
    }
}

/// Without the stack, which is somebody else's.
impl<S> fmt::Debug for HttpService<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HttpService").field("options", &self.options).finish_non_exhaustive()
    }
}

impl<S, RB> Service<HttpRequestFactory> for HttpService<S>
where
    S: Service<http::Request<reqwest::Body>, Response = http::Response<RB>>
        + Clone
        + Send
        + 'static,
    S::Error: Into<BoxError>,
    S::Future: Send,
    RB: Body<Data = Bytes> + Send + Sync + 'static,
    RB::Error: Into<BoxError>,
{
    type Response = reqwest::Response;
    type Error = OpenAIError;
    type Future = Pin<Box<dyn Future<Output = Result<reqwest::Response, OpenAIError>> + Send>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), OpenAIError>> {
        self.stack.poll_ready(cx).map_err(|error| boxed(Error::from_inner(error)))
    }

    fn call(&mut self, factory: HttpRequestFactory) -> Self::Future {
        // The one that was polled ready is the one that is called; its clone has to be asked anew.
        let next = self.stack.clone();
        let mut ready = std::mem::replace(&mut self.stack, next);
        let options = self.options.clone();
        Box::pin(async move {
            let request = factory.build().await?;
            send(&mut ready, request, options).await.map_err(boxed)
        })
    }
}

/// The [`Error`] of a stack in an error of async-openai, if it comes from one.
///
/// It says what was tried: [`Error::Exhausted`] has the retries, the waits and the last verdict. `None` for answers of
/// the provider, which are `OpenAIError::ApiError`, for errors of async-openai's own, and for a stream that broke off, of which
/// async-openai keeps the text alone.
#[must_use]
pub fn error_of(error: &OpenAIError) -> Option<&Error> {
    if let OpenAIError::Boxed(boxed) = error {
        return boxed.downcast_ref();
    }
    // A body that broke off: async-openai has reqwest's error, and that ours.
    let mut next = error.source();
    for _ in 0..MAX_SOURCES {
        let cause = next?;
        if let Some(ours) = cause.downcast_ref() {
            return Some(ours);
        }
        next = cause.source();
    }
    None
}

fn boxed(error: Error) -> OpenAIError {
    OpenAIError::Boxed(Box::new(error))
}

/// A chain this long is a cycle.
const MAX_SOURCES: usize = 64;
