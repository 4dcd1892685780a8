use std::any::Any;
use std::fmt;
use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use http_body::{Body, Frame};
use pin_project_lite::pin_project;

use crate::error::BoxError;
use crate::{BufferLimit, Error, RequestBody, Reservation, bounded};

pin_project! {
    /// Reads a caller's body whole, up to a limit: the first thing every layer does with a call.
    ///
    /// A body of one frame is taken without copy or allocation, one of up to
    /// [`RequestBody::MAX_PIECES`] frames without copy; more are joined. Memory never grows past
    /// the limit. Trailers of a request are dropped: no LLM API has any.
    pub struct Collect<B> {
        #[pin]
        body: B,
        limit: u64,
        // Boxed, since most bodies have one frame and never need it.
        gathered: Option<Box<Gathered>>,
    }
}

impl<B> Collect<B> {
    /// Reads `body`, which may have up to `limit` bytes.
    #[inline]
    pub const fn new(body: B, limit: u64) -> Self {
        Self { body, limit, gathered: None }
    }

    /// Takes a place for every byte in `buffer` too, if there is such a limit.
    #[inline]
    #[must_use]
    pub fn within(mut self, buffer: Option<&BufferLimit>) -> Self {
        if let Some(buffer) = buffer {
            self.gathered.get_or_insert_default().place = buffer.reserve(0);
        }
        self
    }

    /// The place taken for what was read; for whoever keeps the body.
    #[inline]
    pub fn take_place(self: Pin<&mut Self>) -> Option<Reservation> {
        self.project().gathered.as_mut()?.place.take()
    }
}

impl<B> Collect<B>
where
    B: Body<Data = Bytes> + Unpin + 'static,
    B::Error: Into<BoxError>,
{
    /// Polls for the whole body.
    ///
    /// # Errors
    /// [`Error::TooLarge`] as soon as the body announces, or has, more than `limit` bytes;
    /// [`Error::Full`] if there is no place for it; [`Error::RequestBody`] if it breaks off.
    // Inlined for the body of one frame, which nearly every body is; the rest stays out of the way.
    #[inline(always)]
    pub fn poll_collect(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Result<RequestBody, Error>> {
        let mut this = self.as_mut().project();
        if this.gathered.is_some() {
            return self.poll_rest(None, cx);
        }
        if let Some(whole) = whole(this.body.as_mut().get_mut()) {
            return Poll::Ready(match whole.len() > *this.limit {
                true => Err(Error::TooLarge { limit: *this.limit }),
                false => Ok(whole),
            });
        }
        if this.body.size_hint().lower() > *this.limit {
            return Poll::Ready(Err(Error::TooLarge { limit: *this.limit }));
        }
        let polled = this.body.as_mut().poll_frame(cx);
        if let Poll::Ready(Some(Ok(frame))) = &polled
            && let Some(data) = frame.data_ref()
            && data.len() as u64 <= *this.limit
            // Spares the body the poll that would only say "that was all".
            && this.body.is_end_stream()
            && let Poll::Ready(Some(Ok(frame))) = polled
        {
            return Poll::Ready(Ok(frame.into_data().unwrap_or_default().into()));
        }
        self.poll_rest(Some(polled), cx)
    }

    #[inline(never)]
    fn poll_rest(
        self: Pin<&mut Self>,
        mut polled: Option<PolledFrame<B>>,
        cx: &mut Context<'_>,
    ) -> Poll<Result<RequestBody, Error>> {
        let mut this = self.project();
        let limit = *this.limit;
        let gathered = this.gathered.get_or_insert_default();
        loop {
            let to_come = this.body.size_hint().lower();
            if polled.is_none() && gathered.len.saturating_add(to_come) > limit {
                return Poll::Ready(Err(Error::TooLarge { limit }));
            }
            let frame = match polled.take().unwrap_or_else(|| this.body.as_mut().poll_frame(cx)) {
                Poll::Ready(Some(Ok(frame))) => frame,
                Poll::Ready(None) => return Poll::Ready(Ok(gathered.take_body())),
                Poll::Ready(Some(Err(error))) => {
                    return Poll::Ready(Err(Error::RequestBody(error.into())));
                }
                Poll::Pending => {
                    // What is announced to be too large need not be waited for.
                    let to_come = this.body.size_hint().lower();
                    if gathered.len.saturating_add(to_come) > limit {
                        return Poll::Ready(Err(Error::TooLarge { limit }));
                    }
                    return Poll::Pending;
                }
            };
            let Ok(data) = frame.into_data() else { continue };
            gathered.push(data, limit)?;
            if this.body.is_end_stream() {
                return Poll::Ready(Ok(gathered.take_body()));
            }
        }
    }
}

/// A body that a layer above has read whole already, in as many pieces as it has.
#[inline(always)]
fn whole<B: 'static>(body: &mut B) -> Option<RequestBody> {
    let body: &mut dyn Any = body;
    body.downcast_mut().map(std::mem::take)
}

/// Without the prompt.
impl<B> fmt::Debug for Collect<B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Collect")
            .field("limit", &self.limit)
            .field("so_far", &self.gathered.as_ref().map_or(0, |all| all.len))
            .finish_non_exhaustive()
    }
}

/// What a poll of a body gave.
type PolledFrame<B> = Poll<Option<Result<Frame<Bytes>, <B as Body>::Error>>>;

/// The frames so far, and the place that they take.
#[derive(Default)]
struct Gathered {
    len: u64,
    frames: Frames,
    place: Option<Reservation>,
}

/// A few as they came, many joined.
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
    fn push(&mut self, data: Bytes, limit: u64) -> Result<(), Error> {
        let len = data.len() as u64;
        if let Some(place) = &mut self.place
            && !place.grow(len)
        {
            return Err(Error::Full { limit: place.limit().limit() });
        }
        self.len = self.len.saturating_add(len);
        if self.len > limit {
            return Err(Error::TooLarge { limit });
        }
        let limit = usize::try_from(limit).unwrap_or(usize::MAX);
        match &mut self.frames {
            Frames::Few(few) if few.len() < RequestBody::MAX_PIECES => few.push(data),
            Frames::Few(few) => {
                let mut joined = Vec::new();
                let len = few.iter().map(Bytes::len).sum::<usize>() + data.len();
                bounded::reserve(&mut joined, len, limit);
                for piece in few.drain(..).chain([data]) {
                    joined.extend_from_slice(&piece);
                }
                self.frames = Frames::Joined(joined);
            }
            Frames::Joined(joined) => {
                bounded::reserve(joined, data.len(), limit);
                joined.extend_from_slice(&data);
            }
        }
        Ok(())
    }

    fn take_body(&mut self) -> RequestBody {
        match std::mem::take(&mut self.frames) {
            Frames::Few(few) => RequestBody::from_pieces(few),
            Frames::Joined(joined) => joined.into(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::VecDeque;
    use std::convert::Infallible;
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
            gathered.push(Bytes::from_static(b"x"), 100_000).unwrap();
            if let Frames::Joined(joined) = &gathered.frames {
                assert!(joined.capacity() <= 100_000);
            }
        }
        assert_eq!(gathered.take_body().len(), 100_000);
    }
}
