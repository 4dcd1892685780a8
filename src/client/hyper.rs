//! A client for the bottom of a stack: hyper's pool, HTTP/1.1 and HTTP/2, rustls.
//!
//! ```no_run
//! use backstop::client::hyper::HyperClient;
//! use backstop::{BackoffLayer, ClassifyLayer, RequestBody};
//! use http::Request;
//! use tower::{ServiceBuilder, ServiceExt};
//!
//! # async fn example() -> Result<(), Box<dyn std::error::Error>> {
//! let stack = ServiceBuilder::new()
//!     .layer(BackoffLayer::new())
//!     .layer(ClassifyLayer::new())
//!     .service(HyperClient::new()?);
//! let request = Request::post("https://llm.example/v1/chat/completions")
//!     .header("authorization", "Bearer ...")
//!     .header("content-type", "application/json")
//!     .body(RequestBody::from(r#"{"model":"model-a","messages":[]}"#))?;
//! let response = stack.oneshot(request).await?;
//! println!("{}", response.status());
//! # Ok(())
//! # }
//! ```
//!
//! It does what a stack needs and nothing else: no redirects, no cookies, no decompression, no proxy, and no retries, not even of
//! requests that a dead connection gave back unwritten; the layers see those, and send them again at once.
//!
//! # TLS
//!
//! rustls with ring, TLS 1.2 and 1.3. Trusted are the roots of Mozilla's program, built in (`webpki-roots`), so that the same binary
//! trusts the same servers everywhere, also where the system has no certificates; [`add_root_certificate`] adds
//! others. HTTP/2 is chosen by ALPN. `http` URLs are served too, with HTTP/1.1. It does not touch the process's default
//! provider of rustls.
//!
//! [`add_root_certificate`]: HyperClientBuilder::add_root_certificate
//!
//! # Cancellation
//!
//! Dropping a future, or an answer before its end, closes the HTTP/1.1 connection or resets the HTTP/2 stream. A connection that
//! is being made is finished for the pool.
//!
//! # Panics
//!
//! None of its own. It needs tokio's runtime, with I/O and time.

use std::fmt;
use std::future::Future;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use backstop_core::{BoxError, ConfigError, Error, RequestBody};
use http::{Request, Response, Uri, Version};
use hyper::body::Incoming;
use hyper_rustls::{HttpsConnector, HttpsConnectorBuilder};
use hyper_util::client::legacy;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::{TokioExecutor, TokioTimer};
use pin_project_lite::pin_project;
use rustls::pki_types::CertificateDer;
use rustls::{ClientConfig, RootCertStore};
use tower_service::Service;

/// hyper's client as the lowest service of a stack.
///
/// It is always ready, and its clones share one pool. Pieces of a [`RequestBody`] are sent as they are, without a copy, and with
/// their exact `content-length`. `TCP_NODELAY` is set.
///
/// # Errors
///
/// An [`Error`] without the request's URL; `source()` leads to hyper's own error.
///
/// - [`Error::Misconfigured`] for a relative URI. Nothing was sent.
/// - [`Error::Attempt`] for everything else: the class is `timeout` where no connection came in time, and
///   `transient` for the rest, marked as unprocessed where hyper says so.
#[derive(Clone)]
pub struct HyperClient {
    client: Pooled,
}

type Pooled = legacy::Client<Connector, RequestBody>;

impl HyperClient {
    /// A client with the defaults of [`HyperClientBuilder`].
    ///
    /// # Errors
    ///
    /// As for [`HyperClientBuilder::build`].
    pub fn new() -> Result<Self, ConfigError> {
        Self::builder().build()
    }

    /// Sets up a client.
    pub const fn builder() -> HyperClientBuilder {
        HyperClientBuilder {
            connect_timeout: CONNECT_TIMEOUT,
            root_certificates: Vec::new(),
            http2_only: false,
        }
    }
}

impl fmt::Debug for HyperClient {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HyperClient").finish_non_exhaustive()
    }
}

/// Sets up a [`HyperClient`].
#[derive(Clone)]
#[must_use = "a builder does nothing until it is built"]
pub struct HyperClientBuilder {
    connect_timeout: Duration,
    root_certificates: Vec<Vec<u8>>,
    http2_only: bool,
}

impl HyperClientBuilder {
    /// How long a connection may take: name, TCP and TLS together. Default: 10 s.
    ///
    /// There is no other timeout here: how long an answer may take is a layer's business
    /// ([`Timeouts`](crate::Timeouts)).
    pub const fn connect_timeout(mut self, timeout: Duration) -> Self {
        self.connect_timeout = timeout;
        self
    }

    /// Trusts servers of this certificate (DER) too, beside the built-in roots: a company's own, a proxy's. Default: none.
    ///
    /// It can be called more than once.
    pub fn add_root_certificate(mut self, der: impl Into<Vec<u8>>) -> Self {
        self.root_certificates.push(der.into());
        self
    }

    /// Whether to speak HTTP/2 only, without asking: also to `http` URLs. Default: no; what ALPN chooses, and
    /// HTTP/1.1 without TLS.
    pub const fn http2_only(mut self, only: bool) -> Self {
        self.http2_only = only;
        self
    }

    /// Makes the client. Nothing is read and no connection made.
    ///
    /// # Errors
    ///
    /// A [`ConfigError`] where a root certificate is none, where `connect_timeout` is zero, or where rustls does not take its
    /// own defaults.
    pub fn build(self) -> Result<HyperClient, ConfigError> {
        let Self { connect_timeout, root_certificates, http2_only } = self;
        if connect_timeout.is_zero() {
            return Err(ConfigError::new(
                "connect_timeout",
                "no connection is made in no time",
                "give it some seconds",
            ));
        }
        let mut http = HttpConnector::new();
        http.enforce_http(false);
        http.set_nodelay(true);
        let builder =
            HttpsConnectorBuilder::new().with_tls_config(tls(root_certificates)?).https_or_http();
        let https = if http2_only {
            builder.enable_http2().wrap_connector(http)
        } else {
            builder.enable_all_versions().wrap_connector(http)
        };
        let client = legacy::Client::builder(TokioExecutor::new())
            // The layers do that, where it is counted.
            .retry_canceled_requests(false)
            .http2_only(http2_only)
            .timer(TokioTimer::new())
            .pool_timer(TokioTimer::new())
            .build(Connector { https, timeout: connect_timeout });
        Ok(HyperClient { client })
    }
}

/// Without the certificates, which nobody can read.
impl fmt::Debug for HyperClientBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { connect_timeout, root_certificates, http2_only } = self;
        f.debug_struct("HyperClientBuilder")
            .field("connect_timeout", connect_timeout)
            .field("root_certificates", &root_certificates.len())
            .field("http2_only", http2_only)
            .finish()
    }
}

fn tls(root_certificates: Vec<Vec<u8>>) -> Result<ClientConfig, ConfigError> {
    let mut roots = RootCertStore { roots: webpki_roots::TLS_SERVER_ROOTS.to_vec() };
    for der in root_certificates {
        roots.add(CertificateDer::from(der)).map_err(|error| {
            ConfigError::new(
                "root_certificate",
                format!("it is not a certificate that can be trusted ({error})"),
                "give it one X.509 certificate in DER, not PEM",
            )
        })?;
    }
    // Named, because more than one provider may be built in, for which rustls would panic.
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|error| {
            ConfigError::new(
                "tls",
                format!("rustls does not take its own versions ({error})"),
                "build rustls with its feature tls12, or std",
            )
        })?;
    Ok(config.with_root_certificates(roots).with_no_client_auth())
}

impl Service<Request<RequestBody>> for HyperClient {
    type Response = Response<Incoming>;
    type Error = Error;
    type Future = ResponseFuture;

    fn poll_ready(&mut self, _cx: &mut Context<'_>) -> Poll<Result<(), Error>> {
        // hyper's pool has no limit; its own `poll_ready` says the same.
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, mut request: Request<RequestBody>) -> ResponseFuture {
        // The connection decides which version is spoken, not the one in which a request came to whoever
        // hands it on: hyper refuses one of HTTP/2 on a connection of HTTP/1.1.
        *request.version_mut() = Version::HTTP_11;
        let state = match super::absolute(request.uri()) {
            Ok(()) => State::Sending { pending: self.client.request(request) },
            Err(error) => State::Unsent { error: Some(error) },
        };
        ResponseFuture { state }
    }
}

pin_project! {
    /// The future of [`HyperClient`]: a named type around hyper's own. Dropping it ends the exchange.
    pub struct ResponseFuture {
        #[pin]
        state: State,
    }
}

pin_project! {
    #[project = StateProjection]
    enum State {
        /// hyper has the request.
        Sending { #[pin] pending: legacy::ResponseFuture },
        /// It was never given to it; the error is handed on once.
        Unsent { error: Option<Error> },
    }
}

impl Future for ResponseFuture {
    type Output = Result<Response<Incoming>, Error>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        match self.project().state.project() {
            StateProjection::Sending { pending } => {
                pending.poll(cx).map(|result| result.map_err(Error::from_inner))
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

/// Puts a limit around the whole of a connection: hyper-util's own one ends with TCP, and a server that accepts and says nothing
/// to TLS would hold a call for ever.
#[derive(Clone)]
struct Connector {
    https: HttpsConnector<HttpConnector>,
    timeout: Duration,
}

impl Service<Uri> for Connector {
    type Response = <HttpsConnector<HttpConnector> as Service<Uri>>::Response;
    type Error = BoxError;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, BoxError>> + Send>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        self.https.poll_ready(cx)
    }

    fn call(&mut self, uri: Uri) -> Self::Future {
        let connecting = self.https.call(uri);
        let timeout = self.timeout;
        Box::pin(async move {
            match tokio::time::timeout(timeout, connecting).await {
                Ok(connected) => connected,
                Err(_) => Err(io::Error::new(
                    io::ErrorKind::TimedOut,
                    "no connection within connect_timeout",
                )
                .into()),
            }
        })
    }
}

/// Connections that take longer are not worth waiting for: hosts answer within 1 s, and lost SYNs are sent again after 1, 3 and 7 s.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
