//! What can be wrong with a document.

use std::fmt;

/// Why bytes are not the JSON that they were taken for, and where that shows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct JsonError {
    kind: JsonErrorKind,
    offset: usize,
}

impl JsonError {
    /// What is wrong.
    pub fn kind(&self) -> JsonErrorKind {
        self.kind
    }

    /// The first byte that does not fit; for [`JsonErrorKind::Truncated`] the input's length.
    pub fn offset(&self) -> usize {
        self.offset
    }
}

impl fmt::Display for JsonError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { kind, offset } = self;
        match kind {
            JsonErrorKind::Malformed => write!(f, "not JSON: byte {offset} does not fit"),
            JsonErrorKind::TooDeep => write!(f, "JSON nested too deeply at byte {offset}"),
            JsonErrorKind::Truncated => write!(f, "JSON cut off after {offset} bytes"),
        }
    }
}

impl std::error::Error for JsonError {}

/// What is wrong with a document.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum JsonErrorKind {
    /// A byte stands where the grammar does not allow it.
    Malformed,
    /// More than 128 objects and arrays are open at once.
    TooDeep,
    /// The input ended inside of a value, or before there was one: all that is there may be the
    /// beginning of a document.
    Truncated,
}

impl JsonErrorKind {
    #[cold]
    pub(crate) fn at(self, offset: usize) -> JsonError {
        JsonError { kind: self, offset }
    }
}
