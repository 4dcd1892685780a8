use std::fmt;
use std::fs::File;
use std::io::{self, BufRead, BufReader, Read};
use std::path::Path;

use super::MAX_LINE;
use super::line::{Line, Parsed, later_record, parse};
use crate::call_record::{AttemptRecord, CallRecord};
use crate::journal::Journal;

/// The lines of the file at `path`. See [`Lines`].
///
/// # Errors
/// The file cannot be opened.
pub fn read(path: impl AsRef<Path>) -> io::Result<Lines<File>> {
    Ok(lines(File::open(path)?))
}

/// The lines that `reader` gives. See [`Lines`].
pub fn lines<R: Read>(reader: R) -> Lines<R> {
    let reader = BufReader::with_capacity(BUFFER, reader);
    Lines { reader, line: Vec::new(), offset: 0, next: None, is_over: false }
}

/// The calls in the file at `path`, joined, and where it is damaged. All of it is held in memory: give the
/// lines of a file for which that is too much to a [`Journal`] yourself.
///
/// # Errors
/// The file cannot be opened or read.
pub fn calls(path: impl AsRef<Path>) -> io::Result<Calls> {
    let (mut journal, mut damaged) = (Journal::new(), Vec::new());
    for line in read(path)? {
        match line {
            Ok(line) => journal.line(line),
            Err(Damaged { unread: Some(kind), .. }) => return Err(kind.into()),
            Err(damage) => damaged.push(damage),
        }
    }
    let (calls, attempts_alone) = journal.into_all();
    Ok(Calls { calls, attempts_alone, damaged })
}

/// What a file tells.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Calls {
    /// The calls, in the order of their first lines.
    pub calls: Vec<CallRecord>,
    /// The attempts that belong to no call.
    pub attempts_alone: Vec<AttemptRecord>,
    /// Where there is something else than records.
    pub damaged: Vec<Damaged>,
}

/// Bytes that are no record: the torn line of a crash, for example.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{len} bytes at offset {offset} are no record")]
#[non_exhaustive]
pub struct Damaged {
    /// Where they begin.
    pub offset: u64,
    /// How many they are, without the line end.
    pub len: u64,
    /// Set where the file could not be read on; it is the last item then.
    pub unread: Option<io::ErrorKind>,
}

/// The lines of a file, one after another. Made by [`read`] and [`lines`].
///
/// Blank lines, unknown fields, and records of later versions are passed over. What is no record is an error
/// that tells where, and the lines after it come all the same, even one that stands on the same line. At most
/// 1 MiB is in memory: a longer line is damage.
pub struct Lines<R> {
    reader: BufReader<R>,
    line: Vec<u8>,
    offset: u64,
    /// What was found behind a damage.
    next: Option<Line>,
    is_over: bool,
}

/// A line in `line`.
struct Raw {
    offset: u64,
    len: u64,
}

impl<R: Read> Lines<R> {
    /// Reads up to the next line end; of what is too long, the beginning.
    fn fill(&mut self) -> io::Result<Option<Raw>> {
        self.line.clear();
        let mut raw = Raw { offset: self.offset, len: 0 };
        loop {
            let bytes = match self.reader.fill_buf() {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                result => result?,
            };
            if bytes.is_empty() {
                return Ok(Some(raw).filter(|raw| raw.len > 0));
            }
            let line_end = bytes.iter().position(|byte| *byte == b'\n');
            let part = &bytes[..line_end.unwrap_or(bytes.len())];
            let room = MAX_LINE - self.line.len();
            self.line.extend_from_slice(&part[..part.len().min(room)]);
            raw.len += part.len() as u64;
            let used = part.len() + usize::from(line_end.is_some());
            self.offset += used as u64;
            self.reader.consume(used);
            if line_end.is_some() {
                return Ok(Some(raw));
            }
        }
    }

    /// What the line is; `None` for one to pass over.
    fn judge(&mut self, raw: &Raw) -> Option<Result<Line, Damaged>> {
        let Raw { offset, len } = *raw;
        let damaged = |len| Some(Err(Damaged { offset, len, unread: None }));
        if len >= MAX_LINE as u64 {
            return damaged(len);
        }
        if self.line.iter().all(u8::is_ascii_whitespace) {
            return None;
        }
        match parse(&self.line) {
            Parsed::Line(line) => Some(Ok(line)),
            Parsed::Unknown => None,
            Parsed::Damaged => {
                let Some(at) = later_record(&self.line) else { return damaged(len) };
                match parse(&self.line[at..]) {
                    Parsed::Line(line) => {
                        self.next = Some(line);
                        damaged(at as u64)
                    }
                    Parsed::Unknown => damaged(at as u64),
                    Parsed::Damaged => damaged(len),
                }
            }
        }
    }
}

impl<R: Read> Iterator for Lines<R> {
    type Item = Result<Line, Damaged>;

    fn next(&mut self) -> Option<Self::Item> {
        if let Some(line) = self.next.take() {
            return Some(Ok(line));
        }
        while !self.is_over {
            match self.fill() {
                Ok(Some(raw)) => {
                    if let Some(item) = self.judge(&raw) {
                        return Some(item);
                    }
                }
                Ok(None) => self.is_over = true,
                Err(error) => {
                    self.is_over = true;
                    let unread = Some(error.kind());
                    return Some(Err(Damaged { offset: self.offset, len: 0, unread }));
                }
            }
        }
        None
    }
}

impl<R> fmt::Debug for Lines<R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Lines").field("offset", &self.offset).finish_non_exhaustive()
    }
}

/// Some hundred records.
const BUFFER: usize = 64 * 1024;
