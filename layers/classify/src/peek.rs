use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use backstop_core::dialect::{BodyEnd, Framing, Presentation, Seen};
use backstop_core::error::{BoxError, Error};
use backstop_core::{
    AttemptCell, Class, Evidence, HeldFrames, Hold, StreamEnd, Substitute, TimedOut, Verdict,
};
use bytes::Bytes;
use http::header::CONTENT_LENGTH;
use http::response::Parts;
use http::{Response, StatusCode};
use http_body::{Body, Frame};
use tokio::time::Instant;

use crate::body::ClassifyBody;
use crate::classifier::Answer;
use crate::clocks::{Clocks, Timer};
use crate::config::HoldOverflow;
use crate::decode::Decoder;
use crate::document::Document;
use crate::future::Attempt;
use crate::judged::Rest;
use crate::watch::{Watch, abnormal_end, broken, is_whole, late};

/// An answer that is held back while it is read.
pub(crate) struct Peek<RB> {
    head: Parts,
    body: RB,
    held: HeldFrames,
    reading: Reading,
    cell: AttemptCell,
    until: Until,
    limit: u64,
    overflow: HoldOverflow,
    /// When a failed answer that is slow to explain itself is judged by its head.
    head_must_do_by: Option<Instant>,
}

/// How the answer is read.
enum Reading {
    /// As a whole, once it is there.
    Document(Document),
    /// Event by event.
    Stream(Box<Watch>),
}

/// How long an answer is held.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Until {
    /// Not at all.
    Head,
    /// Until a stream's first content.
    Content,
    /// Until the answer's end.
    End,
}

/// Why the holding is over.
pub(crate) enum Settled {
    /// The head was enough, or must do.
    Head,
    /// Content came.
    Content,
    /// The answer's own end, or an error, was seen in the stream; bytes may follow.
    Seen,
    /// The bytes ended.
    Eof,
    /// The bytes broke off.
    Broken(BoxError),
    /// It took too long.
    TimedOut(TimedOut),
    /// There is more than may be held.
    Overflow,
}

impl<RB> Peek<RB>
where
    RB: Body<Data = Bytes> + Unpin,
    RB::Error: Into<BoxError>,
{
    pub(crate) fn new(head: Parts, body: RB, attempt: &mut Attempt) -> Self {
        let now = Instant::now();
        let mut clocks = attempt.take_clocks(now);
        let cell = AttemptCell::new(clocks.started().into_std());
        cell.set_head(now.into_std());
        let decoder = Decoder::of(&head.headers);
        let is_readable = decoder.is_readable();
        let framing = attempt.route.framing(head.status, &head.headers);
        let is_stream = framing != Framing::Document;
        // What cannot be read has no content that could be missed.
        clocks.head_came(is_stream && is_readable, now);
        let reading = if is_stream {
            let judge = attempt.judge(&head, now);
            let mode = attempt.config.mode;
            Reading::Stream(Box::new(Watch::new(Some(judge), decoder, mode, clocks, cell.clone())))
        } else {
            Reading::Document(Document::new(decoder, clocks, cell.clone()))
        };
        let failed = !head.status.is_success();
        let until = match attempt.hold {
            // The class of a failure stands in its body, whatever is held of a success.
            _ if failed => Until::End,
            Hold::Headers => Until::Head,
            // What cannot be read cannot be waited for.
            Hold::FirstContent if is_stream && !is_readable => Until::Head,
            Hold::FirstContent if is_stream => Until::Content,
            _ => Until::End,
        };
        let (mut limit, mut overflow) = (
            attempt.config.hold_limit(attempt.hold, is_stream),
            attempt.config.hold_overflow(attempt.hold, is_stream),
        );
        if failed {
            limit = limit.min(ERROR_BODY_LIMIT);
            overflow = HoldOverflow::Commit;
        }
        let head_must_do_by = failed.then(|| now + ERROR_BODY_TIME);
        let held = HeldFrames::within(attempt.config.buffer_limit.as_ref());
        Self { head, body, held, reading, cell, until, limit, overflow, head_must_do_by }
    }

    /// Reads until it is clear what the answer is, or nothing more may be held.
    pub(crate) fn poll_settled(
        &mut self,
        timer: &mut Timer,
        cx: &mut Context<'_>,
    ) -> Poll<Settled> {
        if self.until == Until::Head {
            return Poll::Ready(Settled::Head);
        }
        for _ in 0..FRAMES_AT_ONCE {
            match Pin::new(&mut self.body).poll_frame(cx) {
                Poll::Ready(Some(Ok(frame))) => {
                    if let Some(settled) = self.take(frame) {
                        return Poll::Ready(settled);
                    }
                }
                Poll::Ready(None) => return Poll::Ready(Settled::Eof),
                Poll::Ready(Some(Err(error))) => return Poll::Ready(Settled::Broken(error.into())),
                Poll::Pending => return self.poll_late(timer, cx),
            }
        }
        // A body that always has something to give would keep everybody else from running.
        let late = self.poll_late(timer, cx);
        if late.is_pending() {
            cx.waker().wake_by_ref();
        }
        late
    }

    /// Holds a frame, and says what it settles.
    fn take(&mut self, frame: Frame<Bytes>) -> Option<Settled> {
        let (seen, is_readable) = match &mut self.reading {
            Reading::Document(document) => (Seen::Nothing, document.see(&frame, self.limit)),
            Reading::Stream(watch) => (watch.see(&frame), true),
        };
        let has_place = self.held.push(frame);
        match seen {
            Seen::Content if self.until == Until::Content => return Some(Settled::Content),
            Seen::Failed | Seen::End => return Some(Settled::Seen),
            _ => {}
        }
        if !is_readable {
            return Some(Settled::Overflow);
        }
        if self.body.is_end_stream() {
            return Some(Settled::Eof);
        }
        if !has_place || self.held.len() > self.limit {
            return Some(Settled::Overflow);
        }
        self.clocks().overdue().map(Settled::TimedOut)
    }

    fn poll_late(&self, timer: &mut Timer, cx: &mut Context<'_>) -> Poll<Settled> {
        self.clocks().poll_due_or(self.head_must_do_by, timer, cx).map(|due| match due {
            Some(timeout) => Settled::TimedOut(timeout),
            None => Settled::Head,
        })
    }

    const fn clocks(&self) -> &Clocks {
        match &self.reading {
            Reading::Document(document) => &document.clocks,
            Reading::Stream(watch) => &watch.clocks,
        }
    }

    /// Judges the answer and lets it go, the held frames first.
    pub(crate) fn release(self, settled: Settled, attempt: &Attempt) -> Response<ClassifyBody<RB>> {
        let Self { mut head, body, mut held, reading, cell, overflow, .. } = self;
        let overflowed = matches!(settled, Settled::Overflow) && overflow == HoldOverflow::Fail;
        let ended_well = matches!(settled, Settled::Eof);
        let judged = match reading {
            Reading::Stream(watch) => {
                judge_stream(watch, body, &mut held, settled, overflowed, attempt)
            }
            Reading::Document(document) => {
                let document = Held { document, held: &mut held, head: &head };
                document.judge(body, settled, overflowed, attempt)
            }
        };
        let Judgement { verdict: built_in, shown, mut rest, is_over, text } = judged;
        let own = attempt.config.classifier.as_ref().and_then(|own| {
            let answer = Answer::of_response(head.status, &head.headers, &text, &built_in);
            own.classify(&answer)
        });
        let built_in_failed = built_in.class().is_failure();
        let (verdict, built_in) = match own {
            Some(own) => (own, Some(built_in)),
            None => (built_in, None),
        };
        let failed = verdict.class().is_failure();
        if built_in_failed && !failed && ended_well {
            // The user's word that these bytes are an answer: then they end like one.
            rest = Rest::Ended;
        }
        if failed && head.status.is_success() {
            let shown = match shown {
                Presentation::Error { status, body } => Some(Substitute::new(status, body)),
                // The answer itself tells of the failure; but not where only the user's own
                // classifier knows of it.
                _ if built_in_failed => None,
                _ => {
                    let message = verdict.message().unwrap_or("the answer was judged a failure");
                    let status = verdict.effective_status();
                    let body = attempt.error_body(status, verdict.class().as_str(), message);
                    Some(Substitute::new(status, body))
                }
            };
            if let Some(shown) = shown {
                cell.set_substitute(shown);
            }
        }
        let now = Instant::now().into_std();
        match built_in {
            // Nobody's word makes bytes whole that broke off.
            Some(built_in) if is_over && built_in_failed && !failed && !ended_well => {
                cell.set_end(built_in, now);
                cell.set_verdict(verdict);
            }
            _ if is_over || failed => cell.set_whole(verdict, now),
            _ => cell.set_verdict(verdict),
        }
        head.extensions.insert(cell.clone());
        let announced = head.headers.get(CONTENT_LENGTH);
        let announced = announced.and_then(|length| length.to_str().ok()?.parse().ok());
        // Where the head says nothing, a server tells the length that the body itself knows.
        let announced = announced.or_else(|| match &rest {
            Rest::Live(body, _) => body.size_hint().exact()?.checked_add(held.len()),
            _ => None,
        });
        Response::from_parts(head, ClassifyBody::new(held, rest, cell, announced))
    }
}

/// What the holding led to.
struct Judgement<RB> {
    verdict: Verdict,
    shown: Presentation,
    rest: Rest<RB>,
    is_over: bool,
    /// What the user's own classifier is shown; empty where there is none.
    text: Bytes,
}

fn judge_stream<RB>(
    mut watch: Box<Watch>,
    body: RB,
    held: &mut HeldFrames,
    settled: Settled,
    overflowed: bool,
    attempt: &Attempt,
) -> Judgement<RB> {
    let is_shown = attempt.config.classifier.is_some() && watch.is_plain();
    let text = if is_shown { held.document() } else { Bytes::new() };
    let (verdict, error) = match settled {
        Settled::Overflow if overflowed => {
            let verdict = watch.so_far().with_stream_end(Some(StreamEnd::Truncated));
            return overflow(verdict, text, attempt);
        }
        Settled::Head | Settled::Content | Settled::Overflow => {
            let verdict = watch.so_far();
            let shown = Presentation::AsSent;
            let rest = Rest::Live(body, watch);
            return Judgement { verdict, shown, rest, is_over: false, text };
        }
        Settled::Seen => {
            let verdict = watch.finish(BodyEnd::Eof);
            let shown = watch.presentation();
            let rest = Rest::Live(body, watch);
            return Judgement { verdict, shown, rest, is_over: true, text };
        }
        Settled::Eof => {
            let verdict = watch.finish(BodyEnd::Eof);
            let error = abnormal_end(&verdict);
            (verdict, error)
        }
        Settled::Broken(error) => {
            let verdict = watch.finish(BodyEnd::Broken);
            (verdict.clone(), Some(broken(verdict, error)))
        }
        Settled::TimedOut(timeout) => {
            let (verdict, error) = watch.timed_out(timeout);
            let shown = attempt.show_timeout(timeout);
            let rest = Rest::Failed(Some(error));
            return Judgement { verdict, shown, rest, is_over: true, text };
        }
    };
    let shown = watch.presentation();
    let rest = match error {
        // Whole, however the connection closed.
        Some(error) if !is_whole(&verdict) => Rest::Failed(Some(error)),
        _ => Rest::Ended,
    };
    Judgement { verdict, shown, rest, is_over: true, text }
}

/// A document with the bytes that were held of it.
struct Held<'a> {
    document: Document,
    held: &'a mut HeldFrames,
    head: &'a Parts,
}

impl Held<'_> {
    fn judge<RB>(
        self,
        body: RB,
        settled: Settled,
        overflowed: bool,
        attempt: &Attempt,
    ) -> Judgement<RB> {
        let Self { mut document, held, head } = self;
        if matches!(settled, Settled::Eof) {
            document.end(held.len());
        }
        let failed = !head.status.is_success();
        let end = match settled {
            _ if document.is_corrupt() => BodyEnd::Broken,
            Settled::Eof if !document.is_readable() => BodyEnd::Unread,
            Settled::Eof => BodyEnd::Eof,
            Settled::Broken(_) | Settled::TimedOut(_) => BodyEnd::Broken,
            // A failure has said what it is by its status, and perhaps by what came of its body.
            _ if failed => BodyEnd::Broken,
            _ => BodyEnd::Unread,
        };
        let bytes = held.document();
        let mut judge = attempt.judge(head, Instant::now());
        let verdict = judge.finish(document.text(&bytes), end);
        let shown = judge.presentation();
        let text = match &attempt.config.classifier {
            None => Bytes::new(),
            Some(_) if document.is_plain() => bytes.clone(),
            Some(_) => Bytes::copy_from_slice(document.text(&bytes)),
        };
        if overflowed {
            return overflow(verdict, text, attempt);
        }
        let (verdict, shown, rest) = match settled {
            Settled::Head | Settled::Content | Settled::Seen | Settled::Overflow => {
                let watch = Box::new(document.into_watch(attempt.config.mode));
                let rest = Rest::Live(body, watch);
                return Judgement { verdict, shown, rest, is_over: false, text };
            }
            Settled::Eof => {
                // What lost its content type on the way may be a stream after all.
                let error = abnormal_end(&verdict);
                (verdict, shown, error.map_or(Rest::Ended, |error| Rest::Failed(Some(error))))
            }
            Settled::Broken(error) => {
                let error = broken(verdict.clone(), error);
                (verdict, shown, Rest::Failed(Some(error)))
            }
            // Late as it is, its status has said what it is.
            Settled::TimedOut(timeout) if failed => {
                let error = Error::attempt(verdict.clone(), timeout);
                (verdict, shown, Rest::Failed(Some(error)))
            }
            Settled::TimedOut(timeout) => {
                let verdict = late(verdict, attempt.config.mode, timeout);
                let error = Error::attempt(verdict.clone(), timeout);
                (verdict, attempt.show_timeout(timeout), Rest::Failed(Some(error)))
            }
        };
        Judgement { verdict, shown, rest, is_over: true, text }
    }
}

fn overflow<RB>(verdict: Verdict, text: Bytes, attempt: &Attempt) -> Judgement<RB> {
    let message = "the answer is longer than hold_limit; raise it, or set hold_overflow";
    let verdict = verdict.with_class(Class::TooLarge, Evidence::Local).with_message(message);
    let status = StatusCode::BAD_GATEWAY;
    let body = attempt.error_body(status, "hold_limit", message);
    let error = Error::attempt(verdict.clone(), message);
    let shown = Presentation::Error { status, body };
    Judgement { verdict, shown, rest: Rest::Failed(Some(error)), is_over: true, text }
}

/// So many frames are taken in one poll; after them others get their turn.
const FRAMES_AT_ONCE: usize = 128;
/// Error objects are some hundred bytes, error pages some kilobytes.
const ERROR_BODY_LIMIT: u64 = 256 * 1024;
/// A server that has said "429" and then falls silent has said enough.
const ERROR_BODY_TIME: Duration = Duration::from_secs(10);
