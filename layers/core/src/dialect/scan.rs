//! Finds the end of a JSON object or list in bytes that come in pieces, without reading it.

use memchr::memchr2;

/// Counts brackets, passing over strings. Each byte is looked at once.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Scan {
    depth: u32,
    in_string: bool,
    escaped: bool,
}

impl Scan {
    /// Goes on through `bytes`: how many of them belong to the value, if it ends in them.
    ///
    /// The first byte of all must be the value's opening bracket. What is no JSON gets some end or
    /// none; whoever reads the value will see.
    pub(super) fn feed(&mut self, bytes: &[u8]) -> Option<usize> {
        let mut at = 0;
        while let Some(&byte) = bytes.get(at) {
            if self.escaped {
                self.escaped = false;
                at += 1;
            } else if self.in_string {
                at += memchr2(b'"', b'\\', &bytes[at..])?;
                self.escaped = bytes[at] == b'\\';
                self.in_string = self.escaped;
                at += 1;
            } else {
                at += 1;
                match byte {
                    b'"' => self.in_string = true,
                    b'{' | b'[' => self.depth = self.depth.saturating_add(1),
                    b'}' | b']' => {
                        self.depth = self.depth.saturating_sub(1);
                        if self.depth == 0 {
                            return Some(at);
                        }
                    }
                    _ => {}
                }
            }
        }
        None
    }
}

/// The text of a top-level key of an object of which only the beginning is there.
///
/// For events that are too large to be kept: their `type` usually stands in front. Keys and texts
/// with escapes are not understood, and none of those that matter has any.
pub(super) fn text_in_prefix<'a>(prefix: &'a [u8], key: &str) -> Option<&'a str> {
    let mut depth = 0u32;
    let mut at = 0;
    let mut expects_value_of_key = false;
    while let Some(&byte) = prefix.get(at) {
        at += 1;
        match byte {
            b'{' | b'[' => depth = depth.saturating_add(1),
            b'}' | b']' => depth = depth.saturating_sub(1),
            b'"' => {
                let start = at;
                loop {
                    at += memchr2(b'"', b'\\', prefix.get(at..)?)?;
                    if prefix[at] == b'"' {
                        break;
                    }
                    at += 2;
                }
                let text = &prefix[start..at];
                at += 1;
                if expects_value_of_key && depth == 1 {
                    return std::str::from_utf8(text).ok();
                }
                let rest = prefix.get(at..)?.trim_ascii_start();
                expects_value_of_key =
                    depth == 1 && text == key.as_bytes() && rest.first() == Some(&b':');
            }
            b':' | b' ' | b'\t' | b'\r' | b'\n' => {}
            _ => expects_value_of_key = false,
        }
    }
    None
}
