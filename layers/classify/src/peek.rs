use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use backstop_core::dialect::{BodyEnd, Dialect, Presentation, Seen};
use backstop_core::error::{BoxError, Error};
use backstop_core::{
    AttemptCell, Class, Evidence, HeldFrames, Hold, StreamEnd, Substitute, TimedOut,
};
use bytes::Bytes;
use http::header::CONTENT_LENGTH;
use http::response::Parts;
use http::{Response, StatusCode};
use http_body::Body;
use tokio::time::{Instant, Sleep};

use crate::body::{ClassifyBody, Rest};
use crate::classifier::Answer;
use crate::config::HoldOverflow;
use crate::future::Attempt;
use crate::watch::Watch;

/// An answer that is held back while it is read.
pub(crate) struct Peek<RB> {
    head: Parts,
    body: RB,
    held: HeldFrames,
    watch: Watch,
    until: Until,
    limit: u64,
    overflow: HoldOverflow,
    /// When a failed answer that is slow to explain itself is judged by its head.
    head_must_do_by: Option<Instant>,
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
    /// The answer's own end was seen; bytes may follow.
    OwnEnd,
    /// An error was seen in the stream; bytes may follow.
    ErrorSeen,
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
    pub(crate) fn new(response: Response<RB>, attempt: &mut Attempt) -> Self {
        let (head, body) = response.into_parts();
        let now = Instant::now();
        let clocks = attempt.take_clocks(now);
        let started = clocks.started();
        let mut watch = Watch::new(&attempt.config, attempt.route, &head, clocks, now);
        let is_stream = watch.is_stream();
        let failed = !head.status.is_success();
        let until = match attempt.hold {
            // The class of a failure stands in its body, whatever is held of a success.
            _ if failed => Until::End,
            Hold::Headers => Until::Head,
            // What cannot be read cannot be waited for.
            Hold::FirstContent if is_stream && !watch.is_readable() => Until::Head,
            Hold::FirstContent if is_stream => Until::Content,
            _ => Until::End,
        };
        let mut limit = attempt.config.hold_limit(attempt.hold, is_stream);
        let mut overflow = attempt.config.hold_overflow(attempt.hold, is_stream);
        if failed {
            limit = limit.min(ERROR_BODY_LIMIT);
            overflow = HoldOverflow::Commit;
        }
        if until != Until::Head || attempt.config.classifier.is_some() {
            let cell = AttemptCell::new(started.into_std());
            cell.set_head(now.into_std());
            watch.tell(cell);
        }
        Self {
            head,
            body,
            held: HeldFrames::default(),
            watch,
            until,
            limit,
            overflow,
            head_must_do_by: failed.then(|| now + ERROR_BODY_TIME),
        }
    }

    /// Reads until it is clear what the answer is, or nothing more may be held.
    pub(crate) fn poll_settled(
        &mut self,
        mut timer: Pin<&mut Option<Sleep>>,
        cx: &mut Context<'_>,
    ) -> Poll<Settled> {
        if self.until == Until::Head {
            return Poll::Ready(Settled::Head);
        }
        loop {
            match Pin::new(&mut self.body).poll_frame(cx) {
                Poll::Ready(Some(Ok(frame))) => {
                    let seen = self.watch.see(&frame, self.limit);
                    self.held.push(frame);
                    match seen {
                        Seen::Failed => return Poll::Ready(Settled::ErrorSeen),
                        Seen::End => return Poll::Ready(Settled::OwnEnd),
                        Seen::Content if self.until == Until::Content => {
                            return Poll::Ready(Settled::Content);
                        }
                        _ => {}
                    }
                    if self.body.is_end_stream() {
                        return Poll::Ready(Settled::Eof);
                    }
                    if self.held.len() > self.limit {
                        return Poll::Ready(Settled::Overflow);
                    }
                }
                Poll::Ready(None) => return Poll::Ready(Settled::Eof),
                Poll::Ready(Some(Err(error))) => return Poll::Ready(Settled::Broken(error.into())),
                Poll::Pending => {
                    let clocks = &self.watch.clocks;
                    return match clocks.poll_due_or(self.head_must_do_by, timer.as_mut(), cx) {
                        Poll::Ready(Some(timeout)) => Poll::Ready(Settled::TimedOut(timeout)),
                        Poll::Ready(None) => Poll::Ready(Settled::Head),
                        Poll::Pending => Poll::Pending,
                    };
                }
            }
        }
    }

    /// Judges the answer and lets it go, the held frames first.
    pub(crate) fn release(
        self,
        settled: Settled,
        attempt: &Attempt,
    ) -> Response<ClassifyBody<RB>> {
        let Self { mut head, body, mut held, mut watch, overflow, until, .. } = self;
        let is_stream = watch.is_stream();
        let document = match settled {
            Settled::Eof | Settled::Broken(_) | Settled::TimedOut(_) if !is_stream => held.document(),
            _ => Bytes::new(),
        };
        let mut too_long = None;
        let (verdict, rest, ended) = match settled {
            Settled::Head if until == Until::Head && attempt.config.classifier.is_none() => {
                let has_length = head.headers.contains_key(CONTENT_LENGTH);
                let body = ClassifyBody::new(held, Rest::Live(body), watch, has_length);
                return Response::from_parts(head, body);
            }
            Settled::Head if is_stream => (watch.so_far(), Rest::Live(body), false),
            Settled::Head => (watch.finish(&document, BodyEnd::Unread), Rest::Live(body), false),
            Settled::Content => (watch.so_far(), Rest::Live(body), false),
            Settled::OwnEnd | Settled::ErrorSeen => {
                (watch.finish(&document, BodyEnd::Eof), Rest::Live(body), true)
            }
            Settled::Eof => (watch.finish(&document, BodyEnd::Eof), Rest::Ended, true),
            Settled::Broken(error) => {
                let verdict = watch.finish(&document, BodyEnd::Broken);
                let error = Error::attempt(verdict.clone(), error);
                (verdict, Rest::Failed(Some(error)), true)
            }
            Settled::TimedOut(timeout) => {
                let (verdict, error) = watch.timed_out(&document, timeout);
                too_long = Some(substitute(
                    attempt,
                    StatusCode::GATEWAY_TIMEOUT,
                    "timeout",
                    &format!("the provider answered {}, but {timeout}", head.status.as_u16()),
                ));
                (verdict, Rest::Failed(Some(error)), true)
            }
            Settled::Overflow if overflow == HoldOverflow::Fail => {
                let message = "the answer is longer than hold_limit; raise it, or set hold_overflow";
                let verdict = watch
                    .finish(&document, BodyEnd::Unread)
                    .with_class(Class::TooLarge, Evidence::Local)
                    .with_stream_end(is_stream.then_some(StreamEnd::Truncated))
                    .with_message(message);
                let error = Error::attempt(verdict.clone(), message);
                too_long =
                    Some(substitute(attempt, StatusCode::BAD_GATEWAY, "hold_limit", message));
                (verdict, Rest::Failed(Some(error)), true)
            }
            Settled::Overflow if is_stream => (watch.so_far(), Rest::Live(body), false),
            Settled::Overflow => (watch.finish(&document, BodyEnd::Unread), Rest::Live(body), false),
        };
        let own = attempt.config.classifier.as_ref().and_then(|own| {
            let held = held.document();
            let text = watch.text(&held);
            own.classify(&Answer::of_response(head.status, &head.headers, text, &verdict))
        });
        let built_in_failed = verdict.class().is_failure();
        let verdict = own.unwrap_or(verdict);
        let failed = verdict.class().is_failure();
        if let Some(cell) = watch.cell() {
            if failed && head.status.is_success() {
                let shown = match watch.presentation() {
                    _ if too_long.is_some() => too_long,
                    Presentation::Error { status, body } => Some(Substitute::new(status, body)),
                    // The answer itself tells of the failure; but not where only the user's own
                    // classifier knows of it.
                    _ if built_in_failed => None,
                    _ => Some(substitute(
                        attempt,
                        verdict.class().status(),
                        verdict.class().as_str(),
                        verdict.message().unwrap_or("the answer was judged a failure"),
                    )),
                };
                if let Some(shown) = shown {
                    cell.set_substitute(shown);
                }
            }
            cell.set_verdict(verdict.clone());
            if ended || failed {
                watch.tell_end(&verdict);
            }
            head.extensions.insert(cell.clone());
        }
        let has_length = head.headers.contains_key(CONTENT_LENGTH);
        Response::from_parts(head, ClassifyBody::new(held, rest, watch, has_length))
    }
}

fn substitute(attempt: &Attempt, status: StatusCode, kind: &str, message: &str) -> Substitute {
    let dialect = attempt.route.dialect().unwrap_or(Dialect::OPENAI);
    Substitute::new(status, dialect.error_body(status, kind, message))
}

/// Error objects are some hundred bytes, error pages some kilobytes.
const ERROR_BODY_LIMIT: u64 = 256 * 1024;
/// A server that has said "429" and then falls silent has said enough.
const ERROR_BODY_TIME: Duration = Duration::from_secs(10);
