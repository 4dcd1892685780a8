//! One request's line in a provider's log, from its head to its end.

use std::sync::Arc;

use bytes::{Bytes, BytesMut};
use tokio::time::Instant;

use super::{
    answer::Answer,
    log::{ExchangeEnd, SeenRequest, State},
    provider::Shared,
    wire::{BodyDecoder, Head, Malformed},
};

/// An exchange under way. Dropped before its end (the provider stops), it writes that down.
#[derive(Debug)]
pub(super) struct Exchange {
    pub(super) record: Record,
    pub(super) body: RequestBody,
}

/// Writes what happens to the answer.
#[derive(Debug)]
pub(super) struct Record {
    shared: Arc<Shared>,
    index: usize,
}

/// Reads the request body, and writes it down.
#[derive(Debug)]
pub(super) struct RequestBody {
    shared: Arc<Shared>,
    index: usize,
    decoder: BodyDecoder,
    kept: BytesMut,
    logged: bool,
    /// Its framing does not parse: nothing after that can be told apart.
    malformed: bool,
}

// === impl Exchange ===

impl Exchange {
    /// Opens the line, and takes the answer where it does not depend on the body.
    pub(super) fn open(
        shared: &Arc<Shared>,
        connection: usize,
        head: Head,
    ) -> (Self, Option<Answer>) {
        let Head { method, target, headers, body: decoder, .. } = head;
        let (mut index, mut answer) = (0, None);
        // The answer is taken while the log is held, so that the nth line and the nth answer belong together.
        shared.state.send_modify(|state| {
            index = state.requests.len();
            let seen = SeenRequest {
                index,
                connection,
                method,
                target,
                headers,
                body: Bytes::new(),
                body_len: 0,
                body_complete: decoder.is_done(),
                arrived: Instant::now(),
                first_byte: None,
                written: 0,
                end: None,
            };
            if !shared.asks() {
                answer = Some(shared.scripted(&seen, &mut state.exhausted));
            }
            state.requests.push(seen);
            state.active += 1;
        });
        let body = RequestBody {
            shared: Arc::clone(shared),
            index,
            logged: decoder.is_done(),
            decoder,
            kept: BytesMut::new(),
            malformed: false,
        };
        (Self { record: Record { shared: Arc::clone(shared), index }, body }, answer)
    }
}

impl Drop for Exchange {
    fn drop(&mut self) {
        self.body.log();
        self.record.end(ExchangeEnd::Stopped);
        self.record.shared.state.send_modify(|state| state.active -= 1);
    }
}

// === impl Record ===

impl Record {
    /// The answer, now that the whole request is known.
    pub(super) fn choose(&self) -> Answer {
        let Self { shared, index } = self;
        let seen = shared.state.borrow().requests[*index].clone();
        // The function runs without the log being held: it is the user's, and may look at the log itself.
        if let Some(answer) = shared.ask(&seen) {
            return answer;
        }
        let mut answer = None;
        shared
            .state
            .send_modify(|state| answer = Some(shared.scripted(&seen, &mut state.exhausted)));
        answer.unwrap_or_else(|| Answer::exhausted(*index))
    }

    /// `len` bytes of the answer were written.
    pub(super) fn wrote(&self, len: usize) {
        self.update(|seen| {
            seen.first_byte.get_or_insert_with(Instant::now);
            seen.written += len as u64;
        });
    }

    /// Writes the end down, unless one stands already.
    pub(super) fn end(&self, end: impl FnOnce(Instant) -> ExchangeEnd) {
        self.update(|seen| {
            if seen.end.is_none() {
                seen.end = Some(end(Instant::now()));
            }
        });
    }

    fn update(&self, change: impl FnOnce(&mut SeenRequest)) {
        self.shared.state.send_modify(|state: &mut State| change(&mut state.requests[self.index]));
    }
}

// === impl RequestBody ===

impl RequestBody {
    pub(super) fn is_done(&self) -> bool {
        self.decoder.is_done()
    }

    pub(super) fn is_malformed(&self) -> bool {
        self.malformed
    }

    /// Takes what of the body is in `buf`.
    pub(super) fn take(&mut self, buf: &mut BytesMut) -> Result<(), Malformed> {
        if self.malformed {
            return Err(Malformed);
        }
        if self.logged || buf.is_empty() {
            return Ok(());
        }
        let Self { shared, decoder, kept, .. } = self;
        let mut arrived = 0;
        let room = shared.max_body;
        let result = decoder.decode(buf, |data| {
            arrived += data.len() as u64;
            let keep = data.len().min(room.saturating_sub(kept.len()));
            kept.extend_from_slice(&data[..keep]);
        });
        shared.state.send_modify(|state| state.requests[self.index].body_len += arrived);
        self.malformed = result.is_err();
        if self.decoder.is_done() {
            self.log();
        }
        result
    }

    /// Writes down what has arrived, once.
    fn log(&mut self) {
        if self.logged {
            return;
        }
        self.logged = true;
        let Self { shared, index, decoder, kept, .. } = self;
        shared.state.send_modify(|state| {
            let seen = &mut state.requests[*index];
            seen.body = kept.split().freeze();
            seen.body_complete = decoder.is_done();
        });
    }
}
