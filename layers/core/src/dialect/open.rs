//! Streams of which no grammar is known: an unknown provider, or an endpoint without facts.
//!
//! Every event is taken for content, `[DONE]` for an end, and so is a clean end of the bytes; errors
//! are found by the general look that they have everywhere.

use super::Seen;
use super::notes::{Notes, Payload};

pub(super) fn event(_name: &str, payload: Payload<'_>, notes: &mut Notes) -> Seen {
    match payload {
        Payload::Done => Seen::End,
        Payload::Json(_) | Payload::Oversized(_) => {
            notes.note_speech();
            Seen::Content
        }
    }
}
