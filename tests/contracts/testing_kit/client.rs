//! A client that sees every byte.

use std::{io, time::Duration};

use backstop::testing::ScriptedProvider;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
    time::timeout,
};

/// One connection, and all that came on it and was not looked at yet.
pub(super) struct Client {
    pub(super) stream: TcpStream,
    seen: Vec<u8>,
}

impl Client {
    pub(super) async fn to(provider: &ScriptedProvider) -> Self {
        let stream = TcpStream::connect(provider.addr()).await.unwrap();
        stream.set_nodelay(true).unwrap();
        Self { stream, seen: Vec::new() }
    }

    pub(super) async fn send(&mut self, bytes: impl AsRef<[u8]>) {
        self.stream.write_all(bytes.as_ref()).await.unwrap();
    }

    /// Sends a small request with a body.
    pub(super) async fn post(&mut self, body: &str) {
        let len = body.len();
        self.send(format!("POST /v1/x HTTP/1.1\r\nhost: a\r\ncontent-length: {len}\r\n\r\n{body}"))
            .await;
    }

    /// What comes up to and including `mark`, as text.
    pub(super) async fn until(&mut self, mark: &str) -> String {
        loop {
            let at = self.seen.windows(mark.len()).position(|window| window == mark.as_bytes());
            if let Some(at) = at {
                let rest = self.seen.split_off(at + mark.len());
                return String::from_utf8(std::mem::replace(&mut self.seen, rest)).unwrap();
            }
            let len = self.stream.read_buf(&mut self.seen).await.unwrap();
            assert!(
                len > 0,
                "ended before {mark:?}, after {:?}",
                String::from_utf8_lossy(&self.seen)
            );
        }
    }

    /// The next answer's head.
    pub(super) async fn head(&mut self) -> String {
        self.until("\r\n\r\n").await
    }

    /// Everything up to the end of the connection, and how it ended.
    pub(super) async fn rest(&mut self) -> (String, io::Result<()>) {
        let end = self.stream.read_to_end(&mut self.seen).await.map(drop);
        (String::from_utf8(std::mem::take(&mut self.seen)).unwrap(), end)
    }

    /// Everything up to the end of the connection, which must be a proper one.
    pub(super) async fn rest_then_fin(&mut self) -> String {
        let (rest, end) = self.rest().await;
        end.unwrap();
        rest
    }

    /// Everything up to the end of the connection, which must be a reset.
    pub(super) async fn rest_then_reset(&mut self) -> String {
        let (rest, end) = self.rest().await;
        assert_eq!(end.unwrap_err().kind(), io::ErrorKind::ConnectionReset);
        rest
    }

    /// Nothing comes, and the connection stays open.
    pub(super) async fn assert_silent(&mut self) {
        assert!(self.seen.is_empty(), "{:?}", String::from_utf8_lossy(&self.seen));
        let more = timeout(Duration::from_millis(60), self.stream.read_buf(&mut self.seen)).await;
        assert!(more.is_err(), "{more:?}");
    }
}
