use std::fmt;
use std::future::Future;
use std::hash::{BuildHasher, RandomState};
use std::path::Path;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{Sender, channel, sync_channel};
use std::task::{Context, Poll, ready};
use std::thread::ThreadId;
use std::time::Duration;

use tokio::sync::{AcquireError, OwnedSemaphorePermit, Semaphore, oneshot};

use super::error::LedgerError;
use super::file::Appender;
use super::writer::{Ack, Batch, Message, Shown, Writer};
use crate::ledger::{Ledger, Slot};
use crate::record::{Finished, Started};

/// Appends records to a file, as lines of JSON.
///
/// A thread of its own makes the lines and writes them, all that have come meanwhile with one write, so that
/// other processes may append to the same file. A start is kept once its line is written: it survives the
/// process. With [`Fsync::Started`] it survives the machine, too.
///
/// A last line that a crash has torn is left as it is, and the next one begun on a line of its own. A file that
/// was moved away is begun anew. While the file cannot be written, starts fail with a [`LedgerError`], finishes
/// wait, up to 1 MiB of them, and each record tries again.
///
/// Cloning shares it. When the last handle goes, slots included, what is under way is written: the drop waits
/// for that, at most 5 s.
#[derive(Clone)]
pub struct JsonlLedger {
    shared: Arc<Shared>,
}

/// When the file is synced, so that a record survives the machine and not only the process.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Fsync {
    /// Never, but at [`JsonlLedger::close`].
    #[default]
    Never,
    /// Before a start counts as kept: one sync for all that wait.
    Started,
}

/// Settings of a [`JsonlLedger`].
#[derive(Clone, Debug)]
#[must_use]
pub struct JsonlBuilder {
    fsync: Fsync,
    in_flight: usize,
}

impl Default for JsonlBuilder {
    fn default() -> Self {
        Self { fsync: Fsync::default(), in_flight: IN_FLIGHT }
    }
}

impl JsonlBuilder {
    /// When the file is synced.
    pub const fn fsync(mut self, fsync: Fsync) -> Self {
        self.fsync = fsync;
        self
    }

    /// How many starts may be on their way to the file, at least 1; later ones wait. Default 1024.
    pub fn in_flight(mut self, starts: usize) -> Self {
        self.in_flight = starts.clamp(1, Semaphore::MAX_PERMITS);
        self
    }

    /// Opens the file at `path`, and begins it where there is none. It is a small read and write; the
    /// thread begins here.
    ///
    /// # Errors
    /// [`LedgerError::Open`] where it cannot be read and written.
    pub fn open(self, path: impl AsRef<Path>) -> Result<JsonlLedger, LedgerError> {
        let Self { fsync, in_flight } = self;
        let path: Arc<Path> = path.as_ref().into();
        let file = Appender::open(Arc::clone(&path), fsync == Fsync::Started)?;
        let shown =
            Arc::new(Shown { lost: AtomicU64::new(0), repaired: AtomicU64::new(Shown::NOTHING) });
        // Where it cannot be looked at, the first record says why.
        if let Ok(Some(offset)) = file.torn() {
            shown.repair(&path, offset);
            file.close_torn();
        }
        let (sender, messages) = channel();
        let (batch, is_out) = (Batch::default(), false);
        let (file_path, writer_shown) = (Arc::clone(&path), Arc::clone(&shown));
        let writer = Writer { path: file_path, file, fsync, shown: writer_shown, batch, is_out };
        let thread = std::thread::Builder::new().name("backstop-ledger".into());
        let thread = thread.spawn(move || writer.run(&messages)).map_err(|cause| {
            LedgerError::Open { path: Arc::clone(&path), cause: Arc::new(cause) }
        })?;
        let shared = Shared {
            path,
            sender: Some(sender),
            writer: thread.thread().id(),
            starts: Arc::new(Semaphore::new(in_flight)),
            shown,
            is_closed: AtomicBool::new(false),
            // Other processes name their attempts, too.
            family: RandomState::new().hash_one(std::process::id()),
            alone: AtomicU64::new(0),
            no_name: "".into(),
        };
        Ok(JsonlLedger { shared: Arc::new(shared) })
    }
}

impl JsonlLedger {
    /// The ledger in the file at `path`, with the default settings.
    ///
    /// # Errors
    /// [`LedgerError::Open`] where it cannot be read and written.
    pub fn open(path: impl AsRef<Path>) -> Result<Self, LedgerError> {
        Self::builder().open(path)
    }

    /// Settings to change.
    pub fn builder() -> JsonlBuilder {
        JsonlBuilder::default()
    }

    /// Where the file is.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.shared.path
    }

    /// How many records are not in the file: starts that were refused, and finishes that were given up.
    #[must_use]
    pub fn lost(&self) -> u64 {
        self.shared.shown.lost.load(Ordering::Relaxed)
    }

    /// Where a torn line was last found and left behind: at opening the offset at which it begins, later
    /// the one at which it ends.
    #[must_use]
    pub fn repaired(&self) -> Option<u64> {
        let offset = self.shared.shown.repaired.load(Ordering::Relaxed);
        Some(offset).filter(|offset| *offset != Shown::NOTHING)
    }

    /// Takes no more starts, and is ready once all that came before is in the file and synced. Finishes of
    /// calls that are still open are kept all the same.
    ///
    /// # Errors
    /// [`LedgerError::Write`] or [`LedgerError::Open`] where something of it could not be written.
    pub async fn close(&self) -> Result<(), LedgerError> {
        self.shared.is_closed.store(true, Ordering::Release);
        let (flush, flushed) = oneshot::channel();
        self.shared.send(Message::Flush(flush))?;
        flushed.await.unwrap_or_else(|_| Err(self.shared.closed()))
    }
}

impl fmt::Debug for JsonlLedger {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut out = f.debug_struct("JsonlLedger");
        out.field("path", &self.path()).field("lost", &self.lost()).finish_non_exhaustive()
    }
}

impl Ledger for JsonlLedger {
    type Slot = JsonlSlot;
    type Error = LedgerError;
    type Starting = JsonlStarting;

    fn started(&self, started: Started) -> JsonlStarting {
        let state = if self.shared.is_closed.load(Ordering::Acquire) {
            Starting::Over(Some(self.shared.closed()))
        } else {
            match Arc::clone(&self.shared.starts).try_acquire_owned() {
                Ok(place) => Starting::send(Arc::clone(&self.shared), started, place),
                Err(_) => Starting::Queued {
                    place: Box::pin(Arc::clone(&self.shared.starts).acquire_owned()),
                    shared: Arc::clone(&self.shared),
                    started: Some(started),
                },
            }
        };
        JsonlStarting { state }
    }
}

/// The start of a record on its way to the file. Dropping it once it is there leaves the start behind.
#[must_use]
pub struct JsonlStarting {
    state: Starting,
}

type Place = dyn Future<Output = Result<OwnedSemaphorePermit, AcquireError>> + Send + Sync;

enum Starting {
    /// Too many are in flight.
    Queued { place: Pin<Box<Place>>, shared: Arc<Shared>, started: Option<Started> },
    /// The writer has it.
    Sent { written: oneshot::Receiver<Result<(), LedgerError>>, slot: Option<JsonlSlot> },
    /// Nothing more comes, but for this.
    Over(Option<LedgerError>),
}

impl Starting {
    fn send(shared: Arc<Shared>, started: Started, place: OwnedSemaphorePermit) -> Self {
        let (written, waiting) = oneshot::channel();
        let name = shared.name(&started);
        let message = Message::Started(started, Arc::clone(&name), Ack { written, place });
        match shared.send(message) {
            Ok(()) => Self::Sent { written: waiting, slot: Some(JsonlSlot { shared, name }) },
            Err(error) => Self::Over(Some(error)),
        }
    }
}

impl Future for JsonlStarting {
    type Output = Result<JsonlSlot, LedgerError>;

    /// # Panics
    /// When it is polled after it was ready.
    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        loop {
            let next = match &mut self.state {
                Starting::Queued { place, shared, started } => {
                    let place = ready!(place.as_mut().poll(cx));
                    match (place, started.take()) {
                        (Ok(place), Some(started)) => {
                            Starting::send(Arc::clone(shared), started, place)
                        }
                        _ => Starting::Over(Some(shared.closed())),
                    }
                }
                Starting::Sent { written, slot } => {
                    let written = ready!(Pin::new(written).poll(cx));
                    let slot = slot.take();
                    let result = match (written, slot) {
                        (Ok(Ok(())), Some(slot)) => Ok(slot),
                        (Ok(Err(error)), _) => Err(error),
                        (Err(_), Some(slot)) => Err(slot.shared.closed()),
                        (_, None) => unreachable!("a start that was kept is polled again"),
                    };
                    self.state = Starting::Over(None);
                    return Poll::Ready(result);
                }
                Starting::Over(error) => match error.take() {
                    Some(error) => return Poll::Ready(Err(error)),
                    None => panic!("a start is polled after it was ready"),
                },
            };
            self.state = next;
        }
    }
}

impl fmt::Debug for JsonlStarting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("JsonlStarting").finish_non_exhaustive()
    }
}

/// The place of a record in a [`JsonlLedger`].
pub struct JsonlSlot {
    shared: Arc<Shared>,
    name: Arc<str>,
}

impl Slot for JsonlSlot {
    fn finish(self, finished: Finished) {
        let Self { shared, name } = self;
        if let Err(error) = shared.send(Message::Finished(finished, name)) {
            shared.shown.lost.fetch_add(1, Ordering::Relaxed);
            tracing::error!(target: "backstop", %error, "the finish of a record is lost");
        }
    }
}

impl fmt::Debug for JsonlSlot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("JsonlSlot").field("path", &self.shared.path).finish_non_exhaustive()
    }
}

struct Shared {
    path: Arc<Path>,
    /// `None` in the drop only. Its messages are bounded by the starts in flight and the slots.
    sender: Option<Sender<Message>>,
    writer: ThreadId,
    starts: Arc<Semaphore>,
    shown: Arc<Shown>,
    is_closed: AtomicBool,
    family: u64,
    alone: AtomicU64,
    no_name: Arc<str>,
}

impl Shared {
    fn send(&self, message: Message) -> Result<(), LedgerError> {
        let sent = self.sender.as_ref().and_then(|sender| sender.send(message).ok());
        sent.ok_or_else(|| self.closed())
    }

    fn closed(&self) -> LedgerError {
        LedgerError::Closed { path: Arc::clone(&self.path) }
    }

    /// What an attempt that belongs to no call is known by.
    fn name(&self, started: &Started) -> Arc<str> {
        match started {
            Started::Attempt(attempt) if attempt.call.is_none() => {
                let number = self.alone.fetch_add(1, Ordering::Relaxed);
                format!("{:016x}-{number}", self.family).into()
            }
            _ => Arc::clone(&self.no_name),
        }
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        let (done, finished) = sync_channel(0);
        let is_told = self.send(Message::Stop(done)).is_ok();
        // The writer ends when it has read what is there.
        self.sender = None;
        // The last handle may be in a task that the writer itself has just woken in vain.
        if is_told && std::thread::current().id() != self.writer {
            let _ = finished.recv_timeout(FLUSH);
        }
    }
}

/// As many lines as one batch has.
const IN_FLIGHT: usize = 1024;
/// A disk that takes longer is out of order, and the process is to end all the same.
const FLUSH: Duration = Duration::from_secs(5);
