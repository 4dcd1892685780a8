//! The client of our own at the bottom.

use std::sync::Arc;

use backstop::client::hyper::HyperClient;
use backstop::{Class, Verdict};
use bytes::Bytes;
use http::{Request, Response, Version};
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::io::AsyncReadExt;
use tokio::net::TcpListener;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::{ServerConfig, crypto::ring, pki_types::PrivateKeyDer};
use tower::ServiceExt;

use super::{SECRET, hides_the_url};
use crate::rig::{ASK, ms, post};
use crate::support::CHAT;

fn bottom() -> HyperClient {
    HyperClient::new().unwrap()
}

super::contracts_of_a_bottom!(bottom());

#[tokio::test]
async fn a_server_that_is_silent_to_tls_is_a_timeout() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("https://{}{CHAT}{SECRET}", listener.local_addr().unwrap());
    let client = HyperClient::builder().connect_timeout(ms(100)).build().unwrap();
    let call = client.oneshot(post(url, ASK));
    let (error, accepted) = tokio::join!(call, listener.accept());
    let error = error.unwrap_err();
    assert_eq!(error.verdict().map(Verdict::class), Some(Class::Timeout));
    hides_the_url(&error);
    // A hello for HTTP/1.1 and HTTP/2 came, and then the connection was given up.
    let mut hello = Vec::new();
    accepted.unwrap().0.read_to_end(&mut hello).await.unwrap();
    let offers = |protocol: &[u8]| hello.windows(protocol.len()).any(|part| part == protocol);
    assert!(offers(b"\x02h2") && offers(b"\x08http/1.1"), "{hello:?}");
}

#[tokio::test]
async fn http2_only_begins_with_http2() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}{CHAT}", listener.local_addr().unwrap());
    let client = HyperClient::builder().http2_only(true).build().unwrap();
    let call = tokio::spawn(client.oneshot(post(url, ASK)));
    let (mut peer, _) = listener.accept().await.unwrap();
    let mut preface = [0; 24];
    peer.read_exact(&mut preface).await.unwrap();
    assert_eq!(&preface, b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n");
    call.abort();
}

#[test]
fn settings_that_make_no_sense_are_errors_of_build() {
    let pem = HyperClient::builder().add_root_certificate(*b"-----BEGIN CERTIFICATE-----");
    assert_eq!(pem.build().unwrap_err().key(), "root_certificate");
    let hasty = HyperClient::builder().connect_timeout(ms(0));
    assert_eq!(hasty.build().unwrap_err().key(), "connect_timeout");
}

#[tokio::test]
async fn a_server_that_ends_the_handshake_is_a_failed_attempt() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("https://{}{CHAT}{SECRET}", listener.local_addr().unwrap());
    let accept = async { drop(listener.accept().await.unwrap()) };
    let (error, ()) = tokio::join!(bottom().oneshot(post(url, ASK)), accept);
    let error = error.unwrap_err();
    assert_eq!(error.verdict().map(Verdict::class), Some(Class::Transient));
    hides_the_url(&error);
}

/// Self-signed for localhost, good for 100 years: `openssl req -x509` with `CA:FALSE`. It is for nothing else, so that its key
/// is no secret.
const CERTIFICATE: &[u8] = include_bytes!("../../data/localhost-cert.der");
const KEY: &[u8] = include_bytes!("../../data/localhost-key.der");

/// The URL of a server on TLS that offers `protocols` and answers with what it was sent.
async fn tls_server(protocols: &[&str]) -> String {
    let mut config = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(vec![CERTIFICATE.into()], PrivateKeyDer::try_from(KEY).unwrap())
        .unwrap();
    config.alpn_protocols = protocols.iter().map(|name| name.as_bytes().to_vec()).collect();
    let acceptor = TlsAcceptor::from(Arc::new(config));
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("https://localhost:{}", listener.local_addr().unwrap().port());
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let Ok(stream) = acceptor.accept(stream).await else { continue };
            let http2 = stream.get_ref().1.alpn_protocol() == Some(b"h2");
            let (stream, echo) = (TokioIo::new(stream), hyper::service::service_fn(echo));
            tokio::spawn(async move {
                if http2 {
                    let server = hyper::server::conn::http2::Builder::new(TokioExecutor::new());
                    server.serve_connection(stream, echo).await
                } else {
                    hyper::server::conn::http1::Builder::new().serve_connection(stream, echo).await
                }
            });
        }
    });
    url
}

async fn echo(request: Request<Incoming>) -> Result<Response<Full<Bytes>>, hyper::Error> {
    Ok(Response::new(Full::new(request.into_body().collect().await?.to_bytes())))
}

#[tokio::test]
async fn a_server_of_an_added_certificate_is_spoken_to_in_the_protocol_it_chooses() {
    let choices: [(&[&str], bool, Version); 4] = [
        (&["h2", "http/1.1"], false, Version::HTTP_2),
        (&["http/1.1"], false, Version::HTTP_11),
        (&[], false, Version::HTTP_11),
        (&["h2", "http/1.1"], true, Version::HTTP_2),
    ];
    for (protocols, http2_only, version) in choices {
        let url = tls_server(protocols).await;
        let builder =
            HyperClient::builder().add_root_certificate(CERTIFICATE).http2_only(http2_only);
        let client = builder.build().unwrap();
        let response = client.oneshot(post(format!("{url}{CHAT}"), ASK)).await.unwrap();
        assert_eq!((response.status().as_u16(), response.version()), (200, version));
        assert_eq!(response.into_body().collect().await.unwrap().to_bytes(), ASK);
    }
}

#[tokio::test]
async fn a_server_that_nobody_vouches_for_gets_no_request() {
    let url = tls_server(&["h2"]).await;
    let error = bottom().oneshot(post(format!("{url}{CHAT}{SECRET}"), ASK)).await.unwrap_err();
    assert_eq!(error.verdict().map(Verdict::class), Some(Class::Transient));
    hides_the_url(&error);
}

#[tokio::test]
async fn a_request_that_came_in_over_http2_goes_out_in_whatever_the_server_speaks() {
    let provider =
        backstop::testing::ScriptedProvider::start([backstop::testing::script::openai::chat(
            "m", "hi",
        )]);
    let provider = provider.await.unwrap();
    let mut request = post(format!("{}{CHAT}", provider.url()), ASK);
    *request.version_mut() = Version::HTTP_2;
    assert_eq!(bottom().oneshot(request).await.unwrap().status(), 200);
}

#[tokio::test]
async fn a_scheme_that_nobody_speaks_is_an_error_that_is_not_repeated() {
    let error = bottom().oneshot(post("ftp://files.test/v1/chat", ASK)).await.unwrap_err();
    assert!(matches!(error, backstop::Error::Misconfigured { .. }), "{error}");
}
