//! Answers that are judged while they come.

use super::array::{ArrayReader, Item};
use super::failure::{self, Failure};
use super::judge::{Judge, Seen};
use super::notes::Payload;
use super::presentation::{Lack, error_document};
use super::scan::text_in_prefix;
use super::sse::{Event, Place, SseReader};
use super::{BodyEnd, Framing, deep, open};
use crate::StreamEnd;
use crate::json::Value;

/// Takes a stream apart.
#[derive(Debug)]
pub(super) enum Reader {
    Array(ArrayReader),
    None,
    Sse(SseReader),
}

impl Judge {
    /// Reads the stream's next bytes.
    pub(super) fn read_stream(&mut self, bytes: &[u8]) -> Seen {
        let mut most = Seen::Nothing;
        match std::mem::replace(&mut self.reader, Reader::None) {
            Reader::None => {}
            Reader::Sse(mut reader) => {
                reader.push(bytes, |event| most = most.max(self.take_event(event)));
                self.reader = Reader::Sse(reader);
            }
            Reader::Array(mut reader) => {
                reader.push(bytes, |item| most = most.max(self.take_item(item)));
                self.reader = Reader::Array(reader);
            }
        }
        most
    }

    /// The stream is over, in one way or the other.
    pub(super) fn end_stream(&mut self, end: BodyEnd) {
        if let Reader::Sse(mut reader) = std::mem::replace(&mut self.reader, Reader::None) {
            reader.finish(|event| {
                self.take_event(event);
            });
            if self.notes.failure.is_none()
                && let Some(document) = reader.into_document()
            {
                // It only bears a stream's content type.
                self.framing = Framing::Document;
                self.read_document(&document, end);
                return;
            }
        }
        self.notes.settle();
        let stream_end = if self.notes.failure.is_some() {
            StreamEnd::Error
        } else if self.ended || (end == BodyEnd::Eof && self.may_end_here()) {
            StreamEnd::Complete
        } else {
            StreamEnd::Truncated
        };
        self.stream_end = Some(stream_end);
        self.lack = match stream_end {
            StreamEnd::Truncated if end == BodyEnd::Broken => Some(Lack::Broken),
            StreamEnd::Truncated => Some(Lack::Truncated),
            StreamEnd::Complete if self.route.grammar().is_some() && !self.notes.has_answer() => {
                Some(Lack::NoAnswer)
            }
            _ => None,
        };
    }

    /// How errors are found in a 2xx.
    pub(super) fn finder(&self) -> fn(Value<'_>) -> Option<Value<'_>> {
        if self.route.grammar().is_some() { failure::find } else { failure::find_alone }
    }

    /// Notes an error that was found inside a 2xx.
    pub(super) fn note_error(&mut self, around: Value<'_>, error: Value<'_>, in_stream: bool) {
        let dialect = self.route.dialect();
        self.notes.note_request_id(around.get("request_id"));
        let mut failure = Failure::read(dialect, self.status, error, Some(around));
        let id = self.header_id().or(self.notes.request_id.as_deref());
        failure.document = error_document(dialect, in_stream, around, error, id);
        self.notes.note_failure(failure);
    }

    /// Whether a clean end here is a good one, although no end marker came. An array has one: its
    /// closing bracket, without which nobody can read it.
    pub(super) fn may_end_here(&self) -> bool {
        self.framing != Framing::JsonArray && self.has_finished()
    }

    /// Whether nothing is missing but perhaps an end marker.
    fn has_finished(&self) -> bool {
        self.route
            .grammar()
            .is_none_or(|dialect| self.notes.blind || (dialect.facts().whole)(&self.notes))
    }

    fn take_event(&mut self, event: Event<'_>) -> Seen {
        if self.ended {
            return Seen::Nothing;
        }
        let name = std::str::from_utf8(event.name).unwrap_or_default();
        let data = event.data.trim_ascii();
        let is_error = name == "error" || event.place == Place::Error;
        if event.oversized {
            if is_error || text_in_prefix(data, "type") == Some("error") {
                return self.fail_unread();
            }
            return self.take_payload(name, Payload::Oversized(data));
        }
        if data == b"[DONE]" && event.place == Place::Data && !is_error {
            return self.take_payload(name, Payload::Done);
        }
        let read = deep::parse(data, |value| {
            // Text that no SDK reads, unless it is an error.
            if event.place == Place::Outside && self.finder()(value).is_none() {
                Seen::Nothing
            } else {
                self.take_value(name, value, is_error)
            }
        });
        match read {
            Ok(seen) => seen,
            Err(_) if is_error => self.fail_unread(),
            // Noise: the SDKs would stumble over it, but it ends nothing.
            Err(_) => Seen::Nothing,
        }
    }

    /// An error was reported in a form that cannot be read.
    fn fail_unread(&mut self) -> Seen {
        self.notes.note_failure(Failure::default());
        Seen::Failed
    }

    fn take_item(&mut self, item: Item<'_>) -> Seen {
        match item {
            _ if self.ended => Seen::Nothing,
            Item::Element(bytes) => deep::parse(bytes, |value| self.take_value("", value, false))
                .unwrap_or(Seen::Nothing),
            Item::Oversized(prefix) => self.take_payload("", Payload::Oversized(prefix)),
            // A closed array alone is no good end: the finish reason must have come before.
            Item::End if self.has_finished() => {
                self.ended = true;
                Seen::End
            }
            Item::End => Seen::Nothing,
        }
    }

    fn take_value(&mut self, name: &str, value: Value<'_>, is_error: bool) -> Seen {
        let error = self.finder()(value).or_else(|| is_error.then_some(value));
        if let Some(error) = error {
            self.note_error(value, error, true);
        }
        let seen = self.take_payload(name, Payload::Json(value));
        if error.is_some() { seen.max(Seen::Failed) } else { seen }
    }

    fn take_payload(&mut self, name: &str, payload: Payload<'_>) -> Seen {
        let event = self.route.grammar().map_or(open::event as _, |dialect| dialect.facts().event);
        let seen = event(name, payload, &mut self.notes);
        self.ended |= seen == Seen::End;
        seen
    }
}
