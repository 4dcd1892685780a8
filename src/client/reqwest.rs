//! reqwest below a stack, and above it.
//!
//! ```no_run
//! use backstop::client::reqwest::{Client, ReqwestClient, client_builder};
//! use backstop::{BackoffLayer, ClassifyLayer};
//! use tower::ServiceBuilder;
//!
//! # async fn example() -> Result<(), Box<dyn std::error::Error>> {
//! let http = client_builder().build()?;
//! let stack = ServiceBuilder::new()
//!     .layer(BackoffLayer::new())
//!     .layer(ClassifyLayer::new())
//!     .service(ReqwestClient::new(http.clone()));
//! let client = Client::new(stack);
//!
//! let request = http
//!     .post("https://llm.example/v1/chat/completions")
//!     .bearer_auth("...")
//!     .body(r#"{"model":"model-a","messages":[]}"#)
//!     .build()?;
//! // It was `http.execute(request)`.
//! let response = client.execute(request).await?;
//! println!("{}", response.text().await?);
//! # Ok(())
//! # }
//! ```
//!
//! [`ReqwestClient`] is the service at the bottom: it sends one request for each attempt. [`Client`] stands on top, for code
//! that makes requests with reqwest and reads answers with it. Each can be used without the other.
//!
//! # TLS
//!
//! The feature `reqwest` chooses no TLS, so that it changes nothing in a program that has chosen one: it is that of your own
//! `reqwest = "0.13"` among the dependencies, whose default features bring rustls. Without one `https` URLs cannot be
//! reached, which looks like a failed connection.
//!
//! # What reqwest does by itself
//!
//! - **Redirects** are followed by default: a prompt and its key may go elsewhere, and what the answer says about its sender is
//!   wrong. [`client_builder`] switches that off.
//! - **Retries** of requests that an HTTP/2 server refused are on by default; [`client_builder`] switches them off, and the layers
//!   do the same within their guards. One thing cannot be switched off: a request that was taken from the pool's dead
//!   connection before a byte of it was written goes out on another. No server sees such a request twice.
//! - **A timeout** of the client or of a request covers one attempt with its whole answer, and cuts off a stream that goes well.
//!   Prefer [`Timeouts`](crate::Timeouts).
//! - **Decompression**, where your features of reqwest switch it on, is done before the layers see the answer.
//!
//! # Cancellation
//!
//! Dropping a future, or an answer before its end, closes the HTTP/1.1 connection or resets the HTTP/2 stream. Nothing is
//! spawned but what reqwest spawns for its connections.
//!
//! # Panics
//!
//! None of its own. reqwest needs tokio's runtime.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use backstop_core::{
    BoxError, CallOptions, Class, Error, Evidence, RequestBody, Verdict, transport,
};
use bytes::Bytes;
use http_body::Body;
use pin_project_lite::pin_project;
use reqwest::ResponseBuilderExt;
use tower_service::Service;

/// reqwest's builder with what a stack needs of it: no redirects, no retries, 10 s for a connection.
///
/// Everything else is reqwest's default, and can be set as usual. The timeout for a connection covers TLS; there is none for
/// an answer, which is a layer's business ([`Timeouts`](crate::Timeouts)).
pub fn client_builder() -> reqwest::ClientBuilder {
    reqwest::Client::builder()
        .redirect(reqwest::redirect::Policy::none())
        .retry(reqwest::retry::never())
        .connect_timeout(CONNECT_TIMEOUT)
}

/// A [`reqwest::Client`] as the lowest service of a stack.
///
/// It is always ready, and its clones share one pool. Pieces of a [`RequestBody`] are sent as they are, without a copy, and with
/// their exact `content-length`.
///
/// # Errors
///
/// An [`Error`] without the request's URL, where credentials may stand in the query; `source()` leads to the
/// [`reqwest::Error`].
///
/// - [`Error::Misconfigured`] for a relative URI. Nothing was sent.
/// - [`Error::Attempt`] for everything else: the class is `timeout` for reqwest's own timeouts, `invalid_request` for
///   what reqwest refuses to send, and `transient` for the rest.
#[derive(Clone)]
pub struct ReqwestClient {
    client: reqwest::Client,
}

impl ReqwestClient {
    /// A service that sends through `client`, best one of [`client_builder`]: one that follows redirects or repeats requests
    /// does so unseen by the layers.
    #[must_use]
    pub const fn new(client: reqwest::Client) -> Self {
        Self { client }
    }

    /// The client.
    #[must_use]
    pub const fn get_ref(&self) -> &reqwest::Client {
        &self.client
    }

    /// The client, without the service.
    #[must_use]
    pub fn into_inner(self) -> reqwest::Client {
        self.client
    }
}

/// Without the default headers, which may hold a key.
impl fmt::Debug for ReqwestClient {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ReqwestClient").finish_non_exhaustive()
    }
}

impl From<reqwest::Client> for ReqwestClient {
    fn from(client: reqwest::Client) -> Self {
        Self::new(client)
    }
}

impl Service<http::Request<RequestBody>> for ReqwestClient {
    type Response = http::Response<reqwest::Body>;
    type Error = Error;
    type Future = ResponseFuture;

    fn poll_ready(&mut self, _cx: &mut Context<'_>) -> Poll<Result<(), Error>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: http::Request<RequestBody>) -> ResponseFuture {
        let state = match to_reqwest(request) {
            Ok(request) => State::Sending { pending: self.client.call(request) },
            Err(error) => State::Unsent { error: Some(error) },
        };
        ResponseFuture { state }
    }
}

pin_project! {
    /// The future of [`ReqwestClient`]: a named type around reqwest's own. Dropping it ends the exchange.
    pub struct ResponseFuture {
        #[pin]
        state: State,
    }
}

pin_project! {
    #[project = StateProjection]
    enum State {
        /// reqwest has the request.
        Sending { #[pin] pending: <reqwest::Client as Service<reqwest::Request>>::Future },
        /// It was never given to it; the error is handed on once.
        Unsent { error: Option<Error> },
    }
}

impl Future for ResponseFuture {
    type Output = Result<http::Response<reqwest::Body>, Error>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        match self.project().state.project() {
            StateProjection::Sending { pending } => {
                pending.poll(cx).map(|result| result.map(Into::into).map_err(from_reqwest))
            }
            StateProjection::Unsent { error } => {
                error.take().map_or(Poll::Pending, |error| Poll::Ready(Err(error)))
            }
        }
    }
}

impl fmt::Debug for ResponseFuture {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ResponseFuture").finish_non_exhaustive()
    }
}

/// A stack of layers with the methods of a [`reqwest::Client`] that send.
///
/// It takes a [`reqwest::Request`] and gives back a [`reqwest::Response`], so that code around it stays as it is. The stack may
/// end in any service, with any answer body that is `Send` and `Sync`.
#[derive(Clone)]
pub struct Client<S> {
    stack: S,
}

impl<S> Client<S> {
    /// A client that sends through `stack`; each call takes a clone of it.
    pub const fn new(stack: S) -> Self {
        Self { stack }
    }

    /// The stack.
    pub const fn get_ref(&self) -> &S {
        &self.stack
    }

    /// The stack, without the client.
    pub fn into_inner(self) -> S {
        self.stack
    }

    /// Sends `request` through the stack.
    ///
    /// In place of [`reqwest::Client::execute`], with the same arguments. The answer comes as the stack hands it on, whatever
    /// its status: [`reqwest::Response::error_for_status`] works as ever. Its `url()` is that
    /// of `request`, also where a layer sent it elsewhere, and without the query, which may hold a key and would be in the errors
    /// of its readers; what the layers leave for their caller is in its `extensions()`. A body of `request` that is a stream is read whole by the layers, up to
    /// their limit.
    ///
    /// Dropping the future ends the call and the attempt in flight.
    ///
    /// # Errors
    ///
    /// Those of the stack; [`Error::Misconfigured`] where the URL is none that can be sent. An answer that breaks off is an
    /// error of the method that reads it, whose `source()` leads to an [`Error`].
    pub fn execute<RB>(
        &self,
        request: reqwest::Request,
    ) -> impl Future<Output = Result<reqwest::Response, Error>> + use<S, RB>
    where
        S: Service<http::Request<reqwest::Body>, Response = http::Response<RB>> + Clone,
        S::Error: Into<BoxError>,
        RB: Body<Data = Bytes> + Send + Sync + 'static,
        RB::Error: Into<BoxError>,
    {
        let mut stack = self.stack.clone();
        async move {
            std::future::poll_fn(|cx| stack.poll_ready(cx)).await.map_err(Error::from_inner)?;
            send(&mut stack, request, None).await
        }
    }

    /// Sends `request` through the stack, with options for this one call: like [`execute`](Self::execute) otherwise.
    ///
    /// A [`reqwest::Request`] lets nobody else put something into its extensions.
    ///
    /// # Errors
    ///
    /// As for [`execute`](Self::execute).
    pub fn execute_with<RB>(
        &self,
        request: reqwest::Request,
        options: CallOptions,
    ) -> impl Future<Output = Result<reqwest::Response, Error>> + use<S, RB>
    where
        S: Service<http::Request<reqwest::Body>, Response = http::Response<RB>> + Clone,
        S::Error: Into<BoxError>,
        RB: Body<Data = Bytes> + Send + Sync + 'static,
        RB::Error: Into<BoxError>,
    {
        let mut stack = self.stack.clone();
        async move {
            std::future::poll_fn(|cx| stack.poll_ready(cx)).await.map_err(Error::from_inner)?;
            send(&mut stack, request, Some(options)).await
        }
    }
}

/// Without the stack, which is somebody else's.
impl<S> fmt::Debug for Client<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Client").finish_non_exhaustive()
    }
}

/// Sends `request` through a stack that is ready.
pub(super) fn send<S, RB>(
    ready: &mut S,
    request: reqwest::Request,
    options: Option<CallOptions>,
) -> impl Future<Output = Result<reqwest::Response, Error>> + use<S, RB>
where
    S: Service<http::Request<reqwest::Body>, Response = http::Response<RB>>,
    S::Error: Into<BoxError>,
    RB: Body<Data = Bytes> + Send + Sync + 'static,
    RB::Error: Into<BoxError>,
{
    let url = request.url().clone();
    let call = http::Request::try_from(request).map(|mut request| {
        if let Some(options) = options {
            request.extensions_mut().insert(options);
        }
        ready.call(request)
    });
    async move {
        let call = call.map_err(|_| {
            Error::misconfigured("the request's URL is no URI: it cannot be sent over HTTP")
        })?;
        Ok(to_response(call.await.map_err(Error::from_inner)?, url))
    }
}

fn to_reqwest(request: http::Request<RequestBody>) -> Result<reqwest::Request, Error> {
    super::absolute(request.uri())?;
    request.map(reqwest::Body::wrap).try_into().map_err(from_reqwest)
}

/// reqwest keeps an answer's URL in a private extension, which only its builder can make.
fn to_response<RB>(response: http::Response<RB>, mut url: reqwest::Url) -> reqwest::Response
where
    RB: Body<Data = Bytes> + Send + Sync + 'static,
    RB::Error: Into<BoxError>,
{
    let mut response = response.map(reqwest::Body::wrap);
    // It is in the `Debug` of the answer, and in the errors of those who read it.
    url.set_query(None);
    url.set_fragment(None);
    if let Ok(with_url) = http::Response::builder().url(url).body(()) {
        response.extensions_mut().extend(with_url.into_parts().0.extensions);
    }
    response.into()
}

fn from_reqwest(error: reqwest::Error) -> Error {
    let error = error.without_url();
    let mut verdict = transport::judge(&error);
    if error.is_builder() {
        // The same request fails in the same way each time.
        verdict = Verdict::new(Class::InvalidRequest)
            .with_evidence(Evidence::Local)
            .with_should_retry(false);
    } else if error.is_timeout() {
        // reqwest's own type for it is private.
        verdict = verdict.with_class(Class::Timeout, Evidence::Transport);
    }
    Error::attempt(verdict, error)
}

/// Connections that take longer are not worth waiting for: hosts answer within 1 s, and lost SYNs are sent again after 1, 3 and 7 s.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
