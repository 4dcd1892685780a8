//! Where a string ends.
//!
//! Strings are most of a chat body, and they come in three kinds. Keys and roles are a few bytes
//! long: two machine words are looked at in place. Long stretches without an escape are left to
//! memchr. Text with an escape every line or so would start memchr over and over, and each escape
//! would be a branch that cannot be foretold: from its first escape on a string is taken 64 bytes at
//! a time, and as long as its escapes are of the commonest kinds, none is looked at by itself. The
//! loops over a block are plain enough for the compiler to make vector code of them.

use super::error::{JsonError, JsonErrorKind};
use memchr::memchr2;

/// From one past a string's opening quote to one past its closing one.
#[inline(always)]
pub(super) fn end_of_string(input: &[u8], mut at: usize) -> Result<usize, JsonError> {
    for _ in 0..WORDS {
        let Some(word) = input.get(at..).and_then(<[u8]>::first_chunk) else {
            break;
        };
        match marks_of_word(u64::from_le_bytes(*word)) {
            0 => at += size_of_val(word),
            marks => {
                at += marks.trailing_zeros() as usize / 8;
                break;
            }
        }
    }
    match input.get(at) {
        Some(b'"') => Ok(at + 1),
        _ => end_of_long_string(input, at),
    }
}

#[inline(never)]
fn end_of_long_string(input: &[u8], at: usize) -> Result<usize, JsonError> {
    let rest = input.get(at..).unwrap_or(&[]);
    let length = memchr2(b'"', b'\\', rest).unwrap_or(rest.len());
    let rest = match rest.get(length..) {
        Some([b'"', after @ ..]) => Ok(after),
        Some(rest) => after_escapes(rest),
        None => Err(Fault::Truncated),
    };
    match rest {
        Ok(after) => Ok(input.len() - after.len()),
        Err(Fault::Malformed { left }) => {
            Err(JsonErrorKind::Malformed.at(input.len().saturating_sub(left)))
        }
        Err(Fault::Truncated) => Err(JsonErrorKind::Truncated.at(input.len())),
    }
}

enum Fault {
    Malformed { left: usize },
    Truncated,
}

/// From anywhere in a string but behind a backslash to what follows its closing quote.
#[inline(always)]
fn after_escapes(mut rest: &[u8]) -> Result<&[u8], Fault> {
    while let Some((block, after)) = rest.split_first_chunk() {
        rest = match after_marks(rest, marks_of_block(block), after)? {
            Next::Behind(after)
            | Next::Common([b'"', after @ ..])
            | Next::CodeUnits([b'"', after @ ..]) => return Ok(after),
            Next::Common(after) => after_plain(after),
            Next::CodeUnits(after) => after,
        }
    }
    after_last_escapes(rest)
}

/// What follows the marks that have been looked at.
enum Next<'a> {
    /// It is behind the string.
    Behind(&'a [u8]),
    /// It is inside of the string, and the escapes before it were common ones.
    Common(&'a [u8]),
    /// It is inside of the string, and there was a `\uXXXX` before it: others are likely to come
    /// soon, so that it is not worth while to look for plain blocks.
    CodeUnits(&'a [u8]),
}

/// Looks at each of the marks in the block that `rest` begins with; `after` is what follows it.
#[inline(always)]
fn after_marks<'a>(rest: &'a [u8], mut marks: u64, after: &'a [u8]) -> Result<Next<'a>, Fault> {
    let mut last = 0;
    let mut code_units = false;
    while marks != 0 {
        let at = marks.trailing_zeros() as usize;
        match rest.get(at..) {
            Some([b'"', after @ ..]) => return Ok(Next::Behind(after)),
            Some(run @ [_, escape @ ..]) => {
                check_escape(escape)?;
                if let Some(b'u') = escape.first() {
                    code_units = true;
                    // Two are one character as often as not, and no reason to leave the block.
                    if is_code_unit(run, 1) && is_code_unit(run, 2) {
                        return after_code_units(run).map(Next::CodeUnits);
                    }
                }
            }
            _ => return Err(Fault::Truncated),
        }
        marks &= !(0b11 << at);
        last = at;
    }
    // The byte that the block's last one escapes is no mark of the next block.
    let after = if last == BLOCK - 1 { after.get(1..).unwrap_or(&[]) } else { after };
    Ok(if code_units { Next::CodeUnits(after) } else { Next::Common(after) })
}

/// Behind all the `\uXXXX` that `rest` begins with: some encoders write nothing else, and a block
/// would have room for ten.
#[inline(always)]
fn after_code_units(mut rest: &[u8]) -> Result<&[u8], Fault> {
    while is_code_unit(rest, 0) {
        check_escape(rest.get(1..).unwrap_or(&[]))?;
        rest = rest.get(CODE_UNIT..).unwrap_or(&[]);
    }
    Ok(rest)
}

/// Whether behind `index` times the length of a `\uXXXX` one seems to begin.
#[inline(always)]
fn is_code_unit(rest: &[u8], index: usize) -> bool {
    rest.get(index * CODE_UNIT..).is_some_and(|rest| rest.starts_with(b"\\u"))
}

/// What follows the plain blocks that `rest`, the inside of a string, begins with.
///
/// `rest` must not begin with a quote, nor behind a backslash that escapes; neither does the result.
#[inline(always)]
fn after_plain(rest: &[u8]) -> &[u8] {
    let mut length = 0;
    while let Some(block) = rest.get(length..).and_then(<[u8]>::first_chunk)
        && is_plain(block)
    {
        length += BLOCK;
    }
    // An escape whose backslash ends the last plain block is left whole.
    if rest.get(..length).is_some_and(|plain| plain.ends_with(b"\\")) {
        length -= 1;
    }
    rest.get(length..).unwrap_or(&[])
}

/// Whether a block can be skipped: a byte follows each of its backslashes that stands in one of the
/// commonest escapes, and no quote, from its second byte to the one behind it, follows anything but
/// a backslash.
///
/// That a backslash may not follow another one makes each of them the first byte of an escape. So
/// there is no need to know what precedes the block, nor to count backslashes.
#[inline(always)]
fn is_plain(block: &[u8; BLOCK + 1]) -> bool {
    let (Some(bytes), Some(next)) = (block.first_chunk::<BLOCK>(), block.last_chunk::<BLOCK>())
    else {
        return false;
    };
    let odd = bytes.iter().zip(next).fold(0, |odd, (byte, next)| {
        let slash = u8::from(*byte == b'\\');
        let quote = u8::from(*next == b'"');
        // No `\\`, as said; the others are rare, and each would cost as much as one of these.
        let common = quote | u8::from((*next == b'n') | (*next == b'r') | (*next == b't'));
        odd | (quote & !slash) | (slash & !common)
    });
    odd == 0
}

/// What [`after_escapes`] does, for less than a block.
#[cold]
fn after_last_escapes(mut rest: &[u8]) -> Result<&[u8], Fault> {
    loop {
        match rest {
            [b'"', after @ ..] => return Ok(after),
            [b'\\', escape @ ..] => {
                check_escape(escape)?;
                rest = escape.get(1..).unwrap_or(&[]);
            }
            [_, after @ ..] => rest = after,
            [] => return Err(Fault::Truncated),
        }
    }
}

/// Checks what follows a backslash.
#[inline(always)]
fn check_escape(escape: &[u8]) -> Result<(), Fault> {
    match escape {
        [byte, ..] if class(*byte) & SIMPLE != 0 => Ok(()),
        [b'u', a, b, c, d, ..] if class(*a) & class(*b) & class(*c) & class(*d) & HEX != 0 => {
            Ok(())
        }
        _ => Err(escape_fault(escape)),
    }
}

/// What is wrong with an escape, given what follows its backslash.
#[cold]
fn escape_fault(escape: &[u8]) -> Fault {
    let legal = match escape {
        [b'u', digits @ ..] => {
            1 + digits.iter().take(4).take_while(|digit| class(**digit) & HEX != 0).count()
        }
        _ => 0,
    };
    match escape.len().saturating_sub(legal) {
        0 => Fault::Truncated,
        left => Fault::Malformed { left },
    }
}

#[inline(always)]
fn class(byte: u8) -> u8 {
    CLASS.get(usize::from(byte)).copied().unwrap_or(0)
}

/// The quotes and backslashes of eight bytes, as the top bits of the bytes: the lowest one is
/// right, those above it may not be.
#[inline(always)]
fn marks_of_word(word: u64) -> u64 {
    let zeros = |word: u64| word.wrapping_sub(ONES) & !word;
    let (quotes, slashes) = (word ^ (ONES * b'"' as u64), word ^ (ONES * b'\\' as u64));
    (zeros(quotes) | zeros(slashes)) & (ONES << 7)
}

/// The quotes and backslashes of a block: bit `i` of the result stands for byte `i`.
#[inline(always)]
fn marks_of_block(block: &[u8; BLOCK]) -> u64 {
    let (rows, _) = block.as_chunks::<16>();
    let &[a, b, c, d] = rows else { return 0 };
    let hit = |byte: u8, bit: u8| u8::from((byte == b'"') | (byte == b'\\')).wrapping_neg() & bit;
    // A loop over indices: of zipped iterators or `array::from_fn` the compiler makes no vector
    // code here.
    let mut lanes = [0_u8; 16];
    for i in 0..16 {
        lanes[i] = hit(a[i], 1) | hit(b[i], 4) | hit(c[i], 16) | hit(d[i], 64);
    }
    let lanes = u128::from_le_bytes(lanes);
    // Byte `j`, bit `k` now stand for byte `8 * k + j` of the block: the truncation leaves the
    // first half of each row of 16, the shift its second half.
    let transposed = (lanes as u64) | ((lanes >> 64) as u64) << 1;
    transpose(transposed)
}

/// Mirrors the 8 by 8 bits at their diagonal, in squares of one, two and four.
#[inline(always)]
fn transpose(bits: u64) -> u64 {
    let swap = |bits: u64, by: u32, upper: u64| {
        let differ = (bits ^ (bits >> by)) & upper;
        bits ^ differ ^ (differ << by)
    };
    let bits = swap(bits, 7, 0x00AA_00AA_00AA_00AA);
    let bits = swap(bits, 14, 0x0000_CCCC_0000_CCCC);
    swap(bits, 28, 0x0000_0000_F0F0_F0F0)
}

/// The longest names of members and roles are 16 bytes long, nearly.
const WORDS: usize = 2;
const ONES: u64 = u64::MAX / 0xFF;
const BLOCK: usize = 64;
/// The length of a `\uXXXX`.
const CODE_UNIT: usize = 6;
/// What a byte may be in an escape.
const CLASS: [u8; 256] = {
    let mut classes = [0; 256];
    let mut byte = 0;
    while byte < 256 {
        // Truncation is meant: the loop ends at 256.
        classes[byte] = match byte as u8 {
            b'b' | b'f' => SIMPLE | HEX,
            b'"' | b'\\' | b'/' | b'n' | b'r' | b't' => SIMPLE,
            b'0'..=b'9' | b'a'..=b'f' | b'A'..=b'F' => HEX,
            _ => 0,
        };
        byte += 1;
    }
    classes
};
const SIMPLE: u8 = 1;
const HEX: u8 = 2;
