use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender};
use std::time::Duration;

use tokio::sync::{OwnedSemaphorePermit, oneshot};

use super::error::LedgerError;
use super::file::{Appended, Appender};
use super::ledger::Fsync;
use super::line;
use crate::digest;
use crate::part::Part;
use crate::record::{Finished, Started};

/// What the writer is told.
pub(super) enum Message {
    Started(Started, Arc<str>, Ack),
    Finished(Finished, Arc<str>),
    /// Tells when all that came before is in the file, or is not to be had there.
    Flush(oneshot::Sender<Result<(), LedgerError>>),
    /// The same, to one who does not poll.
    Stop(SyncSender<()>),
}

/// Who waits for a start to be in the file, and its place among the starts in flight.
pub(super) struct Ack {
    pub(super) written: oneshot::Sender<Result<(), LedgerError>>,
    pub(super) place: OwnedSemaphorePermit,
}

/// What handles see of the writer.
#[derive(Debug)]
pub(super) struct Shown {
    pub(super) lost: AtomicU64,
    /// An offset; [`Shown::NOTHING`] where there was nothing to repair.
    pub(super) repaired: AtomicU64,
}

impl Shown {
    pub(super) const NOTHING: u64 = u64::MAX;

    /// A torn line was closed.
    pub(super) fn repair(&self, path: &Path, offset: u64) {
        self.repaired.store(offset, Ordering::Relaxed);
        tracing::warn!(
            target: "backstop", path = %path.display(), offset,
            "the ledger's last line was torn: it is left behind, and a new one begun"
        );
    }
}

/// The thread that writes.
pub(super) struct Writer {
    pub(super) path: Arc<Path>,
    pub(super) file: Appender,
    pub(super) fsync: Fsync,
    pub(super) shown: Arc<Shown>,
    pub(super) batch: Batch,
    /// Whether the last write failed.
    pub(super) is_out: bool,
}

/// Lines that are to be written with one write.
pub(super) struct Batch {
    /// Begins with a line end, for the case that the file's last line has none.
    bytes: Vec<u8>,
    lines: Vec<Waiting>,
}

struct Waiting {
    /// Where its line ends in the bytes.
    end: usize,
    /// `None` for a finish.
    ack: Option<Ack>,
}

impl Default for Batch {
    fn default() -> Self {
        Self { bytes: vec![b'\n'], lines: Vec::new() }
    }
}

impl Writer {
    pub(super) fn run(mut self, messages: &Receiver<Message>) {
        let (mut flushes, mut stop) = (Vec::new(), None);
        loop {
            // What waits for an outage's end is tried again by itself: on an idle process no other record
            // may come.
            let mut next = match self.batch.lines.is_empty() {
                true => match messages.recv() {
                    Ok(message) => Some(message),
                    Err(_) => break,
                },
                false => match messages.recv_timeout(TRY_AGAIN) {
                    Ok(message) => Some(message),
                    Err(RecvTimeoutError::Timeout) => None,
                    Err(RecvTimeoutError::Disconnected) => break,
                },
            };
            while let Some(message) = next {
                match message {
                    Message::Started(started, name, ack) => self.start(&started, &name, ack),
                    Message::Finished(finished, name) => self.finish(&finished, &name),
                    Message::Flush(flush) => flushes.push(flush),
                    Message::Stop(done) => stop = Some(done),
                }
                let has_room =
                    self.batch.bytes.len() < MAX_BATCH && self.batch.lines.len() < MAX_LINES;
                next = if has_room { messages.try_recv().ok() } else { None };
            }
            let mut result = self.write();
            if !flushes.is_empty() {
                result = result.and_then(|()| self.file.sync());
            }
            for flush in flushes.drain(..) {
                let _ = flush.send(result.clone());
            }
        }
        let left = self.batch.lines.len();
        if left > 0 {
            self.lose(left);
            tracing::error!(
                target: "backstop", path = %self.path.display(), records = left,
                "the ledger could not be written to its end: finishes are lost"
            );
        }
        drop(stop);
    }

    fn start(&mut self, started: &Started, name: &str, ack: Ack) {
        let sha256 = match started {
            Started::Call(call) => digest::of_body(&call.body),
            Started::Attempt(_) => None,
        };
        let part = Part::of_started(started, sha256, || name.into());
        self.add(&part, Some(ack));
    }

    fn finish(&mut self, finished: &Finished, name: &str) {
        let part = Part::of_finished(finished, || name.into());
        self.add(&part, None);
    }

    fn add(&mut self, part: &Part, ack: Option<Ack>) {
        let Batch { bytes, lines } = &mut self.batch;
        match line::write(part, bytes) {
            Ok(()) => lines.push(Waiting { end: bytes.len(), ack }),
            Err(len) => {
                let error = LedgerError::TooLong { path: Arc::clone(&self.path), len };
                tracing::error!(target: "backstop", %error, "a record is lost");
                if let Some(ack) = ack {
                    ack.tell(Err(error));
                }
                self.lose(1);
            }
        }
    }

    /// Writes the batch. Finishes that cannot be written stay for the next one.
    fn write(&mut self) -> Result<(), LedgerError> {
        if self.batch.lines.is_empty() {
            return Ok(());
        }
        let Appended { end, result, repaired } = self.file.append(&self.batch.bytes, 1);
        if let Some(offset) = repaired {
            self.shown.repair(&self.path, offset);
        }
        let whole = self.batch.lines.partition_point(|line| line.end <= end);
        let has_starts = self.batch.lines[..whole].iter().any(|line| line.ack.is_some());
        let synced = match self.fsync {
            Fsync::Started if has_starts => self.file.sync(),
            _ => Ok(()),
        };
        let outcome = result.clone().and_then(|()| synced.clone());
        // Before anybody is told: who is, may look.
        let refused = match (&result, &synced) {
            (Ok(()), Ok(())) => 0,
            (_, Ok(())) => self.batch.lines[whole..].iter().filter(|l| l.ack.is_some()).count(),
            (_, Err(_)) => self.batch.lines.iter().filter(|line| line.ack.is_some()).count(),
        };
        self.lose(refused);
        self.tell_outage(&outcome);
        for line in self.batch.lines.drain(..whole) {
            if let Some(ack) = line.ack {
                ack.tell(synced.clone());
            }
        }
        match &result {
            Ok(()) => self.batch.clear(),
            Err(error) => {
                let given_up = self.batch.keep_finishes(end, error);
                self.lose(given_up);
            }
        }
        outcome
    }

    fn lose(&self, records: usize) {
        self.shown.lost.fetch_add(records as u64, Ordering::Relaxed);
    }

    fn tell_outage(&mut self, outcome: &Result<(), LedgerError>) {
        let was_out = std::mem::replace(&mut self.is_out, outcome.is_err());
        match outcome {
            Err(error) if !was_out => {
                tracing::error!(target: "backstop", %error, "the ledger does not keep records");
            }
            Ok(()) if was_out => {
                let lost = self.shown.lost.load(Ordering::Relaxed);
                let path = self.path.display();
                tracing::info!(target: "backstop", %path, lost, "the ledger keeps records again");
            }
            _ => {}
        }
    }
}

impl Batch {
    fn clear(&mut self) {
        self.bytes.truncate(1);
        // One batch that was large is no reason to keep its place.
        self.bytes.shrink_to(MAX_BATCH);
        self.lines.clear();
    }

    /// Refuses the starts whose lines are not in the file, which holds all up to `written`; keeps the
    /// finishes, as far as there is room, and says how many are given up.
    fn keep_finishes(&mut self, written: usize, error: &LedgerError) -> usize {
        let mut kept = Self::default();
        let (mut begin, mut given_up) = (written, 0);
        for Waiting { end, ack } in self.lines.drain(..) {
            let line = &self.bytes[begin..end];
            begin = end;
            match ack {
                Some(ack) => ack.tell(Err(error.clone())),
                None if kept.bytes.len() + line.len() > MAX_KEPT => given_up += 1,
                None => {
                    kept.bytes.extend_from_slice(line);
                    kept.lines.push(Waiting { end: kept.bytes.len(), ack: None });
                }
            }
        }
        *self = kept;
        given_up
    }
}

impl Ack {
    fn tell(self, result: Result<(), LedgerError>) {
        let Self { written, place } = self;
        // Who does not want to know any more has left a start without a finish.
        let _ = written.send(result);
        drop(place);
    }
}

/// A batch takes this much or little more: a fraction of a millisecond in a page cache.
const MAX_BATCH: usize = 256 * 1024;
/// As many starts as may be in flight by default.
const MAX_LINES: usize = 1024;
/// Finishes that wait for a file that can be written: some thousand.
const MAX_KEPT: usize = 1024 * 1024;
/// A disk that is full is rarely empty again sooner.
const TRY_AGAIN: Duration = Duration::from_secs(1);
