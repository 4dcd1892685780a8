//! Changes top-level members of a request body and leaves every other byte as the caller sent it.
//!
//! ```
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! use backstop_core::{RequestBody, splice};
//! use bytes::Bytes;
//!
//! let body = Bytes::from_static(br#"{ "temperature": 1.0, "model": "gpt-5.5" }"#);
//! let object = splice::find(&body, ["model", "reasoning_effort"])?;
//! let model = object.set("model", splice::json_string("gpt-5.6-sol")).expect("is there once");
//! let effort = object.set("reasoning_effort", splice::json_string("high")).expect("is absent");
//! let spliced = RequestBody::from_pieces(splice::replace(&body, [model, effort])?);
//! assert_eq!(
//!     &spliced.to_bytes()[..],
//!     br#"{"reasoning_effort":"high", "temperature": 1.0, "model": "gpt-5.6-sol" }"#,
//! );
//! # Ok(())
//! # }
//! ```
//!
//! # Cost
//!
//! [`find`] is one pass over the body without allocation. [`replace`] copies and allocates nothing:
//! what it keeps of the body are references to it.

use crate::json::{self, JsonError, Kind, Scanner, Walk};
use bytes::{BufMut, Bytes, BytesMut};
use std::ops::Range;
use thiserror::Error;

/// Looks for keys of the body's top-level object, and checks the grammar of the whole body.
///
/// Keys are compared after unescaping. Those of nested objects do not count.
///
/// # Errors
///
/// [`NotAnObject`]: the body is not JSON, or another kind of value.
///
/// # Cost
///
/// One pass over the body, no allocation.
pub fn find<'k, const N: usize>(
    body: &[u8],
    keys: [&'k str; N],
) -> Result<Object<'k, N>, NotAnObject> {
    let (first, start) = Scanner::new(body).token(json::start(body))?;
    if first != b'{' {
        return Err(NotAnObject::Other(json::parse(body)?.kind()));
    }
    let (object, end) = object(body, start + 1, keys)?;
    json::end_of_document(body, end)?;
    Ok(object)
}

/// Looks for keys of one object of the body: of the value of a key that [`find`] found, such as
/// `reasoning`.
///
/// # Errors
///
/// [`NotAnObject`]: the span holds anything but one object.
///
/// # Cost
///
/// One pass over the span, no allocation.
pub fn find_within<'k, const N: usize>(
    body: &[u8],
    span: Range<usize>,
    keys: [&'k str; N],
) -> Result<Object<'k, N>, NotAnObject> {
    let Range { start, end } = span;
    let mut object = find(body.get(start..end).unwrap_or(&[]), keys)?;
    object.inside += start;
    for found in &mut object.found {
        if let Found::Once(span) = found {
            *span = span.start + start..span.end + start;
        }
    }
    Ok(object)
}

/// The body with the edits made, in pieces: what the edits leave of it, and what they put in its
/// place.
///
/// Edits may come in any order. Of several that insert into one object, the first stands first.
///
/// # Errors
///
/// [`Misfit`]: the edits touch each other's bytes, or were made for another body.
pub fn replace(body: &Bytes, edits: impl IntoIterator<Item = Edit>) -> Result<Parts, Misfit> {
    let mut edits = edits.into_iter();
    let mut sorted = [edits.next(), edits.next()];
    if edits.next().is_some() {
        return Err(Misfit);
    }
    // Not equal positions: two insertions keep their order.
    if let [Some(a), Some(b)] = &sorted
        && a.span.start > b.span.start
    {
        sorted.reverse();
    }
    let [first, second] = &sorted;
    let mut parts = Parts::default();
    let mut at = 0;
    for (edit, next) in [(first, second), (second, &None)] {
        let Some(Edit { span, json, empty }) = edit else {
            continue;
        };
        let kept = body.get(at..span.start).ok_or(Misfit)?;
        body.get(span.clone()).ok_or(Misfit)?;
        parts.push(body.slice_ref(kept));
        // An insertion ends with a comma; nothing follows it in an object that was empty, unless
        // another insertion does.
        let comma = *empty && next.as_ref().is_none_or(|next| next.span.start != span.start);
        parts.push(json.slice(..json.len().saturating_sub(usize::from(comma))));
        at = span.end;
    }
    parts.push(body.slice_ref(body.get(at..).ok_or(Misfit)?));
    Ok(parts)
}

/// A text as a JSON string, quotes included.
///
/// # Cost
///
/// One allocation.
pub fn json_string(text: &str) -> Bytes {
    let mut json = BytesMut::with_capacity(text.len() + 2);
    put_json_string(&mut json, text);
    json.freeze()
}

/// Where an object begins and the keys that were looked for stand in it; made by [`find`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Object<'k, const N: usize> {
    keys: [&'k str; N],
    found: [Found; N],
    /// One past the opening brace.
    inside: usize,
    empty: bool,
}

impl<const N: usize> Object<'_, N> {
    /// What was found, in the order of the keys.
    pub fn found(&self) -> &[Found; N] {
        &self.found
    }

    /// The edit that gives a key this value, which must be JSON: in place of the one that it has,
    /// or as a new first member.
    ///
    /// None if the key stands there more than once, since parsers differ in which one they believe,
    /// and if it was not looked for.
    ///
    /// # Cost
    ///
    /// None in place of a value that is there; else one allocation and a copy of key and value.
    #[must_use]
    pub fn set(&self, key: &str, json: Bytes) -> Option<Edit> {
        let (_, found) = self.keys.iter().zip(&self.found).find(|(wanted, _)| **wanted == key)?;
        let (span, json) = match found {
            Found::Absent => {
                let mut member = BytesMut::with_capacity(key.len() + json.len() + 4);
                put_json_string(&mut member, key);
                member.put_u8(b':');
                member.put_slice(&json);
                member.put_u8(b',');
                (self.inside..self.inside, member.freeze())
            }
            Found::Once(span) => (span.clone(), json),
            Found::Repeated => return None,
        };
        let empty = self.empty;
        Some(Edit { span, json, empty })
    }
}

/// How a key was found in an object.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[expect(clippy::exhaustive_enums, reason = "a key is there not at all, once or more often")]
pub enum Found {
    /// It is not there.
    #[default]
    Absent,
    /// Its value's bytes in the body.
    Once(Range<usize>),
    /// It is there more than once.
    Repeated,
}

/// One change of a body; made by [`Object::set`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Edit {
    /// What it replaces; nothing, if it inserts.
    span: Range<usize>,
    json: Bytes,
    /// Whether the object had no members, so that this inserts.
    empty: bool,
}

/// A body in pieces, none of them empty; made by [`replace`]. Iterates over the pieces.
#[derive(Clone, Debug, Default)]
pub struct Parts {
    parts: [Bytes; MAX_PARTS],
    next: usize,
    length: usize,
}

impl Parts {
    /// All pieces' bytes together: the Content-Length.
    #[must_use]
    pub fn byte_len(&self) -> u64 {
        // No platform's `usize` is wider.
        self.as_slice().iter().map(|part| part.len() as u64).sum()
    }

    /// The pieces that have not been taken.
    #[must_use]
    pub fn as_slice(&self) -> &[Bytes] {
        self.parts.get(self.next..self.length).unwrap_or_default()
    }

    fn push(&mut self, part: Bytes) {
        if part.is_empty() {
            return;
        }
        if let Some(place) = self.parts.get_mut(self.length) {
            *place = part;
            self.length += 1;
        }
    }
}

impl Iterator for Parts {
    type Item = Bytes;

    fn next(&mut self) -> Option<Bytes> {
        let part = self.parts.get_mut(self.next..self.length)?.first_mut()?;
        self.next += 1;
        Some(std::mem::take(part))
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        let left = self.as_slice().len();
        (left, Some(left))
    }
}

impl ExactSizeIterator for Parts {}

/// Why a body cannot be looked into.
#[derive(Clone, Copy, Debug, Error, PartialEq, Eq)]
#[non_exhaustive]
pub enum NotAnObject {
    /// It is not JSON.
    #[error(transparent)]
    NotJson(#[from] JsonError),
    /// It is JSON, but of another kind.
    #[error("JSON, but no object: {0:?}")]
    Other(Kind),
}

/// Edits do not fit the body or each other: they were made for another one, are more than two, or
/// touch the same bytes.
#[derive(Clone, Copy, Debug, Error, PartialEq, Eq)]
#[error("the edits do not fit the body or each other")]
#[non_exhaustive]
pub struct Misfit;

/// Reads an object from one past its opening brace to one past its closing one.
fn object<'k, const N: usize>(
    body: &[u8],
    inside: usize,
    keys: [&'k str; N],
) -> Result<(Object<'k, N>, usize), JsonError> {
    let mut found = [const { Found::Absent }; N];
    let mut empty = true;
    let mut walk = Walk::new(body, inside);
    while let Some(entry) = walk.next_entry()? {
        empty = false;
        for (wanted, found) in keys.iter().zip(&mut found) {
            if entry.key_is(body, wanted) {
                *found = match found {
                    Found::Absent => Found::Once(entry.value.clone()),
                    Found::Once(_) | Found::Repeated => Found::Repeated,
                };
            }
        }
    }
    let object = Object { keys, found, inside, empty };
    Ok((object, walk.at()))
}

fn put_json_string(json: &mut BytesMut, text: &str) {
    json.put_u8(b'"');
    for byte in text.bytes() {
        match byte {
            b'"' | b'\\' => json.put_slice(&[b'\\', byte]),
            b'\n' => json.put_slice(b"\\n"),
            b'\r' => json.put_slice(b"\\r"),
            b'\t' => json.put_slice(b"\\t"),
            0..=0x1F => {
                let digit = |nibble: u8| {
                    if nibble < 10 { b'0' + nibble } else { b'a' + nibble - 10 }
                };
                json.put_slice(b"\\u00");
                json.put_slice(&[digit(byte >> 4), digit(byte & 0xF)]);
            }
            _ => json.put_u8(byte),
        }
    }
    json.put_u8(b'"');
}

/// Each of two edits leaves a piece before it and puts one in; one piece is behind both. As many as
/// a `RequestBody` holds.
const MAX_PARTS: usize = 5;

#[cfg(test)]
mod tests;
