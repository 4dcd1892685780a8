//! An answer as bytes on a socket.

use std::time::Duration;

use bytes::{BufMut, Bytes, BytesMut};
use http::StatusCode;

use super::{Act, Answer, Ending, Framing, Head};

/// One thing to do with the socket: what an answer comes down to.
#[derive(Debug)]
pub(in crate::testing) enum Op {
    Write(Bytes),
    Trickle(Bytes, Duration),
    Pause(Duration),
    End(Ending),
}

impl Answer {
    /// What to do with the socket, in order. A head travels with the write that follows it at once.
    pub(in crate::testing) fn ops(&self) -> Vec<Op> {
        let mut ops = Vec::with_capacity(self.acts.len() + 3);
        ops.extend(self.after.map(Op::Pause));
        for status in &self.interim {
            ops.push(Op::Write(format!("HTTP/1.1 {status} {}\r\n\r\n", reason(*status)).into()));
        }
        let mut head = self.head.as_ref().map(|head| self.encode_head(head)).unwrap_or_default();
        if let Some(every) = self.trickle_head {
            ops.push(Op::Trickle(head.split().freeze(), every));
        }
        for act in &self.acts {
            match act {
                Act::Write { bytes, .. } => {
                    let bytes = self.frame(bytes);
                    if head.is_empty() {
                        ops.push(Op::Write(bytes));
                    } else {
                        head.extend_from_slice(&bytes);
                        ops.push(Op::Write(head.split().freeze()));
                    }
                    continue;
                }
                Act::Trickle { .. } | Act::Pause(_) | Act::End(_) if !head.is_empty() => {
                    ops.push(Op::Write(head.split().freeze()));
                }
                Act::Trickle { .. } | Act::Pause(_) | Act::End(_) => {}
            }
            match act {
                Act::Write { .. } => {}
                Act::Trickle { bytes, every } => ops.push(Op::Trickle(self.frame(bytes), *every)),
                Act::Pause(duration) => ops.push(Op::Pause(*duration)),
                Act::End(ending) => {
                    ops.push(Op::End(*ending));
                    return ops;
                }
            }
        }
        if let (Some(_), Framing::Chunked { last: true }) = (&self.head, self.framing) {
            head.extend_from_slice(b"0\r\n\r\n");
        }
        if !head.is_empty() {
            ops.push(Op::Write(head.freeze()));
        }
        ops
    }

    fn encode_head(&self, head: &Head) -> BytesMut {
        let Head { version, status, headers } = head;
        let mut out =
            BytesMut::from(format!("{version} {status} {}\r\n", reason(*status)).as_str());
        for (name, value) in headers {
            out.put_slice(name.as_bytes());
            out.put_slice(b": ");
            out.put_slice(value);
            out.put_slice(b"\r\n");
        }
        let given =
            |wanted: &str| headers.iter().any(|(name, _)| name.eq_ignore_ascii_case(wanted));
        match self.framing {
            Framing::Length(_) if given("content-length") => {}
            // These have no body, and no header that speaks of one.
            Framing::Length(None) if matches!(status, 100..=199 | 204 | 304) => {}
            Framing::Length(length) => {
                let length = length.unwrap_or_else(|| self.body_len());
                out.put_slice(format!("content-length: {length}\r\n").as_bytes());
            }
            Framing::Chunked { .. } if given("transfer-encoding") => {}
            Framing::Chunked { .. } => out.put_slice(b"transfer-encoding: chunked\r\n"),
            Framing::UntilClose if given("connection") => {}
            Framing::UntilClose => out.put_slice(b"connection: close\r\n"),
        }
        out.put_slice(b"\r\n");
        out
    }

    fn frame(&self, bytes: &Bytes) -> Bytes {
        match (&self.head, self.framing) {
            (Some(_), Framing::Chunked { .. }) if !bytes.is_empty() => {
                let mut out = BytesMut::from(format!("{:x}\r\n", bytes.len()).as_str());
                out.put_slice(bytes);
                out.put_slice(b"\r\n");
                out.freeze()
            }
            _ => bytes.clone(),
        }
    }
}

fn reason(status: u16) -> &'static str {
    StatusCode::from_u16(status)
        .ok()
        .and_then(|status| status.canonical_reason())
        .unwrap_or_default()
}
