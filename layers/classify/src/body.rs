use std::fmt;
use std::pin::Pin;
use std::task::{Context, Poll};

use backstop_core::dialect::BodyEnd;
use backstop_core::error::{BoxError, Error};
use backstop_core::{HeldFrames, Substitute};
use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use pin_project_lite::pin_project;
use tokio::time::Sleep;

use crate::watch::{Watch, abnormal_end, is_whole};

pin_project! {
    /// The body of a classified answer: what was held, and then the rest as it comes.
    ///
    /// The bytes are the provider's, one attempt's alone. What ends without the dialect's own end, in
    /// an error event, or by a timeout, ends with an error here: abnormally for whoever reads it,
    /// never like a whole answer. Dropping it closes the provider's answer, and leaves the verdict
    /// `cancelled` in the cell unless the end was handed on already.
    pub struct ClassifyBody<RB> {
        held: HeldFrames,
        rest: Rest<RB>,
        watch: Watch,
        has_length: bool,
        #[pin]
        timer: Option<Sleep>,
    }

    impl<RB> PinnedDrop for ClassifyBody<RB> {
        fn drop(this: Pin<&mut Self>) {
            this.project().watch.tell_abandoned();
        }
    }
}

/// What comes after the held frames.
pub(crate) enum Rest<RB> {
    /// The provider's body, read as it comes.
    Live(RB),
    /// Nothing: the answer is over.
    Ended,
    /// The error that ended the answer.
    Failed(Option<Error>),
    /// Nothing, since something else was yielded in place of all of it.
    Replaced,
}

impl<RB> ClassifyBody<RB> {
    /// `has_length` says that the head promises a length, so that a reader stops at it and never
    /// sees what comes after the last byte.
    pub(crate) const fn new(
        held: HeldFrames,
        rest: Rest<RB>,
        watch: Watch,
        has_length: bool,
    ) -> Self {
        Self { held, rest, watch, has_length, timer: None }
    }

    fn substitute(&self) -> Option<&Substitute> {
        self.watch.cell()?.chosen_substitute()
    }
}

impl<RB> Body for ClassifyBody<RB>
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
        let mut this = self.project();
        if let Some(substitute) = this.watch.cell().and_then(|cell| cell.chosen_substitute())
            && !matches!(this.rest, Rest::Replaced)
        {
            let body = substitute.body().clone();
            *this.rest = Rest::Replaced;
            *this.held = HeldFrames::default();
            return Poll::Ready(Some(Ok(Frame::data(body))));
        }
        if let Some(frame) = this.held.pop() {
            return Poll::Ready(Some(Ok(frame)));
        }
        let body = match this.rest {
            Rest::Live(body) => body,
            Rest::Ended | Rest::Replaced => return Poll::Ready(None),
            Rest::Failed(error) => return Poll::Ready(error.take().map(Err)),
        };
        match Pin::new(&mut *body).poll_frame(cx) {
            Poll::Ready(Some(Ok(frame))) => {
                let was_settled = this.watch.is_over() || this.watch.has_failed();
                this.watch.see(&frame, 0);
                // A reader that knows the length, or stops at the end marker, asks no further: what
                // this frame ends has to be told before it is handed on.
                let end = body.is_end_stream();
                if end || (!was_settled && (this.watch.is_over() || this.watch.has_failed())) {
                    let verdict = this.watch.finish_live(BodyEnd::Eof);
                    this.watch.tell_end(&verdict);
                    if end && let Some(error) = abnormal_end(verdict) {
                        if *this.has_length {
                            *this.rest = Rest::Ended;
                            return Poll::Ready(Some(Err(error)));
                        }
                        *this.rest = Rest::Failed(Some(error));
                    } else if end {
                        *this.rest = Rest::Ended;
                    }
                }
                Poll::Ready(Some(Ok(frame)))
            }
            Poll::Ready(None) => {
                let verdict = this.watch.finish_live(BodyEnd::Eof);
                this.watch.tell_end(&verdict);
                *this.rest = Rest::Ended;
                Poll::Ready(abnormal_end(verdict).map(Err))
            }
            Poll::Ready(Some(Err(error))) => {
                let verdict = this.watch.finish_live(BodyEnd::Broken);
                this.watch.tell_end(&verdict);
                *this.rest = Rest::Ended;
                Poll::Ready((!is_whole(&verdict)).then(|| Err(Error::attempt(verdict, error))))
            }
            Poll::Pending => {
                let Poll::Ready(timeout) = this.watch.clocks.poll_due(this.timer.as_mut(), cx) else {
                    return Poll::Pending;
                };
                let (verdict, error) = this.watch.timed_out(&Bytes::new(), timeout);
                this.watch.tell_end(&verdict);
                *this.rest = Rest::Ended;
                Poll::Ready((!is_whole(&verdict)).then_some(Err(error)))
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        match &self.rest {
            Rest::Replaced => true,
            Rest::Ended => self.held.is_empty() && self.substitute().is_none(),
            Rest::Live(_) | Rest::Failed(_) => false,
        }
    }

    fn size_hint(&self) -> SizeHint {
        if let Some(substitute) = self.substitute() {
            let left = if matches!(self.rest, Rest::Replaced) { 0 } else { substitute.body().len() };
            return SizeHint::with_exact(left as u64);
        }
        match &self.rest {
            Rest::Live(body) => {
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

/// Without the bytes, which are the caller's business.
impl<RB> fmt::Debug for ClassifyBody<RB> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let rest = match &self.rest {
            Rest::Live(_) => "live",
            Rest::Ended => "ended",
            Rest::Failed(_) => "failed",
            Rest::Replaced => "replaced",
        };
        f.debug_struct("ClassifyBody")
            .field("held", &self.held.len())
            .field("rest", &rest)
            .field("cell", &self.watch.cell())
            .finish_non_exhaustive()
    }
}
