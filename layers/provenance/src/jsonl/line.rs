use backstop_core::CallId;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize, Serializer};

use super::MAX_LINE;
use crate::part::Part;

/// One line of a file: a part of a record. [`Journal::line`](crate::Journal::line) joins them.
///
/// It serialises as it stands in the file, without what was unknown in it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Line(Part);

impl Line {
    /// The call that it belongs to; `None` for an attempt without one.
    #[must_use]
    pub const fn call(&self) -> Option<CallId> {
        self.0.call()
    }

    /// Which part it is: `call_started`, `attempt_started`, `attempt_finished` or `call_finished`.
    #[must_use]
    pub const fn record(&self) -> &'static str {
        self.0.record()
    }

    pub(crate) fn into_part(self) -> Part {
        self.0
    }
}

impl Serialize for Line {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        Written { schema: SCHEMA, part: &self.0 }.serialize(serializer)
    }
}

#[derive(Serialize)]
struct Written<'a> {
    schema: &'static str,
    #[serde(flatten)]
    part: &'a Part,
}

/// Appends `part` as a line.
///
/// # Errors
/// Its length, where it would be too long; nothing is appended.
pub(super) fn write(part: &Part, to: &mut Vec<u8>) -> Result<(), usize> {
    let before = to.len();
    // Strings and numbers into memory: nothing of it can fail.
    let result = serde_json::to_writer(&mut *to, &Written { schema: SCHEMA, part });
    to.push(b'\n');
    let len = to.len() - before;
    if result.is_err() || len > MAX_LINE {
        to.truncate(before);
        return Err(len);
    }
    Ok(())
}

/// What a line turns out to be.
pub(super) enum Parsed {
    Line(Line),
    /// A record of a later version.
    Unknown,
    Damaged,
}

#[derive(Deserialize)]
struct Head {
    schema: String,
    record: Option<String>,
}

pub(super) fn parse(line: &[u8]) -> Parsed {
    let Ok(head) = serde_json::from_slice::<Head>(line) else { return Parsed::Damaged };
    if head.schema != SCHEMA {
        let is_ours = head.schema.starts_with(SCHEMAS);
        return if is_ours { Parsed::Unknown } else { Parsed::Damaged };
    }
    match head.record.as_deref() {
        Some("call_started") => read(line, Part::CallStarted),
        Some("attempt_started") => read(line, Part::AttemptStarted),
        Some("attempt_finished") => read(line, Part::AttemptFinished),
        Some("call_finished") => read(line, Part::CallFinished),
        Some(_) => Parsed::Unknown,
        None => Parsed::Damaged,
    }
}

fn read<T: DeserializeOwned>(line: &[u8], part: fn(Box<T>) -> Part) -> Parsed {
    match serde_json::from_slice(line) {
        Ok(read) => Parsed::Line(Line(part(Box::new(read)))),
        Err(_) => Parsed::Damaged,
    }
}

/// Where the last record in `line` begins that something else precedes: somebody has appended it to what a
/// crash left behind. No string in JSON can hold these bytes.
pub(super) fn later_record(line: &[u8]) -> Option<usize> {
    let at = line.windows(BEGINNING.len()).rposition(|window| window == BEGINNING)?;
    Some(at).filter(|at| *at > 0)
}

const SCHEMA: &str = "backstop/record/v1";
const SCHEMAS: &str = "backstop/record/";
const BEGINNING: &[u8] = br#"{"schema":"backstop/record/v1""#;
