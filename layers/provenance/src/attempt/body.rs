use std::fmt;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use backstop_core::error::{BoxError, Error};
use bytes::{Buf, Bytes};
use http_body::{Body, Frame, SizeHint};
use pin_project_lite::pin_project;

use crate::attempt::open::Open;
use crate::ledger::{Ledger, NoLedger};

pin_project! {
    /// The body of an attempt's answer: the bytes as they come.
    ///
    /// The attempt's record is finished when the answer comes to its end, fails, or is dropped.
    pub struct AttemptBody<RB, L = NoLedger>
    where
        L: Ledger,
    {
        // Dropped before the record is: a classifier tells then what the answer amounts to.
        #[pin]
        body: RB,
        open: Option<Open<L>>,
    }
}

impl<RB, L: Ledger> AttemptBody<RB, L> {
    /// `open` is `None` where nobody learns anything of the attempt.
    pub(crate) const fn new(body: RB, open: Option<Open<L>>) -> Self {
        Self { body, open }
    }
}

impl<RB, L> Body for AttemptBody<RB, L>
where
    L: Ledger,
    RB: Body<Data = Bytes>,
    RB::Error: Into<BoxError>,
{
    type Data = Bytes;
    type Error = Error;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Error>>> {
        let mut this = self.project();
        let Some(open) = this.open else {
            let polled = ready!(this.body.poll_frame(cx));
            return Poll::Ready(polled.map(|frame| frame.map_err(Error::from_inner)));
        };
        let polled = {
            let _inside = open.span.enter();
            ready!(this.body.as_mut().poll_frame(cx))
        };
        Poll::Ready(match polled {
            Some(Ok(frame)) => {
                let is_last = open.hand_on(frame.data_ref().map_or(0, Buf::remaining));
                if is_last || this.body.is_end_stream() {
                    open.end();
                }
                Some(Ok(frame))
            }
            Some(Err(error)) => {
                let error = Error::from_inner(error);
                open.fail(&error);
                Some(Err(error))
            }
            None => {
                open.end();
                None
            }
        })
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

impl<RB: fmt::Debug, L: Ledger> fmt::Debug for AttemptBody<RB, L> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AttemptBody").field("body", &self.body).finish_non_exhaustive()
    }
}
