use std::io;
use std::path::Path;
use std::sync::Arc;

/// Why a [`JsonlLedger`](super::JsonlLedger) does not keep a record.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LedgerError {
    /// It was closed, or its thread is gone.
    #[error("the ledger {} is closed: start no calls after close()", path.display())]
    Closed {
        /// The file.
        path: Arc<Path>,
    },
    /// The file cannot be opened. Each later record tries it again.
    #[error("the ledger {} cannot be opened: {cause}; {}", path.display(), mend(cause))]
    Open {
        /// The file.
        path: Arc<Path>,
        /// What the system says.
        cause: Arc<io::Error>,
    },
    /// A record has more than a reader takes for a line, 1 MiB.
    #[error("a record of {len} bytes is too long for the ledger {}: shorten its labels", path.display())]
    TooLong {
        /// The file.
        path: Arc<Path>,
        /// How long the line would be.
        len: usize,
    },
    /// The file cannot be written. Each later record tries it again.
    #[error("the ledger {} cannot be written: {cause}; {}", path.display(), mend(cause))]
    Write {
        /// The file.
        path: Arc<Path>,
        /// What the system says.
        cause: Arc<io::Error>,
    },
}

impl LedgerError {
    /// The file.
    #[must_use]
    pub fn path(&self) -> &Path {
        match self {
            Self::Closed { path }
            | Self::Open { path, .. }
            | Self::TooLong { path, .. }
            | Self::Write { path, .. } => path,
        }
    }
}

fn mend(cause: &io::Error) -> &'static str {
    use io::ErrorKind::{
        FileTooLarge, IsADirectory, NotADirectory, NotFound, PermissionDenied, QuotaExceeded,
        ReadOnlyFilesystem, StorageFull,
    };
    match cause.kind() {
        StorageFull | QuotaExceeded => "free some space; it is tried again with each record",
        FileTooLarge => "move the file away or raise the limit of its size; a new one is begun",
        PermissionDenied | ReadOnlyFilesystem => "let this process read and write it",
        IsADirectory => "name a file, or move the directory away",
        NotFound | NotADirectory => "make the directory that it is to be in",
        _ => "mend this or choose another path; it is tried again with each record",
    }
}
