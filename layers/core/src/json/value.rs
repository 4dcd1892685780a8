//! A value as the bytes that it has in its document.

use super::scan::Scanner;
use super::spans::Spans;
use super::unescape;
use super::walk::{Walk, end_of_value};
use std::borrow::Cow;
use std::fmt;
use std::hash::{Hash, Hasher};
use std::str;

/// One value of a document that [`parse`](super::parse) has checked: a span of its bytes, without
/// white space around it.
///
/// Methods never panic, and those that ask for another kind of value than this one answer with
/// nothing.
#[derive(Clone, Copy)]
pub struct Value<'a> {
    raw: &'a [u8],
    /// Where the document's containers end, where that was noted.
    spans: Option<&'a Spans>,
}

impl PartialEq for Value<'_> {
    fn eq(&self, other: &Self) -> bool {
        self.raw == other.raw
    }
}

impl Eq for Value<'_> {}

impl Hash for Value<'_> {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.raw.hash(state);
    }
}

impl fmt::Debug for Value<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { raw, spans: _ } = self;
        f.debug_struct("Value").field("raw", raw).finish()
    }
}

impl<'a> Value<'a> {
    pub(crate) fn new(raw: &'a [u8]) -> Self {
        Self { raw, spans: None }
    }

    pub(super) fn noted(raw: &'a [u8], spans: &'a Spans) -> Self {
        Self { raw, spans: Some(spans) }
    }

    /// What kind of value it is, by its first byte.
    #[inline]
    pub fn kind(self) -> Kind {
        match self.raw.first() {
            Some(b'{') => Kind::Object,
            Some(b'[') => Kind::Array,
            Some(b'"') => Kind::String,
            Some(b't' | b'f') => Kind::Bool,
            Some(b'-' | b'0'..=b'9') => Kind::Number,
            _ => Kind::Null,
        }
    }

    /// Its bytes in the document, quotes included.
    #[inline]
    pub fn raw(self) -> &'a [u8] {
        self.raw
    }

    /// Whether it is `null`.
    #[inline]
    pub fn is_null(self) -> bool {
        self.kind() == Kind::Null
    }

    /// Whether it is an object.
    #[inline]
    pub fn is_object(self) -> bool {
        self.kind() == Kind::Object
    }

    /// Whether it is `""`.
    #[inline]
    pub fn is_empty_string(self) -> bool {
        self.raw == b"\"\""
    }

    /// Whether it is a string with this text. No allocation; a string that is not UTF-8 is equal to
    /// nothing.
    #[inline]
    pub fn str_is(self, wanted: &str) -> bool {
        self.quoted().is_some_and(|quoted| unescape::is(quoted, wanted))
    }

    /// The text, if it is a string. Allocates only if the string has an escape or is not UTF-8;
    /// what is not UTF-8, and half of a surrogate pair, becomes U+FFFD.
    pub fn as_str(self) -> Option<Cow<'a, str>> {
        self.quoted().map(unescape::text)
    }

    /// The truth, if it is `true` or `false`.
    pub fn as_bool(self) -> Option<bool> {
        match self.raw {
            b"true" => Some(true),
            b"false" => Some(false),
            _ => None,
        }
    }

    /// The number, if it is written as a whole one that fits: `1.0` and `1e3` are none.
    pub fn as_u64(self) -> Option<u64> {
        self.number()?.parse().ok()
    }

    /// The nearest number, if it is one and within the range of an `f64`: `1e400` is not.
    pub fn as_f64(self) -> Option<f64> {
        self.number()?.parse().ok().filter(|number: &f64| number.is_finite())
    }

    /// The members, if it is an object; else none.
    ///
    /// Cost: one pass over the object as far as it is iterated.
    pub fn members(self) -> Members<'a> {
        let raw = match self.kind() {
            Kind::Object => self.raw,
            _ => b"{}",
        };
        let spans = self.spans;
        let noted = spans.and_then(|spans| spans.first_member(raw)).filter(|_| raw.len() > 2);
        Members { raw, spans, noted, walk: Walk::new(raw, 1) }
    }

    /// The elements, if it is an array; else none.
    ///
    /// Cost: one pass over the array as far as it is iterated.
    pub fn elements(self) -> Elements<'a> {
        let raw = match self.kind() {
            Kind::Array => self.raw,
            _ => b"[]",
        };
        Elements { scanner: Scanner::new(raw), spans: self.spans, at: 1 }
    }

    /// The value of a key, if it is an object that has the key; of the last one, if it has several.
    ///
    /// Cost: one pass over the object. Ask [`get_many`](Self::get_many) where several are wanted.
    pub fn get(self, key: &str) -> Option<Self> {
        let [value] = self.get_many([key]);
        value
    }

    /// The values of several keys in one pass over the object, each as [`get`](Self::get) would
    /// give it.
    pub fn get_many<const N: usize>(self, keys: [&str; N]) -> [Option<Self>; N] {
        let mut values = [None; N];
        for (key, value) in self.members() {
            let is_plain = !unescape::has_escape(key.quoted);
            for (wanted, found) in keys.iter().zip(&mut values) {
                let is_it = match is_plain {
                    true => key.quoted == wanted.as_bytes(),
                    false => key.str_is(wanted),
                };
                if is_it {
                    *found = Some(value);
                }
            }
        }
        values
    }

    /// What stands between the quotes.
    #[inline]
    fn quoted(self) -> Option<&'a [u8]> {
        self.raw.strip_prefix(b"\"")?.strip_suffix(b"\"")
    }

    fn number(self) -> Option<&'a str> {
        match self.kind() {
            Kind::Number => str::from_utf8(self.raw).ok(),
            _ => None,
        }
    }
}

/// The kinds of values.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[expect(clippy::exhaustive_enums, reason = "JSON has these six, for good")]
pub enum Kind {
    /// `[..]`
    Array,
    /// `true` or `false`
    Bool,
    /// `null`
    Null,
    /// Any number.
    Number,
    /// `{..}`
    Object,
    /// `".."`
    String,
}

/// A key of an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Key<'a> {
    quoted: &'a [u8],
}

impl<'a> Key<'a> {
    /// Whether it has this text, once unescaped. No allocation.
    #[inline]
    pub fn str_is(self, wanted: &str) -> bool {
        unescape::is(self.quoted, wanted)
    }

    /// Its text, as [`Value::as_str`].
    pub fn as_str(self) -> Cow<'a, str> {
        unescape::text(self.quoted)
    }
}

/// An object's members in the order of the document, duplicates included; made by
/// [`Value::members`].
#[derive(Clone, Debug)]
pub struct Members<'a> {
    raw: &'a [u8],
    spans: Option<&'a Spans>,
    /// The next member in the notes, where they have them.
    noted: Option<usize>,
    walk: Walk<'a>,
}

impl<'a> Iterator for Members<'a> {
    type Item = (Key<'a>, Value<'a>);

    fn next(&mut self) -> Option<Self::Item> {
        // The document has been checked, so that there is no error to lose; were there one, the
        // walk would stay where it is.
        let Self { raw, spans, noted, walk } = self;
        if let (Some(spans), Some(at)) = (*spans, *noted) {
            let (key, value, next) = spans.member(raw, at)?;
            *noted = Some(next);
            let value = Value { raw: raw.get(value)?, spans: Some(spans) };
            return Some((Key { quoted: raw.get(key)? }, value));
        }
        let entry = walk.next_entry_noted(*spans).ok()??;
        let quoted = raw.get(entry.key)?;
        let raw = raw.get(entry.value)?;
        Some((Key { quoted }, Value { raw, spans: *spans }))
    }
}

/// An array's elements; made by [`Value::elements`].
#[derive(Clone, Debug)]
pub struct Elements<'a> {
    scanner: Scanner<'a>,
    spans: Option<&'a Spans>,
    at: usize,
}

impl<'a> Iterator for Elements<'a> {
    type Item = Value<'a>;

    fn next(&mut self) -> Option<Value<'a>> {
        let Self { scanner, spans, at } = self;
        let (next, here) = scanner.token(*at).ok()?;
        let start = match next {
            b']' => return None,
            b',' => here + 1,
            _ => here,
        };
        let (first, start) = scanner.token(start).ok()?;
        let end = end_of_value(*scanner, first, start, *spans).ok()?;
        *at = end;
        let raw = scanner.input().get(start..end)?;
        Some(Value { raw, spans: *spans })
    }
}
