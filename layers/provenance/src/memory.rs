use std::collections::VecDeque;
use std::convert::Infallible;
use std::fmt;
use std::future::{Ready, ready};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, MutexGuard, PoisonError};

use backstop_core::RequestBody;

use crate::call_record::{AttemptRecord, CallRecord};
use crate::digest;
use crate::journal::Journal;
use crate::ledger::{Ledger, Slot};
use crate::part::Part;
use crate::record::{Finished, Started};

#[expect(
    clippy::disallowed_types,
    reason = "held for one push, and by a reader for a few records at a time; never over an await"
)]
type Lock<T> = std::sync::Mutex<T>;

/// Keeps the newest calls in memory: for tests, and for a process that looks at its own calls.
///
/// Cloning shares it. A start is kept at once and cannot fail. On a call's path parts are only queued; they are
/// joined when they are read.
///
/// With the feature `digest` a body is hashed when its record is read. Until then it stays, but no more than
/// 16 MiB of them do, apart from those of calls in flight, which are there anyway: past that, who finishes a
/// call hashes the oldest ones.
#[derive(Clone)]
pub struct MemoryLedger {
    shared: Arc<Shared>,
}

struct Shared {
    log: Lock<Log>,
    capacity: usize,
    dropped: AtomicU64,
}

/// The parts as they came.
struct Log {
    entries: VecDeque<Entry>,
    /// The number of the first entry: they are counted from the beginning of time.
    first: u64,
    /// How many of the entries are starts of calls.
    calls: usize,
    /// Those that may have a body, from this number on.
    unhashed: u64,
    /// How many bytes these bodies have.
    bytes: u64,
}

#[derive(Clone)]
enum Entry {
    Started(Started, Hash),
    /// With the number of its start.
    Finished(Finished, u64),
}

/// What is known of the body of a start.
#[derive(Clone)]
enum Hash {
    Done(Option<Box<str>>),
    /// The start has it.
    Open,
}

impl MemoryLedger {
    /// An empty ledger for the newest 10 000 calls.
    #[must_use]
    pub fn new() -> Self {
        Self::with_capacity(CAPACITY)
    }

    /// An empty ledger for the newest `calls` calls, at least 1.
    #[must_use]
    pub fn with_capacity(calls: usize) -> Self {
        let (entries, first, calls_kept) = (VecDeque::new(), 0, 0);
        let log = Log { entries, first, calls: calls_kept, unhashed: 0, bytes: 0 };
        let shared =
            Shared { log: Lock::new(log), capacity: calls.max(1), dropped: AtomicU64::new(0) };
        Self { shared: Arc::new(shared) }
    }

    /// The calls that are kept, in the order in which they came in.
    ///
    /// It joins them anew each time, which takes some microseconds a call.
    #[must_use]
    pub fn calls(&self) -> Vec<CallRecord> {
        self.shared.join().0
    }

    /// The attempts that belong to no call, because there was no ProvenanceLayer above.
    #[must_use]
    pub fn attempts_alone(&self) -> Vec<AttemptRecord> {
        self.shared.join().1
    }

    /// How many calls had to go for newer ones.
    #[must_use]
    pub fn dropped(&self) -> u64 {
        self.shared.dropped.load(Ordering::Relaxed)
    }
}

impl Default for MemoryLedger {
    fn default() -> Self {
        Self::new()
    }
}

impl fmt::Debug for MemoryLedger {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (calls, dropped) = (self.shared.lock().calls, self.dropped());
        let mut out = f.debug_struct("MemoryLedger");
        out.field("calls", &calls).field("dropped", &dropped).finish()
    }
}

impl Ledger for MemoryLedger {
    type Slot = MemorySlot;
    type Error = Infallible;
    type Starting = Ready<Result<MemorySlot, Infallible>>;

    fn started(&self, started: Started) -> Self::Starting {
        let number = self.shared.start(started);
        ready(Ok(MemorySlot { shared: Arc::clone(&self.shared), number }))
    }
}

/// The place of a record in a [`MemoryLedger`].
pub struct MemorySlot {
    shared: Arc<Shared>,
    number: u64,
}

impl Slot for MemorySlot {
    fn finish(self, finished: Finished) {
        self.shared.finish(finished, self.number);
    }
}

impl fmt::Debug for MemorySlot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MemorySlot").field("number", &self.number).finish_non_exhaustive()
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, Log> {
        self.log.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Keeps a start, and gives its number.
    fn start(&self, mut started: Started) -> u64 {
        let (mut bytes, mut hash) = (0, Hash::Done(None));
        if let Started::Call(call) = &mut started {
            if cfg!(feature = "digest") {
                (bytes, hash) = (call.body.len(), Hash::Open);
            } else {
                call.body = RequestBody::empty();
            }
        }
        self.push(Entry::Started(started, hash), bytes)
    }

    fn finish(&self, finished: Finished, number: u64) {
        let is_call = matches!(finished, Finished::Call(_));
        self.push(Entry::Finished(finished, number), 0);
        if cfg!(feature = "digest") && is_call {
            while let Some((number, body)) = self.next_unhashed() {
                let sha256 = digest::of_body(&body).map(Into::into);
                drop(body);
                self.lock().set_hash(number, sha256);
            }
        }
    }

    fn push(&self, entry: Entry, bytes: u64) -> u64 {
        let mut log = self.lock();
        let number = log.push(entry, bytes);
        let (gone, dropped) = log.evict(self.capacity);
        if dropped > 0 {
            self.dropped.fetch_add(dropped, Ordering::Relaxed);
        }
        drop(log);
        // Freed outside the lock.
        drop(gone);
        number
    }

    /// The oldest body, if there are too many.
    fn next_unhashed(&self) -> Option<(u64, RequestBody)> {
        let mut log = self.lock();
        if log.bytes <= MAX_BODIES {
            return None;
        }
        log.next_unhashed()
    }

    fn join(&self) -> (Vec<CallRecord>, Vec<AttemptRecord>) {
        let mut journal = Journal::new();
        let mut next = 0;
        loop {
            // A few at a time: the calls go on meanwhile.
            let (first, entries) = self.lock().copy_from(next);
            if entries.is_empty() {
                // Of calls that had to go, parts may be left; where none had to, a call without a start is
                // one that only its attempts' layer records.
                let is_whole = self.dropped.load(Ordering::Relaxed) == 0;
                return if is_whole { journal.into_all() } else { journal.into_started() };
            }
            next = first;
            for entry in entries {
                journal.add(self.part(next, &entry));
                next += 1;
            }
        }
    }

    fn part(&self, number: u64, entry: &Entry) -> Part {
        let name = |number: u64| move || format!("{number:020}");
        match entry {
            Entry::Finished(finished, started) => Part::of_finished(finished, name(*started)),
            Entry::Started(started, Hash::Done(sha256)) => {
                Part::of_started(started, sha256.as_deref().map(Into::into), name(number))
            }
            Entry::Started(started, Hash::Open) => {
                let sha256 = match started {
                    Started::Call(call) => digest::of_body(&call.body),
                    Started::Attempt(_) => None,
                };
                self.lock().set_hash(number, sha256.as_deref().map(Into::into));
                Part::of_started(started, sha256, name(number))
            }
        }
    }
}

impl Log {
    fn push(&mut self, entry: Entry, bytes: u64) -> u64 {
        let number = self.first + self.entries.len() as u64;
        self.calls += usize::from(entry.is_call_started());
        self.bytes = self.bytes.saturating_add(bytes);
        self.entries.push_back(entry);
        number
    }

    /// Takes out what is too much: one entry beyond a start is a part of a call that started before, so
    /// that all of them go up to the next start.
    fn evict(&mut self, capacity: usize) -> (Vec<Entry>, u64) {
        let (mut gone, mut dropped) = (Vec::new(), 0);
        let max_entries = capacity.saturating_mul(ENTRIES_A_CALL);
        while let Some(front) = self.entries.front() {
            let is_call = front.is_call_started();
            let is_of_a_gone_call = !is_call && dropped > 0;
            let is_too_much = self.calls > capacity || self.entries.len() > max_entries;
            if !is_too_much && !is_of_a_gone_call {
                break;
            }
            self.bytes = self.bytes.saturating_sub(front.body().map_or(0, RequestBody::len));
            self.calls -= usize::from(is_call);
            dropped += u64::from(is_call);
            gone.extend(self.entries.pop_front());
            self.first += 1;
        }
        (gone, dropped)
    }

    /// A copy of some entries from this number on, and the number of the first of them.
    fn copy_from(&self, number: u64) -> (u64, Vec<Entry>) {
        let first = number.max(self.first);
        let skip = usize::try_from(first - self.first).unwrap_or(usize::MAX);
        (first, self.entries.iter().skip(skip).take(COPIED).cloned().collect())
    }

    fn next_unhashed(&mut self) -> Option<(u64, RequestBody)> {
        let from = self.unhashed.max(self.first);
        let skip = usize::try_from(from - self.first).unwrap_or(usize::MAX);
        for (number, entry) in (from..).zip(self.entries.iter().skip(skip)) {
            self.unhashed = number + 1;
            if let Some(body) = entry.body() {
                return Some((number, body.clone()));
            }
        }
        None
    }

    /// Lets the body go.
    fn set_hash(&mut self, number: u64, sha256: Option<Box<str>>) {
        let at = number.checked_sub(self.first).and_then(|at| usize::try_from(at).ok());
        let entry = at.and_then(|at| self.entries.get_mut(at));
        if let Some(Entry::Started(Started::Call(call), hash @ Hash::Open)) = entry {
            self.bytes = self.bytes.saturating_sub(call.body.len());
            call.body = RequestBody::empty();
            *hash = Hash::Done(sha256);
        }
    }
}

impl Entry {
    const fn is_call_started(&self) -> bool {
        matches!(self, Self::Started(Started::Call(_), _))
    }

    /// The body that is not hashed yet.
    const fn body(&self) -> Option<&RequestBody> {
        match self {
            Self::Started(Started::Call(call), Hash::Open) => Some(&call.body),
            _ => None,
        }
    }
}

/// A long evaluation's last hours, in some 20 MB.
const CAPACITY: usize = 10_000;
/// A call with one attempt has 4. What is retried more often than 6 times on average shortens the memory.
const ENTRIES_A_CALL: usize = 16;
/// As much as a few long prompts in flight.
const MAX_BODIES: u64 = 16 * 1024 * 1024;
/// Some ten microseconds under the lock.
const COPIED: usize = 128;
