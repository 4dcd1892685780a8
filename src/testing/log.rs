//! What a scripted provider has seen.

use bytes::Bytes;
use tokio::time::Instant;

/// One request that a [`ScriptedProvider`](super::ScriptedProvider) has parsed, and what became of it.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct SeenRequest {
    /// Its place in the order of arrival, from 0.
    pub index: usize,
    /// The connection it came on, counted from 0 in the order in which they were accepted.
    pub connection: usize,
    /// The method, as sent.
    pub method: String,
    /// The request target as sent: path and query.
    pub target: String,
    /// The headers in the order and spelling in which they were sent.
    pub headers: Vec<(String, Bytes)>,
    /// The body, without its framing, as much of it as arrived and was kept
    /// ([`max_body`](super::ProviderBuilder::max_body)). Filled in when it is complete or the exchange is over.
    pub body: Bytes,
    /// Bytes of the body that have arrived, kept or not.
    pub body_len: u64,
    /// Whether the body has arrived to its end.
    pub body_complete: bool,
    /// When the head had arrived.
    pub arrived: Instant,
    /// When the first byte of the answer was written; `None` where none was.
    pub first_byte: Option<Instant>,
    /// Bytes of the answer written so far: head, framing and scripted interim responses included.
    pub written: u64,
    /// How the exchange ended; `None` while it goes on.
    pub end: Option<ExchangeEnd>,
}

/// How an exchange of a [`ScriptedProvider`](super::ScriptedProvider) ended, and when.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum ExchangeEnd {
    /// The answer was written to its end.
    Answered(Instant),
    /// The provider closed the connection, or its half of it, before the answer's own end: as scripted, or because the
    /// request's body did not parse.
    Closed(Instant),
    /// The peer closed or reset the connection before the answer, or its own request, was complete. A peer that ends
    /// only its own half is taken to have gone, as most servers do.
    PeerGone(Instant),
    /// The script reset the connection.
    Reset(Instant),
    /// The provider was stopped, or its function panicked.
    Stopped(Instant),
}

/// Everything that changes while a provider runs. Kept in one watch channel: its waiters need no polling.
#[derive(Debug, Default)]
pub(super) struct State {
    pub(super) requests: Vec<SeenRequest>,
    pub(super) accepted: usize,
    pub(super) open: usize,
    /// Exchanges that have not come to their end.
    pub(super) active: usize,
    pub(super) exhausted: usize,
    pub(super) malformed: usize,
    pub(super) stale_resets: usize,
}

// === impl SeenRequest ===

impl SeenRequest {
    /// The value of a header, where it is there and is text; the first one of several. `name` in any case.
    #[must_use]
    pub fn header(&self, name: &str) -> Option<&str> {
        let (_, value) = self.headers.iter().find(|(seen, _)| seen.eq_ignore_ascii_case(name))?;
        std::str::from_utf8(value).ok()
    }

    /// The target without its query.
    #[must_use]
    pub fn path(&self) -> &str {
        self.target.split_once('?').map_or(self.target.as_str(), |(path, _)| path)
    }

    /// When the exchange ended, however it did; `None` while it goes on.
    #[must_use]
    pub fn ended_at(&self) -> Option<Instant> {
        self.end.map(ExchangeEnd::at)
    }
}

// === impl ExchangeEnd ===

impl ExchangeEnd {
    /// When it ended.
    #[must_use]
    pub fn at(self) -> Instant {
        match self {
            Self::Answered(at)
            | Self::Closed(at)
            | Self::PeerGone(at)
            | Self::Reset(at)
            | Self::Stopped(at) => at,
        }
    }
}
