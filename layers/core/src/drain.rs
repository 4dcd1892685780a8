use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Buf;
use http_body::Body;
use pin_project_lite::pin_project;

pin_project! {
    /// The rest of a failed answer, read and thrown away so that its connection can serve the next
    /// attempt; but only a little, since a long rest costs more than a new connection.
    #[derive(Debug)]
    pub struct Drain<RB> {
        #[pin]
        body: Option<RB>,
        read: usize,
        frames: usize,
    }
}

impl<RB> Drain<RB> {
    /// The rest `body`; `None` is nothing to let go.
    #[must_use]
    pub const fn new(body: Option<RB>) -> Self {
        Self { body, read: 0, frames: 0 }
    }

    /// Lets the answer go, read to its end or not.
    pub fn drop_body(self: Pin<&mut Self>) {
        self.project().body.set(None);
    }
}

impl<RB: Body> Drain<RB> {
    /// Ready once there is nothing left to read, or too much: 8 KiB. The answer is gone then. How long
    /// that may take is for the caller to bound.
    pub fn poll_drain(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let mut this = self.project();
        while let Some(body) = this.body.as_mut().as_pin_mut() {
            match body.poll_frame(cx) {
                Poll::Pending => return Poll::Pending,
                Poll::Ready(Some(Ok(frame))) => {
                    *this.read += frame.data_ref().map_or(0, Buf::remaining);
                    *this.frames += 1;
                    if *this.read > DRAIN_BYTES || *this.frames > DRAIN_FRAMES {
                        this.body.set(None);
                    }
                }
                Poll::Ready(None | Some(Err(_))) => this.body.set(None),
            }
        }
        Poll::Ready(())
    }
}

/// What a kernel has received of a usual error body by the time we read it; more is a stream.
const DRAIN_BYTES: usize = 8 * 1024;
/// As many as there can be with bytes in them, and a bound on those without.
const DRAIN_FRAMES: usize = DRAIN_BYTES;
