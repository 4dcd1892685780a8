use backstop_core::dialect::{BodyEnd, Judge, Mode, Presentation, Seen};
use backstop_core::error::{BoxError, Error};
use backstop_core::{AttemptCell, Class, Evidence, StreamEnd, TimedOut, Verdict};
use bytes::Bytes;
use http::StatusCode;
use http_body::Frame;
use tokio::time::Instant;

use crate::clocks::Clocks;
use crate::decode::Decoder;

/// Reads beside the bytes of an answer that is handed on as they come: what they mean so far, which
/// timeouts run, and what is to be told of them. It changes no byte and holds none.
#[derive(Debug)]
pub(crate) struct Watch {
    /// `None` for a document, which means something only as a whole.
    judge: Option<Judge>,
    decoder: Decoder,
    mode: Mode,
    seen: Seen,
    /// The bytes are not what their `content-encoding` says.
    is_corrupt: bool,
    pub(crate) clocks: Clocks,
    cell: AttemptCell,
}

impl Watch {
    /// Watches an answer: a stream with its `judge`, a document without one.
    pub(crate) const fn new(
        judge: Option<Judge>,
        decoder: Decoder,
        mode: Mode,
        clocks: Clocks,
        cell: AttemptCell,
    ) -> Self {
        Self { judge, decoder, mode, seen: Seen::Nothing, is_corrupt: false, clocks, cell }
    }

    /// Whether the end or an error was seen: what comes after it changes nothing.
    pub(crate) const fn is_settled(&self) -> bool {
        matches!(self.seen, Seen::Failed | Seen::End)
    }

    /// Whether the bytes are the text.
    pub(crate) const fn is_plain(&self) -> bool {
        self.decoder.is_identity()
    }

    /// Takes note of a frame, and says what was seen so far.
    pub(crate) fn see(&mut self, frame: &Frame<Bytes>) -> Seen {
        let Some(data) = frame.data_ref().filter(|data| !data.is_empty()) else {
            return self.seen;
        };
        let now = Instant::now();
        self.clocks.bytes_came(now);
        self.cell.add_bytes(data.len(), now.into_std());
        if self.is_settled() {
            return self.seen;
        }
        let Self { judge: Some(judge), decoder, .. } = self else { return self.seen };
        let mut found = Seen::Nothing;
        let decoded = decoder.push(data, |text| {
            found = found.max(judge.push(text));
            !matches!(found, Seen::Failed | Seen::End)
        });
        if decoded.is_err() {
            // Nobody downstream can read it either: no answer.
            found = Seen::Failed;
            self.is_corrupt = true;
        }
        let content_started = judge.content_started();
        self.seen = self.seen.max(found);
        if found >= Seen::Content && content_started {
            self.clocks.content_came(now);
            self.cell.set_first_content(now.into_std());
        }
        if self.seen == Seen::End {
            self.clocks.end_came(now);
        }
        self.seen
    }

    /// The verdict now that the bytes have ended.
    pub(crate) fn finish(&mut self, end: BodyEnd) -> Verdict {
        let is_cut = |decoder: &mut Decoder| decoder.finish().is_err();
        let end = match end {
            BodyEnd::Eof if !self.decoder.is_readable() => BodyEnd::Unread,
            // Text that ended well in bytes that did not: whoever reads it after us gets an error.
            BodyEnd::Eof if !self.is_settled() && is_cut(&mut self.decoder) => BodyEnd::Broken,
            BodyEnd::Eof if self.is_corrupt => BodyEnd::Broken,
            end => end,
        };
        match &mut self.judge {
            Some(judge) => judge.finish(&[], end),
            // Released before its end was known: a good transport's end is all there is to know.
            None if end == BodyEnd::Eof => self.so_far(),
            None => self.so_far().with_class(Class::Transient, Evidence::Transport),
        }
    }

    /// The verdict on an answer that stopped coming in time, and the error that says so.
    pub(crate) fn timed_out(&mut self, timeout: TimedOut) -> (Verdict, Error) {
        let mut verdict = self.finish(BodyEnd::Broken);
        if !is_whole(&verdict) {
            verdict = late(verdict, self.mode, timeout);
        }
        (verdict.clone(), Error::attempt(verdict, timeout))
    }

    /// The verdict while a stream goes on.
    pub(crate) fn so_far(&self) -> Verdict {
        match &self.judge {
            Some(judge) => judge.verdict_so_far(),
            None => self.cell.verdict().cloned().unwrap_or(Verdict::new(Class::Success)),
        }
    }

    /// What a caller gets in place of a 2xx that was a failure.
    pub(crate) fn presentation(&self) -> Presentation {
        self.judge.as_ref().map_or(Presentation::AsSent, Judge::presentation)
    }

    /// Writes the last verdict into the cell.
    pub(crate) fn tell_end(&self, verdict: Verdict) {
        self.cell.set_end(verdict, Instant::now().into_std());
    }

    /// The body was dropped before its end: its reader had all it wanted, or went away.
    pub(crate) fn tell_abandoned(&mut self) {
        if self.cell.last_verdict().is_some() {
            return;
        }
        let verdict = match &self.judge {
            Some(judge) if judge.is_whole() => self.finish(BodyEnd::Eof),
            judge => {
                let end = judge.is_some().then_some(StreamEnd::Truncated);
                self.so_far().with_class(Class::Cancelled, Evidence::Local).with_stream_end(end)
            }
        };
        self.tell_end(verdict);
    }
}

/// The verdict on an attempt that took too long: `timeout`; in agnostic mode, which knows one failure,
/// `transient`.
pub(crate) fn late(verdict: Verdict, mode: Mode, timeout: TimedOut) -> Verdict {
    let class = match mode {
        Mode::Agnostic => Class::Transient,
        _ => Class::Timeout,
    };
    verdict
        .with_class(class, Evidence::Local)
        .with_effective_status(StatusCode::GATEWAY_TIMEOUT)
        .with_message(&timeout.to_string())
}

/// Whether nothing is missing of a stream, however its connection closed.
pub(crate) fn is_whole(verdict: &Verdict) -> bool {
    verdict.stream_end() == Some(StreamEnd::Complete)
}

/// The error of a body that broke off. One of our own, from a layer of ours below, is not wrapped again.
pub(crate) fn broken(verdict: Verdict, error: impl Into<BoxError>) -> Error {
    match error.into().downcast::<Error>() {
        Ok(ours) => *ours,
        Err(theirs) => Error::attempt(verdict, theirs),
    }
}

/// The error with which a stream ends that broke off, although its bytes ended well.
pub(crate) fn abnormal_end(verdict: &Verdict) -> Option<Error> {
    let what = match verdict.stream_end() {
        Some(StreamEnd::Error) => "the provider reported an error in the stream",
        Some(StreamEnd::Truncated) => "the stream ended before its end marker",
        _ => return None,
    };
    Some(Error::attempt(verdict.clone(), what))
}
