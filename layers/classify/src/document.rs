use backstop_core::AttemptCell;
use backstop_core::dialect::Mode;
use bytes::Bytes;
use http_body::Frame;
use tokio::time::Instant;

use crate::clocks::Clocks;
use crate::decode::Decoder;
use crate::watch::Watch;

/// A document while it is held: its text, where it is compressed, and what is to be told of it. What
/// it means is asked once, when it is whole.
#[derive(Debug)]
pub(crate) struct Document {
    decoder: Decoder,
    /// The text of a compressed document; empty for one that is not.
    decoded: Vec<u8>,
    is_corrupt: bool,
    pub(crate) clocks: Clocks,
    cell: AttemptCell,
}

impl Document {
    pub(crate) const fn new(decoder: Decoder, clocks: Clocks, cell: AttemptCell) -> Self {
        Self { decoder, decoded: Vec::new(), is_corrupt: false, clocks, cell }
    }

    /// Takes note of a frame, and says whether its text is within `limit` bytes still; past that it is
    /// read no further.
    pub(crate) fn see(&mut self, frame: &Frame<Bytes>, limit: u64) -> bool {
        let Some(data) = frame.data_ref().filter(|data| !data.is_empty()) else { return true };
        let now = Instant::now();
        self.clocks.bytes_came(now);
        self.cell.add_bytes(data.len(), now.into_std());
        if self.decoder.is_identity() || !self.decoder.is_readable() || self.is_corrupt {
            return true;
        }
        let Self { decoder, decoded, .. } = self;
        let mut fits = true;
        let done = decoder.push(data, |text| {
            fits = decoded.len() as u64 + text.len() as u64 <= limit;
            if fits {
                decoded.extend_from_slice(text);
            }
            fits
        });
        self.is_corrupt = done.is_err();
        if !fits {
            self.decoder = Decoder::Unreadable;
            self.decoded = Vec::new();
        }
        fits
    }

    /// The bytes are over: one whose coding lacks its end can be read by nobody.
    pub(crate) fn end(&mut self, len: u64) {
        if len > 0 && !self.is_corrupt {
            self.is_corrupt = self.decoder.finish().is_err();
        }
    }

    /// Goes on to watch what of it is handed on unread.
    pub(crate) fn into_watch(self, mode: Mode) -> Watch {
        Watch::new(None, Decoder::Identity, mode, self.clocks, self.cell)
    }

    /// Whether the bytes are the text.
    pub(crate) const fn is_plain(&self) -> bool {
        self.decoder.is_identity()
    }

    pub(crate) const fn is_readable(&self) -> bool {
        self.decoder.is_readable()
    }

    /// Whether it is not what its `content-encoding` says, so that nobody can read it.
    pub(crate) const fn is_corrupt(&self) -> bool {
        self.is_corrupt
    }

    /// Its text, if `held` are its bytes.
    pub(crate) fn text<'a>(&'a self, held: &'a Bytes) -> &'a [u8] {
        match &self.decoder {
            Decoder::Identity => held,
            Decoder::Unreadable => &[],
            #[cfg(feature = "decompress")]
            Decoder::Inflate(_) => &self.decoded,
        }
    }
}
