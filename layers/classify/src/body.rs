use std::fmt;
use std::pin::Pin;
use std::task::{Context, Poll};

use backstop_core::error::{BoxError, Error};
use backstop_core::{AttemptCell, HeldFrames};
use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};

use crate::judged::{Judged, Rest};

/// The body of a classified answer: what was held, and then the rest as it comes.
///
/// The bytes are the provider's, one attempt's alone. What ends without the dialect's own end, in
/// an error event, or by a timeout, ends with an error here: abnormally for whoever reads it,
/// never like a whole answer. Dropping it closes the provider's answer, and leaves the verdict
/// `cancelled` in the cell unless the end was seen already.
pub struct ClassifyBody<RB> {
    kind: Kind<RB>,
}

// Small: a body is moved with its response, through every layer above.
enum Kind<RB> {
    /// The provider's body, about which nothing is to be known.
    Passed(RB),
    Judged(Pin<Box<Judged<RB>>>),
}

impl<RB> ClassifyBody<RB> {
    /// `announced` is the length that a reader knows of, so that it stops there and never sees what
    /// comes after the last byte.
    pub(crate) fn new(
        held: HeldFrames,
        rest: Rest<RB>,
        cell: AttemptCell,
        announced: Option<u64>,
    ) -> Self {
        let judged = Judged::new(held, rest, cell, announced);
        Self { kind: Kind::Judged(Box::pin(judged)) }
    }

    /// A body that is handed on unread.
    pub(crate) const fn passed(body: RB) -> Self {
        Self { kind: Kind::Passed(body) }
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
        match &mut self.get_mut().kind {
            Kind::Passed(body) => Pin::new(body)
                .poll_frame(cx)
                .map(|frame| frame.map(|frame| frame.map_err(Error::from_inner))),
            Kind::Judged(judged) => judged.as_mut().poll_frame(cx),
        }
    }

    fn is_end_stream(&self) -> bool {
        match &self.kind {
            Kind::Passed(body) => body.is_end_stream(),
            Kind::Judged(judged) => judged.is_end_stream(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match &self.kind {
            Kind::Passed(body) => body.size_hint(),
            Kind::Judged(judged) => judged.size_hint(),
        }
    }
}

/// Without the bytes, which are the caller's business.
impl<RB> fmt::Debug for ClassifyBody<RB> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.kind {
            Kind::Passed(_) => f.debug_tuple("ClassifyBody").field(&"passed").finish(),
            Kind::Judged(judged) => f.debug_tuple("ClassifyBody").field(judged).finish(),
        }
    }
}
