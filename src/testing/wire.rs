//! HTTP/1.1 requests from bytes, without I/O.

use std::mem;

use bytes::{Buf, Bytes, BytesMut};

/// A request's head, as sent.
#[derive(Debug)]
pub(super) struct Head {
    pub(super) method: String,
    pub(super) target: String,
    pub(super) headers: Vec<(String, Bytes)>,
    /// Whether the client waits for a `100` before it sends the body.
    pub(super) expects_continue: bool,
    /// Whether the client will not use the connection again.
    pub(super) closes: bool,
    pub(super) body: BodyDecoder,
}

/// What does not parse. The connection cannot be used any further.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Malformed;

/// Takes a request's body out of its framing, piece by piece.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum BodyDecoder {
    /// The end has been seen, or there is no body.
    Done,
    /// So many bytes are to come.
    Length(u64),
    /// Before a chunk's size line.
    ChunkSize,
    /// Inside a chunk, so many bytes from its end.
    ChunkData(u64),
    /// Before the line break that follows a chunk's data.
    ChunkEnd,
    /// After the last chunk, before the blank line.
    Trailers,
}

// === impl Head ===

impl Head {
    /// Takes a head off the front of `buf`; `None` when it is not all there yet.
    pub(super) fn take(buf: &mut BytesMut) -> Result<Option<Self>, Malformed> {
        // Some clients send a stray line break between requests; it is no part of the next one.
        while buf.starts_with(b"\r\n") {
            buf.advance(2);
        }
        let Some(end) = find(buf, b"\r\n\r\n") else {
            return Ok(None);
        };
        let head = buf.split_to(end).freeze();
        buf.advance(4);
        Self::parse(&head).map(Some)
    }

    fn parse(head: &Bytes) -> Result<Self, Malformed> {
        let mut lines = split_lines(head);
        let line = lines.next().ok_or(Malformed)?;
        let line = std::str::from_utf8(&line).map_err(|_| Malformed)?.to_owned();
        let mut words = line.split(' ');
        let (Some(method), Some(target), Some(version), None) =
            (words.next(), words.next(), words.next(), words.next())
        else {
            return Err(Malformed);
        };
        let http10 = match version {
            "HTTP/1.1" => false,
            "HTTP/1.0" => true,
            _ => return Err(Malformed),
        };
        let headers = lines.map(|line| header(&line)).collect::<Result<Vec<_>, _>>()?;
        let has = |wanted: &str, token: &str| {
            headers.iter().any(|(name, value)| {
                name.eq_ignore_ascii_case(wanted)
                    && value
                        .split(|byte| *byte == b',')
                        .any(|part| part.trim_ascii().eq_ignore_ascii_case(token.as_bytes()))
            })
        };
        let body = if has("transfer-encoding", "chunked") {
            BodyDecoder::ChunkSize
        } else {
            BodyDecoder::of_length(content_length(&headers)?)
        };
        Ok(Self {
            expects_continue: has("expect", "100-continue"),
            closes: has("connection", "close") || (http10 && !has("connection", "keep-alive")),
            method: method.to_owned(),
            target: target.to_owned(),
            headers,
            body,
        })
    }
}

fn header(line: &Bytes) -> Result<(String, Bytes), Malformed> {
    let colon = line.iter().position(|byte| *byte == b':').ok_or(Malformed)?;
    let name = std::str::from_utf8(&line[..colon]).map_err(|_| Malformed)?;
    if name.is_empty() || name.contains([' ', '\t']) {
        return Err(Malformed);
    }
    Ok((name.to_owned(), line.slice_ref(line[colon + 1..].trim_ascii())))
}

fn content_length(headers: &[(String, Bytes)]) -> Result<u64, Malformed> {
    let Some((_, value)) =
        headers.iter().find(|(name, _)| name.eq_ignore_ascii_case("content-length"))
    else {
        return Ok(0);
    };
    number(value, 10)
}

// === impl BodyDecoder ===

impl BodyDecoder {
    pub(super) fn is_done(&self) -> bool {
        *self == Self::Done
    }

    /// Takes what of the body is in `buf`, and hands its data to `data`. More is needed unless it is done afterwards.
    pub(super) fn decode(
        &mut self,
        buf: &mut BytesMut,
        mut data: impl FnMut(Bytes),
    ) -> Result<(), Malformed> {
        loop {
            match self {
                Self::Done => return Ok(()),
                Self::Length(left) | Self::ChunkData(left) => {
                    if buf.is_empty() {
                        return Ok(());
                    }
                    let len = usize::try_from(*left).unwrap_or(usize::MAX).min(buf.len());
                    data(buf.split_to(len).freeze());
                    *left -= len as u64;
                    if *left == 0 {
                        *self =
                            if let Self::Length(_) = self { Self::Done } else { Self::ChunkEnd };
                    }
                }
                Self::ChunkSize => {
                    let Some(line) = take_line(buf)? else {
                        return Ok(());
                    };
                    // Extensions after a semicolon say nothing to us.
                    let size = line.split(|byte| *byte == b';').next().unwrap_or_default();
                    *self = match number(size.trim_ascii(), 16)? {
                        0 => Self::Trailers,
                        size => Self::ChunkData(size),
                    };
                }
                Self::ChunkEnd => {
                    let Some(line) = take_line(buf)? else {
                        return Ok(());
                    };
                    if !line.is_empty() {
                        return Err(Malformed);
                    }
                    *self = Self::ChunkSize;
                }
                Self::Trailers => {
                    let Some(line) = take_line(buf)? else {
                        return Ok(());
                    };
                    if line.is_empty() {
                        *self = Self::Done;
                    }
                }
            }
        }
    }

    fn of_length(length: u64) -> Self {
        if length == 0 { Self::Done } else { Self::Length(length) }
    }
}

fn number(digits: &[u8], radix: u32) -> Result<u64, Malformed> {
    let digits = std::str::from_utf8(digits).map_err(|_| Malformed)?;
    if digits.is_empty() || !digits.bytes().all(|byte| byte.is_ascii_hexdigit()) {
        return Err(Malformed);
    }
    u64::from_str_radix(digits, radix).map_err(|_| Malformed)
}

/// The next line of a chunked body's framing, without its line break.
fn take_line(buf: &mut BytesMut) -> Result<Option<Bytes>, Malformed> {
    let Some(end) = find(buf, b"\r\n") else {
        return if buf.len() > MAX_FRAMING_LINE { Err(Malformed) } else { Ok(None) };
    };
    let line = buf.split_to(end).freeze();
    buf.advance(2);
    Ok(Some(line))
}

fn split_lines(head: &Bytes) -> impl Iterator<Item = Bytes> {
    let mut rest = Some(head.clone());
    std::iter::from_fn(move || {
        let whole = mem::take(&mut rest)?;
        let Some(end) = find(&whole, b"\r\n") else {
            return Some(whole);
        };
        rest = Some(whole.slice(end + 2..));
        Some(whole.slice(..end))
    })
}

fn find(haystack: &[u8], needle: &[u8]) -> Option<usize> {
    haystack.windows(needle.len()).position(|window| window == needle)
}

/// A chunk's size line and a trailer are short; a longer line is something else.
const MAX_FRAMING_LINE: usize = 16 * 1024;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_head_is_taken_only_when_it_is_all_there() {
        let whole = b"POST /v1/x?y=1 HTTP/1.1\r\nHost: a\r\nX-Odd:  two words \r\nContent-Length: 3\r\n\r\nabc";
        for cut in 0..whole.len() - 3 {
            let mut buf = BytesMut::from(&whole[..cut]);
            assert!(Head::take(&mut buf).unwrap().is_none(), "cut at {cut}");
        }
        let mut buf = BytesMut::from(&whole[..]);
        let head = Head::take(&mut buf).unwrap().unwrap();
        assert_eq!((head.method.as_str(), head.target.as_str()), ("POST", "/v1/x?y=1"));
        assert_eq!(head.headers[1], ("X-Odd".to_owned(), Bytes::from("two words")));
        assert_eq!(head.body, BodyDecoder::Length(3));
        assert_eq!(&buf[..], b"abc");
    }

    #[test]
    fn a_chunked_body_decodes_alike_wherever_it_is_cut() {
        let whole = b"5;ext=1\r\nhello\r\n1\r\n \r\nA\r\n0123456789\r\n0\r\ntrailer: x\r\n\r\nNEXT";
        for cut in 0..whole.len() {
            let (mut decoder, mut out) = (BodyDecoder::ChunkSize, Vec::new());
            let mut buf = BytesMut::from(&whole[..cut]);
            decoder.decode(&mut buf, |data| out.extend_from_slice(&data)).unwrap();
            buf.extend_from_slice(&whole[cut..]);
            decoder.decode(&mut buf, |data| out.extend_from_slice(&data)).unwrap();
            assert!(decoder.is_done());
            assert_eq!(out, b"hello 0123456789");
            assert_eq!(&buf[..], b"NEXT");
        }
    }

    #[test]
    fn garbage_is_malformed() {
        for garbage in
            ["PRI * HTTP/2.0\r\n\r\n", "hello\r\n\r\n", "GET / HTTP/1.1\r\nno colon\r\n\r\n"]
        {
            assert_eq!(Head::take(&mut BytesMut::from(garbage)).unwrap_err(), Malformed);
        }
        let size = &mut BytesMut::from("xyz\r\n");
        assert_eq!(BodyDecoder::ChunkSize.decode(size, |_| ()), Err(Malformed));
    }
}
