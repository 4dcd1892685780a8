//! The text of a string, given what stands between its quotes.

use memchr::memchr;
use std::borrow::Cow;
use std::cmp::Ordering;

/// The text; bytes that are not UTF-8 and halves of surrogate pairs become U+FFFD.
pub(super) fn text(raw: &[u8]) -> Cow<'_, str> {
    if memchr(b'\\', raw).is_none() {
        return String::from_utf8_lossy(raw);
    }
    let mut bytes = Vec::with_capacity(raw.len());
    for piece in Pieces(raw) {
        match piece {
            Piece::Plain(plain) => bytes.extend_from_slice(plain),
            Piece::Escaped(char) => {
                bytes.extend_from_slice(char.encode_utf8(&mut [0; 4]).as_bytes())
            }
        }
    }
    Cow::Owned(match String::from_utf8(bytes) {
        Ok(text) => text,
        Err(error) => String::from_utf8_lossy(error.as_bytes()).into_owned(),
    })
}

/// Whether the text is `wanted`; a string that is not UTF-8 is equal to nothing.
#[inline]
pub(super) fn is(raw: &[u8], wanted: &str) -> bool {
    // An escape is longer than what it stands for.
    match raw.len().cmp(&wanted.len()) {
        Ordering::Less => false,
        Ordering::Equal => raw == wanted.as_bytes() && !has_escape(raw),
        Ordering::Greater => has_escape(raw) && escaped_is(raw, wanted),
    }
}

/// For keys and words, which are a few bytes: all of them are looked at, at once.
#[inline]
pub(super) fn has_escape(raw: &[u8]) -> bool {
    raw.iter().fold(false, |escape, byte| escape | (*byte == b'\\'))
}

#[cold]
fn escaped_is(raw: &[u8], wanted: &str) -> bool {
    let mut left = wanted.as_bytes();
    for piece in Pieces(raw) {
        let mut buffer = [0; 4];
        let piece = match piece {
            Piece::Plain(plain) => plain,
            Piece::Escaped(char) => char.encode_utf8(&mut buffer).as_bytes(),
        };
        match left.strip_prefix(piece) {
            Some(rest) => left = rest,
            None => return false,
        }
    }
    left.is_empty()
}

/// A string cut at its escapes.
struct Pieces<'a>(&'a [u8]);

enum Piece<'a> {
    Plain(&'a [u8]),
    Escaped(char),
}

impl<'a> Iterator for Pieces<'a> {
    type Item = Piece<'a>;

    fn next(&mut self) -> Option<Piece<'a>> {
        let raw = self.0;
        match raw {
            [] => None,
            [b'\\', escape @ ..] => {
                let (char, rest) = unescape(escape);
                self.0 = rest;
                Some(Piece::Escaped(char))
            }
            _ => {
                let length = memchr(b'\\', raw).unwrap_or(raw.len());
                let (plain, rest) = raw.split_at_checked(length).unwrap_or((raw, &[]));
                self.0 = rest;
                Some(Piece::Plain(plain))
            }
        }
    }
}

/// What an escape stands for, given what follows its backslash, and what follows the escape.
fn unescape(escape: &[u8]) -> (char, &[u8]) {
    let Some((byte, rest)) = escape.split_first() else {
        return (char::REPLACEMENT_CHARACTER, &[]);
    };
    let char = match byte {
        b'b' => '\u{8}',
        b'f' => '\u{c}',
        b'n' => '\n',
        b'r' => '\r',
        b't' => '\t',
        b'u' => return unescape_unicode(rest),
        byte => char::from(*byte),
    };
    (char, rest)
}

fn unescape_unicode(digits: &[u8]) -> (char, &[u8]) {
    let Some((unit, rest)) = code_unit(digits) else {
        return (char::REPLACEMENT_CHARACTER, digits);
    };
    let low = |rest: &[u8]| code_unit(rest.strip_prefix(b"\\u")?).map(|(low, _)| low);
    let decoded = char::decode_utf16([unit].into_iter().chain(low(rest))).next();
    match decoded {
        // Two code units were used up if and only if the character lies beyond the first 65,536.
        Some(Ok(char)) if char.len_utf16() == 2 => (char, rest.get(LOW_SURROGATE..).unwrap_or(&[])),
        Some(Ok(char)) => (char, rest),
        _ => (char::REPLACEMENT_CHARACTER, rest),
    }
}

/// Four hex digits, and what follows them.
fn code_unit(digits: &[u8]) -> Option<(u16, &[u8])> {
    let (digits, rest) = digits.split_first_chunk::<4>()?;
    let mut unit = 0;
    for digit in digits {
        unit = unit << 4 | u16::try_from(char::from(*digit).to_digit(16)?).ok()?;
    }
    Some((unit, rest))
}

/// The length of an escaped code unit: backslash, `u`, four digits.
const LOW_SURROGATE: usize = 6;
