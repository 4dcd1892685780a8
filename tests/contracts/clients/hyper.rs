//! The client of our own at the bottom.

use backstop::client::hyper::HyperClient;
use backstop::{Class, Verdict};
use tokio::io::AsyncReadExt;
use tokio::net::TcpListener;
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
