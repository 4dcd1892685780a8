//! JSON that is nested deeper than it is read.

use memchr::memchr2;

use super::scan::Scan;
use crate::json::{self, JsonError, JsonErrorKind, Value};

/// Gives `read` the document `input`, once it is checked.
///
/// Of a document that is nested too deeply, everything deeper than [`KEPT`] levels is left out, where
/// no dialect has anything that matters. It is only counted there whether each bracket is closed:
/// a document that was cut off behind its deepest part is no document.
///
/// # Cost
///
/// No allocation, but for what is nested too deeply: as much as `input` at most.
pub(super) fn parse<T>(input: &[u8], read: impl FnOnce(Value<'_>) -> T) -> Result<T, JsonError> {
    match json::parse_with(input, read) {
        Ok(read) => Ok(read),
        Err((error, read)) if error.kind() == JsonErrorKind::TooDeep => {
            json::parse_with(&shallow(input), read).map_err(|(error, _)| error)
        }
        Err((error, _)) => Err(error),
    }
}

/// A copy of `input` without what is nested deeper than [`KEPT`] levels. It ends where the input does
/// if that is cut off.
fn shallow(input: &[u8]) -> Vec<u8> {
    let mut kept = Vec::new();
    let mut depth = 0u32;
    // Where what is not copied yet begins.
    let mut from = 0;
    let mut at = 0;
    while let Some(&byte) = input.get(at) {
        match byte {
            b'"' => {
                at = past_string(input, at + 1);
                continue;
            }
            b'{' | b'[' if depth >= KEPT => {
                let length = Scan::default().feed(&input[at..]);
                // An empty one stays.
                if length.is_none_or(|length| length > NOTHING.len()) {
                    kept.extend_from_slice(&input[from..at]);
                    let Some(length) = length else {
                        kept.push(b'[');
                        return kept;
                    };
                    kept.extend_from_slice(SOMETHING);
                    from = at + length;
                }
                at += length.unwrap_or_default();
                continue;
            }
            b'{' | b'[' => depth += 1,
            b'}' | b']' => depth = depth.saturating_sub(1),
            _ => {}
        }
        at += 1;
    }
    kept.extend_from_slice(&input[from..]);
    kept
}

/// From one past a string's opening quote to one past its closing one, or to the end.
fn past_string(input: &[u8], mut at: usize) -> usize {
    while let Some(length) = input.get(at..).and_then(|rest| memchr2(b'"', b'\\', rest)) {
        at += length;
        if input[at] == b'"' {
            return at + 1;
        }
        at += 2;
    }
    input.len()
}

/// What stands for the rest, so that it does not pass for nothing; never longer than that.
const SOMETHING: &[u8] = b"[0]";
const NOTHING: &[u8] = b"[]";
/// Half of what the parser reads.
const KEPT: u32 = 64;
