//! The lines of an event stream.

use memchr::memchr;

use crate::bounded;

/// A line, by what it means.
pub(super) enum Line<'a> {
    Blank,
    Comment,
    Data(&'a [u8]),
    Error(&'a [u8]),
    Event(&'a [u8]),
    /// No field can begin like that.
    Text(&'a [u8]),
    /// A field that means nothing here.
    Other(&'a [u8]),
}

impl<'a> Line<'a> {
    pub(super) fn of(line: &'a [u8]) -> Self {
        match line.first() {
            None => return Self::Blank,
            Some(b'{' | b'}' | b'[' | b']' | b'"' | b' ' | b'\t') => return Self::Text(line),
            Some(b':') => return Self::Comment,
            Some(_) => {}
        }
        let (field, value) = match memchr(b':', &line[..line.len().min(FIELD)]) {
            Some(colon) => (&line[..colon], &line[colon + 1..]),
            None => (line, &line[line.len()..]),
        };
        let value = value.strip_prefix(b" ").unwrap_or(value);
        match field {
            b"data" => Self::Data(value),
            b"error" => Self::Error(value),
            b"event" => Self::Event(value),
            _ => Self::Other(line),
        }
    }
}

/// An event's name. The longest that matters is far shorter than what fits.
#[derive(Debug)]
pub(super) struct Name {
    bytes: [u8; 64],
    length: usize,
}

impl Name {
    pub(super) fn set(&mut self, name: &[u8]) {
        self.length = name.len().min(self.bytes.len());
        self.bytes[..self.length].copy_from_slice(&name[..self.length]);
    }

    pub(super) fn get(&self) -> &[u8] {
        &self.bytes[..self.length]
    }

    pub(super) const fn clear(&mut self) {
        self.length = 0;
    }
}

impl Default for Name {
    fn default() -> Self {
        Self { bytes: [0; 64], length: 0 }
    }
}

/// Appends without setting aside more than `max` in all, which a doubling vector would.
pub(super) fn append(to: &mut Vec<u8>, bytes: &[u8], max: usize) {
    let least = if to.capacity() == 0 && !bytes.is_empty() { MIN_CAPACITY } else { 0 };
    bounded::reserve(to, bytes.len().max(least), max);
    to.extend_from_slice(bytes);
}

/// The longest field name that means anything, its colon and its blank.
pub(super) const FIELD: usize = 7;
/// Most events are smaller, so that one allocation serves a stream.
const MIN_CAPACITY: usize = 512;
