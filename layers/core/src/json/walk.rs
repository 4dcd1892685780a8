//! One object's members in turn.

use super::error::{JsonError, JsonErrorKind};
use super::scan::Scanner;
use super::spans::Spans;
use super::unescape;
use std::ops::Range;

/// Goes over the members of one object, checking them as it goes.
#[derive(Clone, Debug)]
pub(crate) struct Walk<'a> {
    scanner: Scanner<'a>,
    at: usize,
    first: bool,
}

/// Where a member stands: its key between the quotes, and its value.
#[derive(Clone, Debug)]
pub(crate) struct Entry {
    pub(crate) key: Range<usize>,
    pub(crate) value: Range<usize>,
}

impl Entry {
    /// Whether the key has this text, once unescaped.
    #[inline]
    pub(crate) fn key_is(&self, input: &[u8], wanted: &str) -> bool {
        let Range { start, end } = self.key;
        input.get(start..end).is_some_and(|key| unescape::is(key, wanted))
    }
}

impl<'a> Walk<'a> {
    /// Begins behind the object's opening brace.
    pub(crate) fn new(input: &'a [u8], at: usize) -> Self {
        Self { scanner: Scanner::new(input), at, first: true }
    }

    /// One past what has been read: after the last member, one past the closing brace.
    pub(crate) fn at(&self) -> usize {
        self.at
    }

    /// The next member, or none and the object is closed.
    pub(crate) fn next_entry(&mut self) -> Result<Option<Entry>, JsonError> {
        self.next_entry_noted(None)
    }

    /// As [`Walk::next_entry`], in a checked document whose containers' ends are noted in `spans`.
    #[inline]
    pub(super) fn next_entry_noted(
        &mut self,
        spans: Option<&Spans>,
    ) -> Result<Option<Entry>, JsonError> {
        let Self { scanner, at, first } = self;
        let (next, here) = scanner.token(*at)?;
        let key = match (next, *first) {
            (b'}', _) => {
                *at = here + 1;
                return Ok(None);
            }
            (b'"', true) => here + 1,
            (b',', false) => scanner.opening_quote(here + 1)?,
            _ => return Err(JsonErrorKind::Malformed.at(here)),
        };
        let key_end = scanner.string(key)?;
        let (first_byte, value) = scanner.token(scanner.colon(key_end)?)?;
        let end = end_of_value(*scanner, first_byte, value, spans)?;
        (*at, *first) = (end, false);
        Ok(Some(Entry { key: key..key_end - 1, value: value..end }))
    }
}

/// One past the end of the value that begins at `at` with `first`, inside of one open container.
#[inline]
pub(super) fn end_of_value(
    scanner: Scanner<'_>,
    first: u8,
    at: usize,
    spans: Option<&Spans>,
) -> Result<usize, JsonError> {
    if matches!(first, b'{' | b'[')
        && let Some(spans) = spans
        && let Some(length) = scanner.input().get(at..).and_then(|rest| spans.length_of(rest))
    {
        return Ok(at + length);
    }
    scanner.value(at, 1)
}
