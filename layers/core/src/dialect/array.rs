//! The elements of one JSON array, from bytes that are cut anywhere.
//!
//! Gemini's `:streamGenerateContent` without `alt=sse` sends `[{..}`, then `,\r\n{..}` again and
//! again, then `]` (issue symfony/ai#1988; issue google-gemini/gemini-cli#11196). One object without an
//! array around it is taken for its only element.

use super::lines::append;
use super::scan::Scan;
use super::sse::PREFIX;

/// Splits an array into its elements. Holds what the last chunk cut off, up to a bound.
#[derive(Debug)]
pub(super) struct ArrayReader {
    max_element: usize,
    state: State,
    scan: Scan,
    /// The beginning of an element that is not whole yet.
    element: Vec<u8>,
    oversized: bool,
    /// No array came: the object that stands alone is the end as well.
    alone: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// Nothing but white space so far.
    Start,
    /// Between elements.
    Between,
    /// In an element.
    Inside,
    /// The array was closed.
    Closed,
    /// This is no array of objects; nothing more is read.
    Broken,
}

/// What was found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Item<'a> {
    /// A whole element.
    Element(&'a [u8]),
    /// The first bytes of an element larger than the bound.
    Oversized(&'a [u8]),
    /// The array's closing bracket.
    End,
}

impl ArrayReader {
    /// A reader that keeps at most `max_element` bytes of an element.
    pub(super) fn new(max_element: usize) -> Self {
        Self {
            max_element: max_element.max(PREFIX),
            state: State::Start,
            scan: Scan::default(),
            element: Vec::new(),
            oversized: false,
            alone: false,
        }
    }

    /// Takes the next bytes and gives `on_item` what ends in them. An element that lies whole in
    /// `chunk` is not copied.
    pub(super) fn push(&mut self, chunk: &[u8], mut on_item: impl FnMut(Item<'_>)) {
        let mut at = 0;
        while let Some(&byte) = chunk.get(at) {
            match self.state {
                State::Inside => {
                    let rest = &chunk[at..];
                    let Some(length) = self.scan.feed(rest) else {
                        self.keep(rest);
                        return;
                    };
                    self.end_element(&rest[..length], &mut on_item);
                    at += length;
                }
                State::Start | State::Between => {
                    self.state = match byte {
                        b'{' => {
                            self.alone = self.state == State::Start;
                            self.scan = Scan::default();
                            State::Inside
                        }
                        b'[' if self.state == State::Start => State::Between,
                        b']' if self.state == State::Between => {
                            on_item(Item::End);
                            State::Closed
                        }
                        b',' if self.state == State::Between => State::Between,
                        b' ' | b'\t' | b'\r' | b'\n' => self.state,
                        // A byte order mark.
                        0xEF | 0xBB | 0xBF if self.state == State::Start => State::Start,
                        _ => State::Broken,
                    };
                    // The scan itself takes the opening bracket.
                    at += usize::from(self.state != State::Inside);
                }
                State::Closed | State::Broken => return,
            }
        }
    }

    #[cfg(test)]
    pub(super) fn capacity(&self) -> usize {
        self.element.capacity()
    }

    fn keep(&mut self, piece: &[u8]) {
        if self.oversized {
            return;
        }
        if self.element.len() + piece.len() > self.max_element {
            self.oversized = true;
            self.element.truncate(PREFIX);
            let missing = (PREFIX - self.element.len()).min(piece.len());
            append(&mut self.element, &piece[..missing], self.max_element);
            return;
        }
        append(&mut self.element, piece, self.max_element);
    }

    fn end_element(&mut self, last: &[u8], on_item: &mut impl FnMut(Item<'_>)) {
        if self.element.is_empty() && last.len() <= self.max_element {
            on_item(Item::Element(last));
        } else {
            self.keep(last);
            on_item(if self.oversized {
                Item::Oversized(&self.element)
            } else {
                Item::Element(&self.element)
            });
        }
        self.element.clear();
        self.oversized = false;
        self.state = if self.alone { State::Closed } else { State::Between };
        if self.alone {
            on_item(Item::End);
        }
    }
}
