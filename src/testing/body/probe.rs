//! How a scripted body was treated.

use std::sync::{
    Arc,
    atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering},
};

/// Reads how a [`ScriptedBody`](super::ScriptedBody) was treated, also after it is gone. Clones read the same body.
///
/// Where one body of a script is used for several answers (a repeated last outcome), the counts add up.
#[derive(Debug, Clone, Default)]
pub struct BodyProbe(pub(super) Arc<Counts>);

#[derive(Debug, Default)]
pub(super) struct Counts {
    pub(super) polls: AtomicUsize,
    pub(super) polls_after_end: AtomicUsize,
    pub(super) bytes: AtomicU64,
    pub(super) finished: AtomicBool,
    pub(super) drops: AtomicUsize,
}

impl BodyProbe {
    /// How often the body was polled for a frame.
    #[must_use]
    pub fn polls(&self) -> usize {
        self.0.polls.load(Ordering::Relaxed)
    }

    /// How often it was polled although it had already answered `None` or an error: a misuse, 0 in a sound reader.
    #[must_use]
    pub fn polls_after_end(&self) -> usize {
        self.0.polls_after_end.load(Ordering::Relaxed)
    }

    /// Bytes of data yielded.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.0.bytes.load(Ordering::Relaxed)
    }

    /// Whether its end was polled: `None` or an error. A reader that goes by `is_end_stream` may stop before.
    #[must_use]
    pub fn is_finished(&self) -> bool {
        self.0.finished.load(Ordering::Relaxed)
    }

    /// How many bodies of this script were dropped.
    #[must_use]
    pub fn drops(&self) -> usize {
        self.0.drops.load(Ordering::Relaxed)
    }

    /// Whether the body is gone.
    #[must_use]
    pub fn is_dropped(&self) -> bool {
        self.drops() > 0
    }
}
