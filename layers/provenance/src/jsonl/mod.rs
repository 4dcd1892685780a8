//! A ledger that appends lines of JSON to a file, and its reader.
//!
//! Each line is one part of a record in the schema `backstop/record/v1`: the start of a call
//! (`"record":"call_started"`), of an attempt (`attempt_started`), and their finishes (`attempt_finished`,
//! `call_finished`), with the field names of `backstop/report/v1`. An attempt that belongs to no call has
//! `"call":null` and a name in `alone`, which both of its lines have.

mod error;
mod file;
mod ledger;
mod line;
mod read;
mod writer;

pub use error::LedgerError;
pub use ledger::{Fsync, JsonlBuilder, JsonlLedger, JsonlSlot, JsonlStarting};
pub use line::Line;
pub use read::{Calls, Damaged, Lines, calls, lines, read};

/// With its line end. Our own records are some hundred bytes long; what is longer is none.
const MAX_LINE: usize = 1024 * 1024;
