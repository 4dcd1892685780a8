use backstop_core::dialect::{BodyEnd, Judge, Mode, Presentation, Route, Seen};
use backstop_core::{AttemptCell, Class, Error, Evidence, StreamEnd, TimedOut, Verdict};
use bytes::Bytes;
use http::response::Parts;
use http_body::Frame;
use tokio::time::Instant;

use crate::clocks::Clocks;
use crate::config::Config;
use crate::decode::Decoder;

/// Reads beside the bytes of one answer: what they mean so far, which timeouts run, and what is to
/// be told of them. It changes no byte and holds none.
#[derive(Debug)]
pub(crate) struct Watch {
    judge: Judge,
    decoder: Decoder,
    /// The text of a compressed document; empty for anything else.
    decoded: Vec<u8>,
    is_stream: bool,
    mode: Mode,
    seen: Seen,
    pub(crate) clocks: Clocks,
    cell: Option<AttemptCell>,
}

impl Watch {
    /// Watches the answer with this head.
    pub(crate) fn new(
        config: &Config,
        route: Route,
        head: &Parts,
        mut clocks: Clocks,
        now: Instant,
    ) -> Self {
        let wall = config.clock.at(now.into_std());
        let judge = Judge::new(config.mode, route, head.status, &head.headers, wall);
        let is_stream = judge.is_stream();
        clocks.head_came(is_stream, now);
        Self {
            judge,
            decoder: Decoder::of(&head.headers),
            decoded: Vec::new(),
            is_stream,
            mode: config.mode,
            seen: Seen::Nothing,
            clocks,
            cell: None,
        }
    }

    /// Tells a cell of it from here on.
    pub(crate) fn tell(&mut self, cell: AttemptCell) {
        self.cell = Some(cell);
    }

    pub(crate) const fn is_stream(&self) -> bool {
        self.is_stream
    }

    pub(crate) const fn is_readable(&self) -> bool {
        self.decoder.is_readable()
    }

    pub(crate) const fn cell(&self) -> Option<&AttemptCell> {
        self.cell.as_ref()
    }

    /// Whether the answer's own end was seen: what comes after it changes nothing.
    pub(crate) fn is_over(&self) -> bool {
        self.seen == Seen::End
    }

    /// Whether an error was seen in the stream.
    pub(crate) fn has_failed(&self) -> bool {
        self.seen == Seen::Failed
    }

    /// Takes note of a frame, and says what was seen so far.
    ///
    /// `limit` bounds the text of a compressed document: past it the answer cannot be judged by its
    /// body.
    pub(crate) fn see(&mut self, frame: &Frame<Bytes>, limit: u64) -> Seen {
        let Some(data) = frame.data_ref() else { return self.seen };
        let now = Instant::now();
        self.clocks.bytes_came(now);
        if let Some(cell) = &self.cell {
            cell.add_bytes(data.len(), now.into_std());
        }
        if matches!(self.seen, Seen::Failed | Seen::End) {
            return self.seen;
        }
        let before = self.seen;
        let found = if self.is_stream { self.see_events(data) } else { self.see_text(data, limit) };
        self.seen = before.max(found);
        if found >= Seen::Content && self.judge.content_started() {
            self.clocks.content_came(now);
            if let Some(cell) = &self.cell {
                cell.set_first_content(now.into_std());
            }
        }
        if self.seen == Seen::End {
            self.clocks.end_came(now);
        }
        self.seen
    }

    fn see_events(&mut self, data: &[u8]) -> Seen {
        let judge = &mut self.judge;
        let mut found = Seen::Nothing;
        let decoded = self.decoder.push(data, |text| {
            found = found.max(judge.push(text));
            !matches!(found, Seen::Failed | Seen::End)
        });
        // Nobody downstream can read it either: no answer.
        if decoded.is_err() { Seen::Failed } else { found }
    }

    fn see_text(&mut self, data: &[u8], limit: u64) -> Seen {
        if self.decoder.is_identity() || !self.decoder.is_readable() {
            return Seen::Nothing;
        }
        let decoded = &mut self.decoded;
        let mut fits = true;
        let done = self.decoder.push(data, |text| {
            fits = decoded.len() as u64 + text.len() as u64 <= limit;
            if fits {
                decoded.extend_from_slice(text);
            }
            fits
        });
        if done.is_err() {
            return Seen::Failed;
        }
        if !fits {
            self.decoder = Decoder::Unreadable;
            self.decoded = Vec::new();
        }
        Seen::Nothing
    }

    /// The text of a document that was held as `held`.
    pub(crate) fn text<'a>(&'a self, held: &'a Bytes) -> &'a [u8] {
        if !self.decoder.is_readable() {
            &[]
        } else if self.decoder.is_identity() {
            held
        } else {
            &self.decoded
        }
    }

    /// The verdict at the end of the answer, of which `document` was held if it is no stream.
    pub(crate) fn finish(&mut self, document: &Bytes, end: BodyEnd) -> Verdict {
        let Self { judge, decoder, decoded, is_stream, .. } = self;
        let end = match end {
            BodyEnd::Eof if !decoder.is_readable() => BodyEnd::Unread,
            end => end,
        };
        let text: &[u8] = match decoder {
            _ if *is_stream => &[],
            Decoder::Identity => document,
            Decoder::Unreadable => &[],
            #[cfg(feature = "decompress")]
            Decoder::Inflate(_) => decoded,
        };
        judge.finish(text, end)
    }

    /// The verdict on an answer that stopped coming in time.
    pub(crate) fn timed_out(&mut self, document: &Bytes, timeout: TimedOut) -> (Verdict, Error) {
        let mut verdict = self.finish(document, BodyEnd::Broken);
        if !is_whole(&verdict) {
            let class = class_of_timeout(self.mode);
            verdict = verdict
                .with_class(class, Evidence::Local)
                .with_message(&timeout.to_string());
        }
        let error = Error::attempt(verdict.clone(), timeout);
        (verdict, error)
    }

    /// The verdict while a stream goes on.
    pub(crate) fn so_far(&self) -> Verdict {
        self.judge.verdict_so_far()
    }

    /// What a caller gets in place of a 2xx that was a failure.
    pub(crate) fn presentation(&self) -> Presentation {
        self.judge.presentation()
    }

    /// The verdict when a body ends whose bytes are handed on as they come: of a document nothing is
    /// known then but its head.
    pub(crate) fn finish_live(&mut self, end: BodyEnd) -> Verdict {
        let end = match end {
            BodyEnd::Eof if !self.is_stream => BodyEnd::Unread,
            end => end,
        };
        self.finish(&Bytes::new(), end)
    }

    /// Writes the last verdict into the cell.
    pub(crate) fn tell_end(&self, verdict: &Verdict) {
        if let Some(cell) = &self.cell {
            cell.set_end(verdict.clone(), Instant::now().into_std());
        }
    }

    /// The body was dropped before its end: its reader had all it wanted, or went away.
    pub(crate) fn tell_abandoned(&mut self) {
        let Some(cell) = &self.cell else { return };
        if cell.last_verdict().is_some() {
            return;
        }
        let verdict = if self.judge.is_whole() {
            self.finish_live(BodyEnd::Eof)
        } else {
            let end = self.is_stream.then_some(StreamEnd::Truncated);
            self.so_far().with_class(Class::Cancelled, Evidence::Local).with_stream_end(end)
        };
        self.tell_end(&verdict);
    }
}

/// `timeout`; in agnostic mode, which knows one failure, `transient`.
pub(crate) const fn class_of_timeout(mode: Mode) -> Class {
    match mode {
        Mode::Agnostic => Class::Transient,
        _ => Class::Timeout,
    }
}

/// Whether nothing is missing of a stream, however its connection closed.
pub(crate) fn is_whole(verdict: &Verdict) -> bool {
    verdict.stream_end() == Some(StreamEnd::Complete)
}

/// The error with which a stream ends that broke off, although its bytes ended well.
pub(crate) fn abnormal_end(verdict: Verdict) -> Option<Error> {
    let what = match verdict.stream_end() {
        Some(StreamEnd::Error) => "the provider reported an error in the stream",
        Some(StreamEnd::Truncated) => "the stream ended before its end marker",
        _ => return None,
    };
    Some(Error::attempt(verdict, what))
}
