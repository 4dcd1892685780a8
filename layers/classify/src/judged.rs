use std::fmt;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use backstop_core::dialect::BodyEnd;
use backstop_core::error::{BoxError, Error};
use backstop_core::{AttemptCell, HeldFrames};
use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use pin_project_lite::pin_project;

use crate::clocks::Timer;
use crate::watch::{Watch, abnormal_end, broken, is_whole};

pin_project! {
    /// An answer that was judged: what was held of it, and then the rest as it comes.
    pub(crate) struct Judged<RB> {
        held: HeldFrames,
        rest: Rest<RB>,
        cell: AttemptCell,
        left: Option<u64>,
        timer: Timer,
    }

    impl<RB> PinnedDrop for Judged<RB> {
        fn drop(this: Pin<&mut Self>) {
            if let Rest::Live(_, watch) = this.project().rest {
                watch.tell_abandoned();
            }
        }
    }
}

/// What comes after the held frames.
pub(crate) enum Rest<RB> {
    /// The provider's body, read as it comes.
    Live(RB, Box<Watch>),
    /// Nothing: the answer is over.
    Ended,
    /// The error that ended the answer.
    Failed(Option<Error>),
    /// Nothing, since something else was yielded in place of all of it.
    Replaced,
}

impl<RB> Rest<RB> {
    /// The error of an answer that is over and has failed: to come in place of the last byte that its
    /// reader waits for, who would take it for whole.
    fn fail(&mut self) -> Option<Error> {
        let error = match self {
            Self::Live(_, watch) => {
                let verdict = watch.finish(BodyEnd::Eof);
                let error = abnormal_end(&verdict);
                watch.tell_end(verdict);
                error
            }
            Self::Failed(error) => error.take(),
            Self::Ended | Self::Replaced => None,
        };
        if error.is_some() {
            *self = Self::Ended;
        }
        error
    }
}

impl<RB> Judged<RB> {
    pub(crate) const fn new(
        held: HeldFrames,
        rest: Rest<RB>,
        cell: AttemptCell,
        announced: Option<u64>,
    ) -> Self {
        Self { held, rest, cell, left: announced, timer: None }
    }
}

impl<RB> Body for Judged<RB>
where
    RB: Body<Data = Bytes> + Unpin,
    RB::Error: Into<BoxError>,
{
    type Data = Bytes;
    type Error = Error;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Error>>> {
        let this = self.project();
        if let Some(substitute) = this.cell.chosen_substitute()
            && !matches!(this.rest, Rest::Replaced)
        {
            *this.rest = Rest::Replaced;
            *this.held = HeldFrames::default();
            return Poll::Ready(Some(Ok(Frame::data(substitute.body().clone()))));
        }
        if let Some(frame) = this.held.pop() {
            return Poll::Ready(match takes_last(this.left, &frame).then(|| this.rest.fail()) {
                Some(Some(error)) => Some(Err(error)),
                _ => Some(Ok(frame)),
            });
        }
        let (body, watch) = match this.rest {
            Rest::Live(body, watch) => (body, watch),
            Rest::Ended | Rest::Replaced => return Poll::Ready(None),
            Rest::Failed(error) => return Poll::Ready(error.take().map(Err)),
        };
        let polled = match watch.clocks.overdue_whole() {
            Some(timeout) => Err(timeout),
            None => match Pin::new(&mut *body).poll_frame(cx) {
                Poll::Ready(frame) => Ok(frame),
                Poll::Pending => Err(ready!(watch.clocks.poll_due(this.timer, cx))),
            },
        };
        let (verdict, error) = match polled {
            Ok(Some(Ok(frame))) => {
                let was_settled = watch.is_settled();
                watch.see(&frame);
                let settles = watch.is_settled() && !was_settled;
                // A reader that knows the length, or stops at the end marker, asks no further: what
                // this frame ends has to be told before it is handed on.
                let is_end = body.is_end_stream();
                if takes_last(this.left, &frame)
                    && let Some(error) = this.rest.fail()
                {
                    return Poll::Ready(Some(Err(error)));
                }
                if let Rest::Live(_, watch) = this.rest
                    && (is_end || settles)
                {
                    let verdict = watch.finish(BodyEnd::Eof);
                    let ended = is_end.then(|| abnormal_end(&verdict));
                    watch.tell_end(verdict);
                    if let Some(error) = ended {
                        *this.rest = error.map_or(Rest::Ended, |error| Rest::Failed(Some(error)));
                    }
                }
                return Poll::Ready(Some(Ok(frame)));
            }
            Ok(None) => {
                let verdict = watch.finish(BodyEnd::Eof);
                let error = abnormal_end(&verdict);
                (verdict, error)
            }
            Ok(Some(Err(error))) => {
                let verdict = watch.finish(BodyEnd::Broken);
                let error = (!is_whole(&verdict)).then(|| broken(verdict.clone(), error));
                (verdict, error)
            }
            Err(timeout) => {
                let (verdict, error) = watch.timed_out(timeout);
                let error = (!is_whole(&verdict)).then_some(error);
                (verdict, error)
            }
        };
        watch.tell_end(verdict);
        *this.rest = Rest::Ended;
        Poll::Ready(error.map(Err))
    }

    fn is_end_stream(&self) -> bool {
        match &self.rest {
            Rest::Replaced => true,
            Rest::Ended => self.held.is_empty() && self.cell.chosen_substitute().is_none(),
            Rest::Live(..) | Rest::Failed(_) => false,
        }
    }

    fn size_hint(&self) -> SizeHint {
        if let Some(substitute) = self.cell.chosen_substitute() {
            let left =
                if matches!(self.rest, Rest::Replaced) { 0 } else { substitute.body().len() };
            return SizeHint::with_exact(left as u64);
        }
        match &self.rest {
            Rest::Live(body, _) => {
                let rest = body.size_hint();
                let mut hint = SizeHint::new();
                hint.set_lower(self.held.len().saturating_add(rest.lower()));
                if let Some(upper) = rest.upper() {
                    hint.set_upper(self.held.len().saturating_add(upper));
                }
                hint
            }
            Rest::Ended => SizeHint::with_exact(self.held.len()),
            Rest::Replaced => SizeHint::with_exact(0),
            Rest::Failed(_) => {
                let mut hint = SizeHint::new();
                hint.set_lower(self.held.len());
                hint
            }
        }
    }
}

/// Counts a frame down, and says whether it brings the last of the bytes that are `left`.
fn takes_last(left: &mut Option<u64>, frame: &Frame<Bytes>) -> bool {
    let (Some(left), Some(data)) = (left, frame.data_ref()) else { return false };
    let before = *left;
    *left = before.saturating_sub(data.len() as u64);
    before > 0 && *left == 0
}

impl<RB> fmt::Debug for Judged<RB> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let rest = match &self.rest {
            Rest::Live(..) => "live",
            Rest::Ended => "ended",
            Rest::Failed(_) => "failed",
            Rest::Replaced => "replaced",
        };
        f.debug_struct("Judged")
            .field("held", &self.held.len())
            .field("rest", &rest)
            .field("cell", &self.cell)
            .finish_non_exhaustive()
    }
}
