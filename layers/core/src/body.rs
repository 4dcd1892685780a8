use std::collections::VecDeque;
use std::convert::Infallible;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use pin_project_lite::pin_project;

use crate::error::BoxError;
use crate::{BufferLimit, Error, Reservation};

/// A request body that was read whole, so that it can be sent again.
///
/// It is one piece of [`Bytes`] or a few in a row: cloning counts references, and a splice that
/// changes `model` copies nothing of the prompt. It cannot fail, and its length is known.
#[derive(Clone, Debug, Default)]
pub struct RequestBody {
    pieces: Pieces,
}

/// Small on purpose: it is moved with every request.
#[derive(Clone, Debug)]
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
        let mut pieces: Vec<_> = pieces.into_iter().filter(|piece| !piece.is_empty()).collect();
        let pieces = match pieces.len() {
            0 | 1 => Pieces::One(pieces.pop().unwrap_or_default()),
            _ => Pieces::Several { pieces: pieces.into(), at: 0 },
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

    fn rest(&self) -> &[Bytes] {
        match &self.pieces {
            Pieces::One(piece) => std::slice::from_ref(piece),
            Pieces::Several { pieces, at } => pieces.get(*at..).unwrap_or_default(),
        }
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

pin_project! {
    /// Reads a caller's body whole, up to a limit: the first thing every layer does with a call.
    ///
    /// A body of one frame is taken without copy or allocation, one of up to
    /// [`RequestBody::MAX_PIECES`] frames without copy; more are joined. Memory never grows past
    /// the limit. Trailers of a request are dropped: no LLM API has any.
    #[derive(Debug)]
    pub struct Collect<B> {
        #[pin]
        body: B,
        limit: u64,
        place: Option<Reservation>,
        // Boxed, since most bodies have one frame and never need it.
        gathered: Option<Box<Gathered>>,
    }
}

impl<B> Collect<B> {
    /// Reads `body`, which may have up to `limit` bytes.
    #[inline]
    pub const fn new(body: B, limit: u64) -> Self {
        Self { body, limit, place: None, gathered: None }
    }

    /// Takes a place for every byte in `buffer` too, if there is such a limit.
    #[inline]
    #[must_use]
    pub fn within(mut self, buffer: Option<&BufferLimit>) -> Self {
        self.place = buffer.and_then(|buffer| buffer.reserve(0));
        self
    }

    /// The place taken for what was read; for whoever keeps the body.
    #[inline]
    pub fn take_place(self: Pin<&mut Self>) -> Option<Reservation> {
        self.project().place.take()
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
    /// [`Error::Full`] if there is no place for it; [`Error::RequestBody`] if it breaks off.
    #[inline]
    pub fn poll_collect(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Result<RequestBody, Error>> {
        let this = self.as_mut().project();
        if this.gathered.is_none() && this.body.size_hint().lower() > *this.limit {
            return Poll::Ready(Err(Error::TooLarge { limit: *this.limit }));
        }
        loop {
            let mut this = self.as_mut().project();
            let frame = match this.body.as_mut().poll_frame(cx) {
                Poll::Ready(Some(Ok(frame))) => frame,
                Poll::Ready(None) => {
                    let gathered = this.gathered.take();
                    return Poll::Ready(Ok(gathered
                        .map(|all| all.into_body())
                        .unwrap_or_default()));
                }
                Poll::Ready(Some(Err(error))) => {
                    return Poll::Ready(Err(Error::RequestBody(error.into())));
                }
                Poll::Pending => {
                    // What is announced to be too large need not be waited for.
                    let so_far = this.gathered.as_ref().map_or(0, |all| all.len);
                    let to_come = this.body.size_hint().lower();
                    if so_far.saturating_add(to_come) > *this.limit {
                        return Poll::Ready(Err(Error::TooLarge { limit: *this.limit }));
                    }
                    return Poll::Pending;
                }
            };
            let Ok(data) = frame.into_data() else { continue };
            if let Some(place) = this.place
                && !place.grow(data.len() as u64)
            {
                return Poll::Ready(Err(Error::Full { limit: place.limit().limit() }));
            }
            // Spares a body the poll that would only say "that was all"; most have one frame.
            let is_end = this.body.is_end_stream();
            if is_end && this.gathered.is_none() && data.len() as u64 <= *this.limit {
                return Poll::Ready(Ok(data.into()));
            }
            let to_come = (data.len() as u64).saturating_add(this.body.size_hint().lower());
            if to_come > *this.limit {
                return Poll::Ready(Err(Error::TooLarge { limit: *this.limit }));
            }
            let gathered = this.gathered.get_or_insert_default();
            if !gathered.push(data, *this.limit) {
                return Poll::Ready(Err(Error::TooLarge { limit: *this.limit }));
            }
            if is_end {
                return Poll::Ready(Ok(std::mem::take(gathered).into_body()));
            }
        }
    }
}

/// The frames so far.
#[derive(Debug, Default)]
struct Gathered {
    len: u64,
    frames: Frames,
}

/// A few as they came, many joined.
#[derive(Debug)]
enum Frames {
    Few(Vec<Bytes>),
    Joined(Vec<u8>),
}

impl Default for Frames {
    fn default() -> Self {
        Self::Few(Vec::new())
    }
}

impl Gathered {
    /// Adds `data`, if all of it has up to `limit` bytes then; the buffer for joined frames never grows
    /// past that.
    fn push(&mut self, data: Bytes, limit: u64) -> bool {
        self.len = self.len.saturating_add(data.len() as u64);
        if self.len > limit {
            return false;
        }
        match &mut self.frames {
            Frames::Few(few) if few.len() < RequestBody::MAX_PIECES => few.push(data),
            Frames::Few(few) => {
                let mut joined = Vec::new();
                let len = few.iter().map(Bytes::len).sum::<usize>() + data.len();
                grow(&mut joined, len, limit);
                for piece in few.drain(..).chain([data]) {
                    joined.extend_from_slice(&piece);
                }
                self.frames = Frames::Joined(joined);
            }
            Frames::Joined(joined) => {
                grow(joined, data.len(), limit);
                joined.extend_from_slice(&data);
            }
        }
        true
    }

    fn into_body(self) -> RequestBody {
        match self.frames {
            Frames::Few(few) => RequestBody::from_pieces(few),
            Frames::Joined(joined) => joined.into(),
        }
    }
}

/// Doubles, as a vector does by itself, but never past the limit.
fn grow(joined: &mut Vec<u8>, additional: usize, limit: u64) {
    let needed = joined.len().saturating_add(additional);
    if needed > joined.capacity() {
        let limit = usize::try_from(limit).unwrap_or(usize::MAX);
        let doubled = joined.capacity().saturating_mul(2).min(limit).max(needed);
        joined.reserve_exact(doubled - joined.len());
    }
}

/// The frames of an answer that are held back, and how many bytes they are.
#[derive(Debug, Default)]
pub struct HeldFrames {
    frames: VecDeque<Frame<Bytes>>,
    len: u64,
    place: Option<Reservation>,
}

impl HeldFrames {
    /// Nothing yet; what will be held takes a place in `buffer`, if there is such a limit.
    #[must_use]
    pub fn within(buffer: Option<&BufferLimit>) -> Self {
        Self { place: buffer.and_then(|buffer| buffer.reserve(0)), ..Self::default() }
    }

    /// Adds a frame at the end, and says whether there was a place for it.
    pub fn push(&mut self, frame: Frame<Bytes>) -> bool {
        let len = frame.data_ref().map_or(0, |data| data.len() as u64);
        self.len += len;
        self.frames.push_back(frame);
        self.place.as_mut().is_none_or(|place| place.grow(len))
    }

    /// Takes the first frame. With the last one the place is given back.
    pub fn pop(&mut self) -> Option<Frame<Bytes>> {
        let frame = self.frames.pop_front()?;
        self.len -= frame.data_ref().map_or(0, |data| data.len() as u64);
        if self.frames.is_empty() {
            self.place = None;
        }
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
    struct FrameByFrame(VecDeque<Bytes>);

    impl Body for FrameByFrame {
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
        let mut collect = std::pin::pin!(Collect::new(FrameByFrame(frames), limit));
        match collect.as_mut().poll_collect(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(done) => done,
            Poll::Pending => unreachable!("it is never pending"),
        }
    }

    #[test]
    fn any_number_of_frames_gives_the_same_bytes() {
        let letters = ["a", "", "b", "c", "d", "e", "f", "g", "h", "i", "j", "k"];
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
        let clone = body.clone();
        assert_eq!(body.to_bytes().as_ptr(), data.as_ptr());
        assert_eq!(clone.to_bytes().as_ptr(), data.as_ptr());
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
        let mut gathered = Gathered::default();
        for _ in 0..100_000 {
            assert!(gathered.push(Bytes::from_static(b"x"), 100_000));
            if let Frames::Joined(joined) = &gathered.frames {
                assert!(joined.capacity() <= 100_000);
            }
        }
        assert_eq!(gathered.into_body().len(), 100_000);
    }

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
