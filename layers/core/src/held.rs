use std::collections::VecDeque;

use bytes::Bytes;
use http_body::Frame;

use crate::{BufferLimit, Reservation};

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

    fn held(pieces: &[&'static str]) -> HeldFrames {
        let mut held = HeldFrames::default();
        for piece in pieces {
            assert!(held.push(Frame::data(Bytes::from_static(piece.as_bytes()))));
        }
        held
    }

    #[test]
    fn a_document_of_one_frame_is_not_copied_and_one_of_several_is_copied_once() {
        let mut one = held(&["{}"]);
        let document = one.document();
        let frame = one.pop().and_then(|frame| frame.into_data().ok()).unwrap();
        assert_eq!(frame.as_ptr(), document.as_ptr());
        let mut several = held(&["{", "", "}"]);
        let document = several.document();
        assert_eq!(document, "{}");
        let frame = several.pop().and_then(|frame| frame.into_data().ok()).unwrap();
        assert_eq!((frame.as_ptr(), several.is_empty()), (document.as_ptr(), true));
    }

    #[test]
    fn what_is_held_is_counted_down_and_its_place_given_back_with_the_last_frame() {
        let limit = BufferLimit::new(3);
        let mut held = HeldFrames::within(Some(&limit));
        let frame = |text: &'static str| Frame::data(Bytes::from_static(text.as_bytes()));
        assert!(held.push(frame("ab")) && held.push(frame("c")) && !held.push(frame("d")));
        assert_eq!((held.len(), limit.used()), (4, 3));
        held.pop();
        assert_eq!((held.len(), limit.used()), (2, 3));
        held.pop();
        held.pop();
        assert_eq!((held.len(), limit.used()), (0, 0));
    }
}
