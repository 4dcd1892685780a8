use std::collections::VecDeque;
use std::fmt;

use bytes::Bytes;
use http::HeaderMap;
use http_body::Frame;

use crate::{BufferLimit, Reservation};

/// The frames of an answer that are held back, and how many bytes they are.
///
/// The bytes come out as they went in; the frames need not. Where they are many, small ones are joined,
/// and empty ones are left out: a frame takes some hundred bytes of memory whatever is in it, and a
/// provider that sends single bytes must not make us hold a hundred times as much as it sent.
#[derive(Default)]
pub struct HeldFrames {
    pieces: VecDeque<Piece>,
    len: u64,
    trailers: Option<HeaderMap>,
    place: Option<Reservation>,
}

enum Piece {
    /// A frame as it came.
    Whole(Bytes),
    /// Small frames, joined.
    Joined(Vec<u8>),
}

impl HeldFrames {
    /// Nothing yet; what will be held takes a place in `buffer`, if there is such a limit.
    #[must_use]
    pub fn within(buffer: Option<&BufferLimit>) -> Self {
        Self { place: buffer.and_then(|buffer| buffer.reserve(0)), ..Self::default() }
    }

    /// Adds a frame at the end, and says whether there was a place for it.
    ///
    /// An answer has one section of trailers; what a broken body yields beyond that is dropped.
    pub fn push(&mut self, frame: Frame<Bytes>) -> bool {
        match frame.into_data() {
            Ok(data) => self.push_data(data),
            Err(frame) => {
                if self.trailers.is_none() {
                    self.trailers = frame.into_trailers().ok();
                }
                true
            }
        }
    }

    fn push_data(&mut self, data: Bytes) -> bool {
        if data.is_empty() {
            return true;
        }
        let len = data.len() as u64;
        self.len += len;
        let are_many = self.pieces.len() >= MANY;
        match self.pieces.back_mut() {
            _ if !are_many => self.pieces.push_back(Piece::Whole(data)),
            Some(last) if data.len() <= SMALL && last.len() <= SMALL => last.join(&data),
            Some(Piece::Joined(joined)) if data.len() <= SMALL && joined.len() <= LARGE => {
                joined.extend_from_slice(&data);
            }
            _ => self.pieces.push_back(Piece::Whole(data)),
        }
        self.place.as_mut().is_none_or(|place| place.grow(len))
    }

    /// Takes the first frame. With the last one the place is given back.
    pub fn pop(&mut self) -> Option<Frame<Bytes>> {
        let Some(piece) = self.pieces.pop_front() else {
            return self.trailers.take().map(Frame::trailers);
        };
        self.len -= piece.len() as u64;
        if self.pieces.is_empty() {
            self.place = None;
        }
        Some(Frame::data(piece.into_bytes()))
    }

    /// How many bytes of data are held.
    #[must_use]
    pub const fn len(&self) -> u64 {
        self.len
    }

    /// Whether no frame is held.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.pieces.is_empty() && self.trailers.is_none()
    }

    /// The held data as one piece; joins the frames by a copy where they are several.
    pub fn document(&mut self) -> Bytes {
        let joined = match self.pieces.len() {
            0 => return Bytes::new(),
            1 => match self.pieces.pop_front() {
                Some(only) => only.into_bytes(),
                None => return Bytes::new(),
            },
            _ => {
                let mut joined = Vec::with_capacity(usize::try_from(self.len).unwrap_or_default());
                // One copy of the answer is enough: the pieces give way to it.
                for piece in self.pieces.drain(..) {
                    joined.extend_from_slice(piece.as_slice());
                }
                joined.into()
            }
        };
        self.pieces.push_back(Piece::Whole(joined.clone()));
        joined
    }
}

impl Piece {
    const fn len(&self) -> usize {
        match self {
            Self::Whole(bytes) => bytes.len(),
            Self::Joined(bytes) => bytes.len(),
        }
    }

    fn as_slice(&self) -> &[u8] {
        match self {
            Self::Whole(bytes) => bytes,
            Self::Joined(bytes) => bytes,
        }
    }

    fn into_bytes(self) -> Bytes {
        match self {
            Self::Whole(bytes) => bytes,
            Self::Joined(bytes) => bytes.into(),
        }
    }

    fn join(&mut self, more: &[u8]) {
        match self {
            Self::Joined(joined) => joined.extend_from_slice(more),
            Self::Whole(bytes) => {
                let mut joined = Vec::with_capacity(SMALL * 2);
                joined.extend_from_slice(bytes);
                joined.extend_from_slice(more);
                *self = Self::Joined(joined);
            }
        }
    }
}

/// Without the bytes, which are the caller's business.
impl fmt::Debug for HeldFrames {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { pieces, len, trailers, place } = self;
        f.debug_struct("HeldFrames")
            .field("pieces", &pieces.len())
            .field("len", len)
            .field("trailers", &trailers.is_some())
            .field("place", place)
            .finish()
    }
}

/// So many frames are kept as they came: more than a preamble has.
const MANY: usize = 64;
/// Smaller frames are worth a copy: what a frame costs beside its bytes is some hundred bytes.
const SMALL: usize = 512;
/// Joined pieces stop growing here, so that doubling them wastes little.
const LARGE: usize = 64 * 1024;

#[cfg(test)]
mod tests {
    use super::*;

    fn frame(text: &'static str) -> Frame<Bytes> {
        Frame::data(Bytes::from_static(text.as_bytes()))
    }

    fn data(held: &mut HeldFrames) -> Option<Bytes> {
        held.pop().and_then(|frame| frame.into_data().ok())
    }

    #[test]
    fn a_document_of_one_frame_is_not_copied_and_one_of_several_is_copied_once() {
        let mut one = HeldFrames::default();
        let bytes = Bytes::from_static(b"{}");
        one.push(Frame::data(bytes.clone()));
        assert_eq!(one.document().as_ptr(), bytes.as_ptr());
        assert_eq!(data(&mut one).unwrap().as_ptr(), bytes.as_ptr());
        let mut several = HeldFrames::default();
        for text in ["{", "", "}"] {
            several.push(frame(text));
        }
        let document = several.document();
        assert_eq!(document, "{}");
        assert_eq!(data(&mut several).unwrap().as_ptr(), document.as_ptr());
        assert!(several.is_empty());
    }

    #[test]
    fn frames_of_every_size_come_out_as_the_same_bytes_in_order() {
        let text: Bytes = (0..=255u8).cycle().take(2_000_000).collect::<Vec<_>>().into();
        let (mut held, mut at) = (HeldFrames::default(), 0);
        for len in [1, 3, 600, 2, 2, 70_000, 511, 512, 513, 1, 0, 5].into_iter().cycle().take(300) {
            held.push(Frame::data(text.slice(at..at + len)));
            at += len;
        }
        assert_eq!(held.len(), at as u64);
        let mut out = Vec::new();
        while let Some(data) = data(&mut held) {
            assert!(!data.is_empty());
            out.extend_from_slice(&data);
        }
        assert_eq!(out, text[..at]);
        assert_eq!(held.len(), 0);
    }

    #[test]
    fn single_bytes_empty_frames_and_trailers_without_end_take_little_memory() {
        let mut held = HeldFrames::default();
        for _ in 0..1_000_000 {
            held.push(frame("x"));
            held.push(frame(""));
            held.push(Frame::trailers(HeaderMap::new()));
        }
        assert_eq!(held.len(), 1_000_000);
        assert!(held.pieces.len() < MANY + 20, "{}", held.pieces.len());
        assert_eq!(held.document().len(), 1_000_000);
        assert!(data(&mut held).is_some());
        assert!(held.pop().is_some_and(|frame| frame.is_trailers()));
        assert!(held.pop().is_none());
    }

    #[test]
    fn what_is_held_is_counted_down_and_its_place_given_back_with_the_last_frame() {
        let limit = BufferLimit::new(2_000);
        let mut held = HeldFrames::within(Some(&limit));
        let kilobyte = || Frame::data(Bytes::from(vec![b'x'; 1_000]));
        assert!(held.push(kilobyte()) && held.push(kilobyte()) && !held.push(kilobyte()));
        assert_eq!((held.len(), limit.used()), (3_000, 2_000));
        held.pop();
        assert_eq!((held.len(), limit.used()), (2_000, 2_000));
        held.pop();
        held.pop();
        assert_eq!((held.len(), limit.used()), (0, 0));
    }
}
