use std::fmt;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use backstop_core::error::{BoxError, Error};
use bytes::{Buf, Bytes};
use http_body::{Body, Frame, SizeHint};
use pin_project_lite::pin_project;

use crate::ledger::{Ledger, NoLedger};
use crate::provenance::open::{End, Open};

pin_project! {
    /// The body of an answer whose call is recorded: the bytes as they come.
    ///
    /// The call's record is closed when the last byte was handed on, when the body fails, or when it is
    /// dropped.
    pub struct ProvenanceBody<RB, L = NoLedger>
    where
        L: Ledger,
    {
        // Dropped before the record is: what is below tells its end, and then the call is judged by it.
        #[pin]
        body: RB,
        open: Open<L>,
    }
}

impl<RB, L: Ledger> ProvenanceBody<RB, L> {
    pub(crate) const fn new(body: RB, open: Open<L>) -> Self {
        Self { body, open }
    }
}

impl<RB, L> Body for ProvenanceBody<RB, L>
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
        let polled = {
            let _inside = this.open.span.enter();
            ready!(this.body.as_mut().poll_frame(cx))
        };
        Poll::Ready(match polled {
            Some(Ok(frame)) => {
                let is_last = this.open.hand_on(frame.data_ref().map_or(0, Buf::remaining));
                if is_last || this.body.is_end_stream() {
                    this.open.end(End::Whole);
                }
                Some(Ok(frame))
            }
            Some(Err(error)) => {
                let error = Error::from_inner(error);
                this.open.end(End::Broken(&error));
                Some(Err(error))
            }
            None => {
                this.open.end(End::Whole);
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

impl<RB: fmt::Debug, L: Ledger> fmt::Debug for ProvenanceBody<RB, L> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ProvenanceBody")
            .field("body", &self.body)
            .field("provenance", self.open.provenance())
            .finish()
    }
}
