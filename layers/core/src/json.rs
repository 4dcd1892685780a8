//! Reads JSON without copying it: enough to find a request's `model`, an answer's `error`, `usage`
//! or `choices`.
//!
//! A document is checked once, by [`parse`]; what comes out is a [`Value`], which is nothing but
//! the bytes that the value has in the document. Going into it scans those bytes again, and only
//! those: no tree is built, so a large prompt costs one pass, and a small answer a few.
//!
//! ```
//! # fn main() -> Result<(), backstop_core::json::JsonError> {
//! use backstop_core::json;
//!
//! let answer = json::parse(br#"{"id": "x", "error": {"code": "rate_limit\u005fexceeded"}}"#)?;
//! let code = answer.get("error").and_then(|error| error.get("code"));
//! assert!(code.is_some_and(|code| code.str_is("rate_limit_exceeded")));
//! # Ok(())
//! # }
//! ```
//!
//! # What is accepted
//!
//! The whole grammar of RFC 8259 is checked, without recursion. There are two exceptions, both on
//! the generous side, because what a provider makes of its own input is the provider's business:
//! strings may hold unescaped control characters, and bytes that are not UTF-8. More than 128 open
//! objects and arrays are refused. A byte order mark in front is stepped over. Where a key stands
//! twice in an object, the last one counts, as for most parsers.
//!
//! # Cost
//!
//! No allocation, but for strings that have escapes and are asked for as text. Text is skipped at
//! several gigabytes a second; `benches/splice.rs` compares with serde_json.

mod error;
mod scan;
mod spans;
mod text;
mod unescape;
mod value;
mod walk;

#[cfg(test)]
pub(crate) mod tests;

use std::ops::Range;

pub use error::{JsonError, JsonErrorKind};
pub use value::{Elements, Key, Kind, Members, Value};

pub(crate) use scan::Scanner;
use spans::Spans;
pub(crate) use walk::Walk;

/// Checks a whole document: one value, with white space around it and a UTF-8 byte order mark
/// before it or not.
///
/// # Errors
///
/// [`JsonErrorKind::Truncated`] if all of the input may be the beginning of a document; an empty
/// one may. [`JsonErrorKind::Malformed`] otherwise, and if anything but white space follows the
/// value. [`JsonErrorKind::TooDeep`].
///
/// # Cost
///
/// One pass, no allocation.
pub fn parse(input: &[u8]) -> Result<Value<'_>, JsonError> {
    let span = checked(input, &mut ())?;
    Ok(Value::new(input.get(span).unwrap_or(&[])))
}

/// As [`parse`], for a document that is gone into more than once: `read` gets a value that knows where
/// the document's outer containers end, so that it steps over them.
///
/// # Errors
///
/// As [`parse`]; `read` comes back.
///
/// # Cost
///
/// As [`parse`].
pub(crate) fn parse_with<T, R>(input: &[u8], read: R) -> Result<T, (JsonError, R)>
where
    R: FnOnce(Value<'_>) -> T,
{
    let mut spans = Spans::of(input);
    match checked(input, &mut spans) {
        Ok(span) => Ok(read(Value::noted(input.get(span).unwrap_or(&[]), &spans))),
        Err(error) => Err((error, read)),
    }
}

/// Where the one value of a document stands.
fn checked(input: &[u8], spans: &mut impl spans::NoteSpans) -> Result<Range<usize>, JsonError> {
    let scanner = Scanner::new(input);
    let (_, start) = scanner.token(start(input))?;
    let end = scanner.value_noting(start, 0, spans)?;
    end_of_document(input, end)?;
    Ok(start..end)
}

/// From a value's first byte, or white space before it, to one past its end.
///
/// A number at the end of the input is taken for complete.
///
/// # Errors
///
/// As [`parse`]; the offsets count from the start of `input`.
///
/// # Cost
///
/// One pass over the value, no allocation.
pub fn skip_value(input: &[u8], at: usize) -> Result<usize, JsonError> {
    Scanner::new(input).value(at, 0)
}

/// Where a document begins: behind the byte order mark, if there is one.
pub(crate) fn start(input: &[u8]) -> usize {
    if input.starts_with(BYTE_ORDER_MARK) { BYTE_ORDER_MARK.len() } else { 0 }
}

/// Checks that nothing but white space follows.
pub(crate) fn end_of_document(input: &[u8], end: usize) -> Result<(), JsonError> {
    match Scanner::new(input).token(end) {
        Ok((_, garbage)) => Err(JsonErrorKind::Malformed.at(garbage)),
        Err(_) => Ok(()),
    }
}

const BYTE_ORDER_MARK: &[u8] = b"\xEF\xBB\xBF";
