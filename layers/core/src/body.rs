use std::convert::Infallible;
use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};

/// A request body that was read whole, so that it can be sent again.
///
/// It is one piece of [`Bytes`] or a few in a row: cloning counts references, and a splice that
/// changes `model` copies nothing of the prompt. It cannot fail, and its length is known.
#[derive(Clone, Default)]
pub struct RequestBody {
    pieces: Pieces,
}

/// Small on purpose: it is moved with every request.
#[derive(Clone)]
enum Pieces {
    One(Bytes),
    Several { pieces: Arc<[Bytes]>, at: usize },
}

impl Default for Pieces {
    fn default() -> Self {
        Self::One(Bytes::new())
    }
}

impl RequestBody {
    /// How many frames of a caller's body are kept as they came; more are joined by a copy.
    pub const MAX_PIECES: usize = 8;

    /// An empty body.
    #[must_use]
    pub fn empty() -> Self {
        Self::default()
    }

    /// A body of `pieces` in their order.
    #[must_use]
    pub fn from_pieces(pieces: impl IntoIterator<Item = Bytes>) -> Self {
        let mut pieces = pieces.into_iter().filter(|piece| !piece.is_empty());
        let pieces = match (pieces.next(), pieces.next(), pieces.next(), pieces.next()) {
            (None, ..) => Pieces::default(),
            (Some(only), None, ..) => Pieces::One(only),
            // What a splice of the model leaves: made with one allocation.
            (Some(a), Some(b), Some(c), None) => {
                Pieces::Several { pieces: Arc::new([a, b, c]), at: 0 }
            }
            (a, b, c, d) => {
                let all = [a, b, c, d].into_iter().flatten().chain(pieces).collect();
                Pieces::Several { pieces: all, at: 0 }
            }
        };
        Self { pieces }
    }

    /// How many bytes are left to send.
    #[inline]
    #[must_use]
    pub fn len(&self) -> u64 {
        match &self.pieces {
            Pieces::One(piece) => piece.len() as u64,
            Pieces::Several { .. } => self.rest().iter().map(|piece| piece.len() as u64).sum(),
        }
    }

    /// Whether nothing is left to send.
    #[inline]
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The whole body as one piece: without a copy where it is one already.
    #[must_use]
    pub fn to_bytes(&self) -> Bytes {
        match self.rest() {
            [] => Bytes::new(),
            [only] => only.clone(),
            several => several.concat().into(),
        }
    }

    /// Whether a word may stand in the body; `false` is certain.
    pub(crate) fn may_hold(&self, word: &[u8]) -> bool {
        match self.rest() {
            [] => false,
            [only] => memchr::memmem::find(only, word).is_some(),
            // The word may be cut.
            _ => true,
        }
    }

    fn rest(&self) -> &[Bytes] {
        match &self.pieces {
            Pieces::One(piece) => std::slice::from_ref(piece),
            Pieces::Several { pieces, at } => pieces.get(*at..).unwrap_or_default(),
        }
    }
}

/// Without the prompt.
impl fmt::Debug for RequestBody {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RequestBody").field("len", &self.len()).finish()
    }
}

impl From<Bytes> for RequestBody {
    #[inline]
    fn from(bytes: Bytes) -> Self {
        Self { pieces: Pieces::One(bytes) }
    }
}

impl From<String> for RequestBody {
    fn from(text: String) -> Self {
        Bytes::from(text).into()
    }
}

impl From<&'static str> for RequestBody {
    fn from(text: &'static str) -> Self {
        Bytes::from_static(text.as_bytes()).into()
    }
}

impl From<Vec<u8>> for RequestBody {
    fn from(bytes: Vec<u8>) -> Self {
        Bytes::from(bytes).into()
    }
}

impl Body for RequestBody {
    type Data = Bytes;
    type Error = Infallible;

    #[inline]
    fn poll_frame(
        self: Pin<&mut Self>,
        _cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        let next = match &mut self.get_mut().pieces {
            Pieces::One(piece) => Some(std::mem::take(piece)).filter(|piece| !piece.is_empty()),
            Pieces::Several { pieces, at } => {
                let next = pieces.get(*at).cloned();
                *at += usize::from(next.is_some());
                next
            }
        };
        Poll::Ready(next.map(|piece| Ok(Frame::data(piece))))
    }

    #[inline]
    fn is_end_stream(&self) -> bool {
        self.is_empty()
    }

    #[inline]
    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(self.len())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::task::Waker;

    #[test]
    fn a_body_sends_its_pieces_in_order_and_counts_down() {
        let mut body = RequestBody::from_pieces(["ab", "", "c"].map(Bytes::from));
        assert_eq!((body.len(), body.is_end_stream()), (3, false));
        let mut cx = Context::from_waker(Waker::noop());
        let mut next = || match Pin::new(&mut body).poll_frame(&mut cx) {
            Poll::Ready(frame) => frame.map(|f| f.unwrap().into_data().unwrap()),
            Poll::Pending => unreachable!("never pending"),
        };
        assert_eq!((next(), next(), next()), (Some("ab".into()), Some("c".into()), None));
        assert!(body.is_end_stream());
    }
}
