use std::fs::{File, Metadata, OpenOptions};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::path::Path;
use std::sync::Arc;

use super::MAX_LINE;
use super::error::LedgerError;

/// A file to which whole lines are appended, by us and by others.
pub(super) struct Appender {
    path: Arc<Path>,
    file: Option<File>,
    /// After a failure the next record tries again from the beginning.
    is_doubtful: bool,
    /// Whether the directory is to be durable, too.
    sync_directory: bool,
}

/// How much was appended of what was to be.
pub(super) struct Appended {
    /// Up to here the lines are in the file.
    pub(super) end: usize,
    /// What came in between, before the first line was written.
    pub(super) result: Result<(), LedgerError>,
    /// Where a torn line ended that was closed.
    pub(super) repaired: Option<u64>,
}

impl Appender {
    pub(super) fn open(path: Arc<Path>, sync_directory: bool) -> Result<Self, LedgerError> {
        let mut appender = Self { path, file: None, is_doubtful: false, sync_directory };
        appender.opened()?;
        Ok(appender)
    }

    /// Closes the file's torn last line. Where that fails, the next record does it.
    pub(super) fn close_torn(&self) {
        if let Some(mut file) = self.file.as_ref() {
            let _ = file.write(b"\n");
        }
    }

    /// Where the file's torn last line begins, if it has one.
    pub(super) fn torn(&self) -> io::Result<Option<u64>> {
        let Some(file) = &self.file else { return Ok(None) };
        let len = file.metadata()?.len();
        if !is_torn(file, &file.metadata()?)? {
            return Ok(None);
        }
        let tail = len.min(MAX_LINE as u64);
        let mut bytes = Vec::with_capacity(MAX_LINE);
        let mut reader = file;
        reader.seek(SeekFrom::Start(len - tail))?;
        reader.take(tail).read_to_end(&mut bytes)?;
        let line_end = bytes.iter().rposition(|byte| *byte == b'\n');
        Ok(Some(len - tail + line_end.map_or(0, |at| at as u64 + 1)))
    }

    /// Appends `lines` from `start` on: whole lines, with a line end before the first of them, for the
    /// case that what is last in the file has none.
    pub(super) fn append(&mut self, lines: &[u8], start: usize) -> Appended {
        let mut appended = Appended { end: start, result: Ok(()), repaired: None };
        let mut was_in_vain = false;
        while appended.end < lines.len() {
            let end = appended.end;
            let result = self.append_some(lines, &mut appended).and_then(|()| {
                // A part of a line was written. Asked once more, the system says why.
                let is_in_vain = appended.end == end;
                if is_in_vain && std::mem::replace(&mut was_in_vain, is_in_vain) {
                    let cause = Arc::new(io::ErrorKind::StorageFull.into());
                    return Err(LedgerError::Write { path: Arc::clone(&self.path), cause });
                }
                Ok(())
            });
            if let Err(error) = result {
                self.is_doubtful = true;
                appended.result = Err(error);
                break;
            }
        }
        appended
    }

    fn append_some(&mut self, lines: &[u8], appended: &mut Appended) -> Result<(), LedgerError> {
        let path = Arc::clone(&self.path);
        let failed = |cause| LedgerError::Write { path, cause: Arc::new(cause) };
        let (mut file, metadata) = self.opened()?;
        let mut from = appended.end;
        match is_torn(file, &metadata) {
            // The line end before it goes along.
            Ok(true) => {
                from -= 1;
                appended.repaired = Some(metadata.len());
            }
            Ok(false) => {}
            Err(cause) => return Err(failed(cause)),
        }
        let rest = &lines[from..];
        // One write: lines of others come before or after it.
        let written = loop {
            match file.write(rest) {
                Err(cause) if cause.kind() == io::ErrorKind::Interrupted => {}
                result => break result,
            }
        };
        let written = match written {
            Ok(written) => written,
            Err(cause) => return Err(failed(cause)),
        };
        let whole = rest[..written].iter().rposition(|byte| *byte == b'\n').map_or(0, |at| at + 1);
        appended.end = appended.end.max(from + whole);
        Ok(())
    }

    pub(super) fn sync(&self) -> Result<(), LedgerError> {
        let Some(file) = &self.file else { return Ok(()) };
        file.sync_data().map_err(|cause| {
            let path = Arc::clone(&self.path);
            LedgerError::Write { path, cause: Arc::new(cause) }
        })
    }

    /// The file that stands at the path now: one that was moved away gets no more lines.
    fn opened(&mut self) -> Result<(&File, Metadata), LedgerError> {
        let failed =
            |cause| LedgerError::Open { path: Arc::clone(&self.path), cause: Arc::new(cause) };
        let known = match self.file.take() {
            Some(file) if !self.is_doubtful => match file.metadata() {
                Ok(metadata) if is_at(&self.path, &metadata) => Some((file, metadata)),
                _ => None,
            },
            _ => None,
        };
        let (file, metadata) = match known {
            Some(known) => known,
            None => {
                let mut options = OpenOptions::new();
                let file = options.read(true).append(true).create(true).open(&self.path);
                let file = file.map_err(failed)?;
                let metadata = file.metadata().map_err(failed)?;
                if self.sync_directory {
                    sync_directory(&self.path);
                }
                self.is_doubtful = false;
                (file, metadata)
            }
        };
        Ok((self.file.insert(file), metadata))
    }
}

/// Whether the last byte is something else than a line end.
fn is_torn(mut file: &File, metadata: &Metadata) -> io::Result<bool> {
    if !metadata.is_file() || metadata.len() == 0 {
        return Ok(false);
    }
    let mut last = [b'\n'];
    file.seek(SeekFrom::End(-1))?;
    // Nothing is read where somebody has emptied it meanwhile.
    let _ = file.read(&mut last)?;
    Ok(last != [b'\n'])
}

#[cfg(unix)]
fn is_at(path: &Path, ours: &Metadata) -> bool {
    use std::os::unix::fs::MetadataExt;
    let is_ours = |now: Metadata| (now.dev(), now.ino()) == (ours.dev(), ours.ino());
    std::fs::metadata(path).is_ok_and(is_ours)
}

/// An open file cannot be moved away without its owner's consent.
#[cfg(not(unix))]
fn is_at(path: &Path, _: &Metadata) -> bool {
    path.is_file()
}

/// A file's name is in its directory. Where that cannot be synced, nothing is lost but this.
#[cfg(unix)]
fn sync_directory(path: &Path) {
    let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty());
    let directory = File::open(parent.unwrap_or_else(|| Path::new(".")));
    let _ = directory.and_then(|directory| directory.sync_all());
}

#[cfg(not(unix))]
const fn sync_directory(_: &Path) {}
