use std::collections::VecDeque;
use std::convert::Infallible;
use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use pin_project_lite::pin_project;

use crate::Error;
use crate::error::BoxError;

/// A request body that was read whole, so that it can be sent again.
///
/// It is a few [`Bytes`] in a row: cloning counts references, and a splice that changes `model`
/// copies nothing of the prompt. It cannot fail, and its length is known.
#[derive(Clone, Debug, Default)]
pub struct RequestBody {
    segments: [Bytes; Self::MAX_SEGMENTS],
    at: usize,
}

impl RequestBody {
    /// How many pieces a body can have without a copy: enough for a splice of `model` and one of
    /// `reasoning`.
    pub const MAX_SEGMENTS: usize = 5;

    /// An empty body.
    #[must_use]
    pub fn empty() -> Self {
        Self::default()
    }

    /// A body of `segments` in their order; more than [`Self::MAX_SEGMENTS`] are joined by a copy.
    #[must_use]
    pub fn from_segments(segments: impl IntoIterator<Item = Bytes>) -> Self {
        let mut pieces = Pieces::default();
        for segment in segments {
            pieces.push(segment, 0);
        }
        pieces.into_body()
    }

    /// How many bytes are left to send.
    #[must_use]
    pub fn len(&self) -> u64 {
        self.rest().iter().map(|segment| segment.len() as u64).sum()
    }

    /// Whether nothing is left to send.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.rest().iter().all(Bytes::is_empty)
    }

    /// The whole body as one piece: without a copy where it is one already.
    #[must_use]
    pub fn to_bytes(&self) -> Bytes {
        let mut pieces = self.rest().iter().filter(|segment| !segment.is_empty());
        match (pieces.next(), pieces.next()) {
            (None, _) => Bytes::new(),
            (Some(only), None) => only.clone(),
            _ => self.rest().concat().into(),
        }
    }

    fn rest(&self) -> &[Bytes] {
        self.segments.get(self.at..).unwrap_or_default()
    }
}

impl From<Bytes> for RequestBody {
    fn from(bytes: Bytes) -> Self {
        let mut body = Self::default();
        body.segments[0] = bytes;
        body
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

    fn poll_frame(
        self: Pin<&mut Self>,
        _cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        let this = self.get_mut();
        while let Some(segment) = this.segments.get_mut(this.at) {
            this.at += 1;
            if !segment.is_empty() {
                return Poll::Ready(Some(Ok(Frame::data(std::mem::take(segment)))));
            }
        }
        Poll::Ready(None)
    }

    fn is_end_stream(&self) -> bool {
        self.is_empty()
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(self.len())
    }
}

pin_project! {
    /// Reads a caller's body whole, up to a limit: the first thing every layer does with a call.
    ///
    /// A body of one frame is taken without copy or allocation, one of up to
    /// [`RequestBody::MAX_SEGMENTS`] frames without copy; more are joined. Memory never grows past
    /// the limit. Trailers of a request are dropped: no LLM API has any.
    #[derive(Debug)]
    pub struct Collect<B> {
        #[pin]
        body: B,
        limit: u64,
        len: u64,
        pieces: Pieces,
    }
}

impl<B> Collect<B> {
    /// Reads `body`, which may have up to `limit` bytes.
    pub fn new(body: B, limit: u64) -> Self {
        Self { body, limit, len: 0, pieces: Pieces::default() }
    }
}

impl<B> Collect<B>
where
    B: Body<Data = Bytes>,
    B::Error: Into<BoxError>,
{
    /// Polls for the whole body.
    ///
    /// # Errors
    /// [`Error::TooLarge`] as soon as the body announces, or has, more than `limit` bytes;
    /// [`Error::RequestBody`] if it breaks off.
    pub fn poll_collect(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Result<RequestBody, Error>> {
        loop {
            let mut this = self.as_mut().project();
            let to_come = this.body.size_hint().lower();
            if this.len.saturating_add(to_come) > *this.limit {
                return Poll::Ready(Err(Error::TooLarge { limit: *this.limit }));
            }
            let frame = match this.body.as_mut().poll_frame(cx) {
                Poll::Pending => return Poll::Pending,
                Poll::Ready(None) => {
                    return Poll::Ready(Ok(std::mem::take(this.pieces).into_body()));
                }
                Poll::Ready(Some(Err(error))) => {
                    return Poll::Ready(Err(Error::RequestBody(error.into())));
                }
                Poll::Ready(Some(Ok(frame))) => frame,
            };
            let Ok(data) = frame.into_data() else { continue };
            *this.len = this.len.saturating_add(data.len() as u64);
            if *this.len > *this.limit {
                return Poll::Ready(Err(Error::TooLarge { limit: *this.limit }));
            }
            this.pieces.push(data, *this.limit);
            // Spares a body of one frame the poll that would only say "that was all".
            if this.body.is_end_stream() {
                return Poll::Ready(Ok(std::mem::take(this.pieces).into_body()));
            }
        }
    }
}

/// The frames so far: a few as they came, many joined.
#[derive(Debug, Default)]
struct Pieces {
    segments: [Bytes; RequestBody::MAX_SEGMENTS],
    used: usize,
    joined: Vec<u8>,
}

impl Pieces {
    /// Adds `data`; the buffer for joined pieces does not grow past `limit` (0: no such bound).
    fn push(&mut self, data: Bytes, limit: u64) {
        if data.is_empty() {
            return;
        }
        if self.joined.is_empty() {
            if let Some(free) = self.segments.get_mut(self.used) {
                *free = data;
                self.used += 1;
                return;
            }
            let len: usize = self.segments.iter().map(Bytes::len).sum();
            self.grow(len + data.len(), limit);
            for segment in &mut self.segments {
                self.joined.extend_from_slice(&std::mem::take(segment));
            }
            self.used = 0;
        } else {
            self.grow(data.len(), limit);
        }
        self.joined.extend_from_slice(&data);
    }

    /// Doubles, as a vector does by itself, but never past the limit.
    fn grow(&mut self, additional: usize, limit: u64) {
        let needed = self.joined.len().saturating_add(additional);
        if needed <= self.joined.capacity() {
            return;
        }
        let limit = match usize::try_from(limit) {
            Ok(0) | Err(_) => usize::MAX,
            Ok(limit) => limit,
        };
        let doubled = self.joined.capacity().saturating_mul(2).min(limit).max(needed);
        self.joined.reserve_exact(doubled - self.joined.len());
    }

    fn into_body(self) -> RequestBody {
        if self.joined.is_empty() {
            RequestBody { segments: self.segments, at: 0 }
        } else {
            RequestBody::from(self.joined)
        }
    }
}

/// The frames of an answer that are held back, and how many bytes they are.
#[derive(Debug, Default)]
pub struct HeldFrames {
    frames: VecDeque<Frame<Bytes>>,
    len: u64,
}

impl HeldFrames {
    /// Adds a frame at the end.
    pub fn push(&mut self, frame: Frame<Bytes>) {
        self.len += frame.data_ref().map_or(0, |data| data.len() as u64);
        self.frames.push_back(frame);
    }

    /// Takes the first frame.
    pub fn pop(&mut self) -> Option<Frame<Bytes>> {
        let frame = self.frames.pop_front()?;
        self.len -= frame.data_ref().map_or(0, |data| data.len() as u64);
        Some(frame)
    }

    /// How many bytes of data are held.
    #[must_use]
    pub const fn len(&self) -> u64 {
        self.len
    }

    /// Whether no frame is held.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.frames.is_empty()
    }

    /// The held data as one piece; joins the frames by a copy where they are several.
    pub fn document(&mut self) -> Bytes {
        let mut data = self.frames.iter().filter_map(Frame::data_ref).filter(|d| !d.is_empty());
        match (data.next(), data.next()) {
            (None, _) => Bytes::new(),
            (Some(only), None) => only.clone(),
            _ => {
                let mut joined = Vec::with_capacity(usize::try_from(self.len).unwrap_or_default());
                for data in self.frames.iter().filter_map(Frame::data_ref) {
                    joined.extend_from_slice(data);
                }
                let joined = Bytes::from(joined);
                // One copy of the answer is enough: the pieces give way to it.
                self.frames.retain(|frame| !frame.is_data());
                self.frames.push_front(Frame::data(joined.clone()));
                joined
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::task::Waker;

    /// Yields the frames one by one, and says nothing about its length.
    struct Frames(VecDeque<Bytes>);

    impl Body for Frames {
        type Data = Bytes;
        type Error = Infallible;
        fn poll_frame(
            mut self: Pin<&mut Self>,
            _: &mut Context<'_>,
        ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
            Poll::Ready(self.0.pop_front().map(|data| Ok(Frame::data(data))))
        }
    }

    fn collect(frames: &[&'static str], limit: u64) -> Result<RequestBody, Error> {
        let frames = frames.iter().map(|f| Bytes::from_static(f.as_bytes())).collect();
        let mut collect = std::pin::pin!(Collect::new(Frames(frames), limit));
        match collect.as_mut().poll_collect(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(done) => done,
            Poll::Pending => unreachable!("Frames is never pending"),
        }
    }

    #[test]
    fn any_number_of_frames_gives_the_same_bytes() {
        let letters = ["a", "", "b", "c", "d", "e", "f", "g", "h"];
        for n in 0..=letters.len() {
            let body = collect(&letters[..n], 100).unwrap();
            assert_eq!(body.to_bytes(), letters[..n].concat(), "{n} frames");
            assert_eq!(body.len(), letters[..n].concat().len() as u64);
        }
    }

    #[test]
    fn one_frame_is_taken_without_a_copy() {
        let data = Bytes::from_static(b"{\"model\":\"m\"}");
        let body = collect(&["{\"model\":\"m\"}"], 100).unwrap();
        assert_eq!(body.to_bytes().as_ptr(), data.as_ptr());
        assert_eq!(body.clone().to_bytes().as_ptr(), data.as_ptr());
    }

    #[test]
    fn the_limit_is_inclusive_and_one_byte_more_is_too_large() {
        assert_eq!(collect(&["12", "345"], 5).unwrap().len(), 5);
        let error = collect(&["12", "3456"], 5).unwrap_err();
        assert!(matches!(error, Error::TooLarge { limit: 5 }), "{error}");
        assert_eq!(error.status(), 413);
    }

    #[test]
    fn many_small_frames_never_take_more_memory_than_the_limit() {
        let mut pieces = Pieces::default();
        for _ in 0..100_000 {
            pieces.push(Bytes::from_static(b"x"), 100_000);
            assert!(pieces.joined.capacity() <= 100_000);
        }
        assert_eq!(pieces.into_body().len(), 100_000);
    }

    #[test]
    fn a_body_sends_its_segments_in_order_and_counts_down() {
        let mut body = RequestBody::from_segments(["ab", "", "c"].map(Bytes::from));
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
