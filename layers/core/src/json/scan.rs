//! The grammar: from a value's first byte to one past its end.

use super::error::{JsonError, JsonErrorKind};
use super::spans::NoteSpans;
use super::text::end_of_string;

/// Walks over one input. Positions are arguments and results, so that they stay in registers.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Scanner<'a> {
    input: &'a [u8],
}

impl<'a> Scanner<'a> {
    pub(crate) fn new(input: &'a [u8]) -> Self {
        Self { input }
    }

    pub(crate) fn input(self) -> &'a [u8] {
        self.input
    }

    /// The next byte that is no white space, and where it stands.
    #[inline(always)]
    pub(crate) fn token(self, at: usize) -> Result<(u8, usize), JsonError> {
        match self.input.get(at) {
            Some(&byte) if byte > b' ' => Ok((byte, at)),
            // Some encoders put one space behind every colon and comma.
            Some(b' ') => match self.input.get(at + 1) {
                Some(&byte) if byte > b' ' => Ok((byte, at + 1)),
                _ => spaced_token(self.input, at),
            },
            _ => spaced_token(self.input, at),
        }
    }

    /// From white space or the first byte of a value to one past the value's end, inside of `open`
    /// containers.
    #[inline]
    pub(crate) fn value(self, at: usize, open: u32) -> Result<usize, JsonError> {
        self.value_noting(at, open, &mut ())
    }

    /// As [`Scanner::value`], and tells `spans` of each container.
    pub(super) fn value_noting<S: NoteSpans>(
        self,
        mut at: usize,
        open: u32,
        spans: &mut S,
    ) -> Result<usize, JsonError> {
        // Bit 0 tells the innermost open container: 1 for an object.
        let mut containers = 0_u128;
        let mut depth = open;
        'value: loop {
            let (first, here) = self.token(at)?;
            spans.begins(here);
            // Strings first, and by itself: a jump table over all kinds of values cannot be
            // foretold.
            if first == b'"' {
                at = self.string(here + 1)?;
            } else if first == b'{' || first == b'[' {
                if depth >= DEPTH_LIMIT {
                    return Err(JsonErrorKind::TooDeep.at(here));
                }
                let opening = here;
                let (next, here) = self.token(here + 1)?;
                if first == b'{' && next == b'"' {
                    (containers, depth) = (containers << 1 | 1, depth + 1);
                    spans.opened(depth, opening);
                    let (key_end, value) = self.key(here + 1)?;
                    spans.key(here + 1, key_end);
                    at = value;
                    continue 'value;
                } else if next == first + 2 {
                    // In ASCII both closing brackets are two behind the opening ones.
                    at = here + 1;
                } else if first == b'[' {
                    (containers, depth) = (containers << 1, depth + 1);
                    spans.opened(depth, opening);
                    at = here;
                    continue 'value;
                } else {
                    return Err(JsonErrorKind::Malformed.at(here));
                }
            } else if first == b'-' || first.is_ascii_digit() {
                at = number(self.input, here)?;
            } else {
                at = literal(self.input, here)?;
            }
            spans.ended(at);
            loop {
                if depth == open {
                    return Ok(at);
                }
                let (next, here) = self.token(at)?;
                at = here + 1;
                match (next, containers & 1) {
                    (b',', 0) => continue 'value,
                    (b',', _) => {
                        let key = self.opening_quote(at)?;
                        let (key_end, value) = self.key(key)?;
                        spans.key(key, key_end);
                        at = value;
                        continue 'value;
                    }
                    (b'}', 1) | (b']', 0) => {
                        spans.closed(depth, at);
                        (containers, depth) = (containers >> 1, depth - 1);
                    }
                    _ => return Err(JsonErrorKind::Malformed.at(here)),
                }
            }
        }
    }

    /// One past the quote that must come next.
    #[inline(always)]
    pub(crate) fn opening_quote(self, at: usize) -> Result<usize, JsonError> {
        match self.token(at)? {
            (b'"', here) => Ok(here + 1),
            (_, here) => Err(JsonErrorKind::Malformed.at(here)),
        }
    }

    /// From one past a key's opening quote to its closing one, and to one past the colon behind it.
    #[inline(always)]
    fn key(self, at: usize) -> Result<(usize, usize), JsonError> {
        let word = self.input.get(at..).and_then(<[u8]>::first_chunk);
        let word = word.map_or(0, |word| u64::from_le_bytes(*word));
        let end = match word & FIVE_BYTES {
            _ if word == CONTENT => at + 8,
            ROLE | TYPE | TEXT => at + 5,
            _ => self.string(at)?,
        };
        Ok((end - 1, self.colon(end)?))
    }

    /// One past the colon that must come next.
    #[inline(always)]
    pub(crate) fn colon(self, at: usize) -> Result<usize, JsonError> {
        match self.token(at)? {
            (b':', here) => Ok(here + 1),
            (_, here) => Err(JsonErrorKind::Malformed.at(here)),
        }
    }

    /// From one past a string's opening quote to one past its closing one.
    #[inline(always)]
    pub(crate) fn string(self, at: usize) -> Result<usize, JsonError> {
        end_of_string(self.input, at)
    }
}

#[inline(never)]
fn spaced_token(input: &[u8], mut at: usize) -> Result<(u8, usize), JsonError> {
    loop {
        match input.get(at) {
            Some(b' ') => at += spaces(input.get(at..).unwrap_or(&[])),
            Some(b'\n' | b'\r' | b'\t') => at += 1,
            Some(&byte) => return Ok((byte, at)),
            None => return Err(JsonErrorKind::Truncated.at(input.len())),
        }
    }
}

/// How many spaces the input, which begins with one, begins with: up to eight.
#[inline(always)]
fn spaces(input: &[u8]) -> usize {
    match input.first_chunk() {
        Some(word) => {
            (u64::from_le_bytes(*word) ^ u64::from_le_bytes([b' '; 8])).trailing_zeros() as usize
                / 8
        }
        None => 1,
    }
}

#[inline(always)]
fn number(input: &[u8], mut at: usize) -> Result<usize, JsonError> {
    if let Some(b'-') = input.get(at) {
        at += 1;
    }
    let end = digits(input, at)?;
    if input.get(at) == Some(&b'0') && end > at + 1 {
        return Err(JsonErrorKind::Malformed.at(at + 1));
    }
    match input.get(end) {
        Some(b'.' | b'e' | b'E') => fraction(input, end),
        _ => Ok(end),
    }
}

/// From one past a number's integer part to one past its end.
#[inline(never)]
fn fraction(input: &[u8], mut at: usize) -> Result<usize, JsonError> {
    if let Some(b'.') = input.get(at) {
        at = digits(input, at + 1)?;
    }
    if let Some(b'e' | b'E') = input.get(at) {
        at += 1;
        if let Some(b'+' | b'-') = input.get(at) {
            at += 1;
        }
        at = digits(input, at)?;
    }
    Ok(at)
}

/// At least one digit.
#[inline(always)]
fn digits(input: &[u8], mut at: usize) -> Result<usize, JsonError> {
    match input.get(at) {
        Some(b'0'..=b'9') => at += 1,
        Some(_) => return Err(JsonErrorKind::Malformed.at(at)),
        None => return Err(JsonErrorKind::Truncated.at(at)),
    }
    while let Some(b'0'..=b'9') = input.get(at) {
        at += 1;
    }
    Ok(at)
}

#[inline(never)]
fn literal(input: &[u8], at: usize) -> Result<usize, JsonError> {
    let rest = input.get(at..).unwrap_or(&[]);
    let word: &[u8] = match rest.first() {
        Some(b't') => b"true",
        Some(b'f') => b"false",
        Some(b'n') => b"null",
        _ => return Err(JsonErrorKind::Malformed.at(at)),
    };
    let end = at + word.iter().zip(rest).take_while(|(wanted, byte)| wanted == byte).count();
    match end {
        end if end == at + word.len() => Ok(end),
        end if end == input.len() => Err(JsonErrorKind::Truncated.at(end)),
        end => Err(JsonErrorKind::Malformed.at(end)),
    }
}

// The keys of a chat's messages and of their parts, with their closing quotes. Behind a key that is
// compared as a whole the processor goes on at once, while behind one whose end is looked for it
// waits for the position: that is an eighth of the time for short messages.
const CONTENT: u64 = u64::from_le_bytes(*b"content\"");
const ROLE: u64 = u64::from_le_bytes(*b"role\"\0\0\0");
const TEXT: u64 = u64::from_le_bytes(*b"text\"\0\0\0");
const TYPE: u64 = u64::from_le_bytes(*b"type\"\0\0\0");
const FIVE_BYTES: u64 = (1 << 40) - 1;
/// As many containers may be open at once: the bits of the stack, and one more than serde_json's
/// own limit for values that it reads.
pub(crate) const DEPTH_LIMIT: u32 = 128;
