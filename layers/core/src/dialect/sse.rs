//! Server-sent events, from bytes that are cut anywhere.
//!
//! The grammar is that of the HTML standard, and a little more, as the SDKs' own parsers take it
//! (mistralai/client-python src/mistralai/client/utils/eventstreaming.py; openai/openai-python
//! src/openai/_streaming.py): LF, CRLF and CR, mixed; a byte order mark; comments; several `data`
//! lines joined by LF; no blank after the colon; unknown fields. In addition
//!
//! - an event that the end of the stream cuts off counts if its data is whole (`finish`);
//! - a field `error` carries data like `data` does (llama.cpp up to 2025: issue
//!   coddy-project/coddy-agent#106);
//! - JSON text that stands between events without any field name is an event of its own: Gemini
//!   reports errors that way (googleapis/js-genai src/_api_client.ts; googleapis/python-genai
//!   google/genai/_api_client.py).

use memchr::memchr2;

use super::deep;
use super::lines::{FIELD, Line, Name, append};
use super::scan::Scan;

/// One event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Event<'a> {
    /// The `event` field; empty if there is none.
    pub(super) name: &'a [u8],
    /// The data; of an event larger than the bound its first [`PREFIX`] bytes.
    pub(super) data: &'a [u8],
    /// Whether `data` is only the beginning.
    pub(super) oversized: bool,
    /// Where the data stood.
    pub(super) place: Place,
}

/// Where an event's data stood.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Place {
    /// In fields `data`.
    #[default]
    Data,
    /// In a field `error`.
    Error,
    /// Outside of any field.
    Outside,
}

/// Splits a stream into events. Holds what the last chunk cut off, up to a bound.
#[derive(Debug)]
pub(super) struct SseReader {
    max_event: usize,
    /// A line without its end yet. Empty while `line_from_start`.
    line: Vec<u8>,
    in_line: bool,
    /// The rest of the line is not kept: a comment, or too long.
    skip_line: bool,
    /// The line's data went to `data` already, where it was too long.
    line_done: bool,
    /// The data of the event so far.
    data: Vec<u8>,
    has_data: bool,
    oversized: bool,
    place: Place,
    name: Name,
    /// The last line ended with CR; an LF that follows belongs to it.
    skip_lf: bool,
    /// Bytes of the byte order mark seen; [`BOM`]'s length once the beginning is over.
    mark: usize,
    /// JSON text outside of any field, collected in `data`.
    raw: Option<Scan>,
    opening: Opening,
}

/// What the body began with.
#[derive(Debug)]
enum Opening {
    /// Nothing but white space and comments so far.
    Untouched,
    /// One JSON object outside of any field, and nothing else so far.
    Document(Vec<u8>),
    /// Something that a stream may begin with.
    Stream,
}

impl SseReader {
    /// A reader that keeps at most `max_event` bytes of an event.
    pub(super) fn new(max_event: usize) -> Self {
        Self {
            max_event: max_event.max(PREFIX),
            line: Vec::new(),
            in_line: false,
            skip_line: false,
            line_done: false,
            data: Vec::new(),
            has_data: false,
            oversized: false,
            place: Place::Data,
            name: Name::default(),
            skip_lf: false,
            mark: 0,
            raw: None,
            opening: Opening::Untouched,
        }
    }

    /// The body, if all of it was one JSON object: a document that bears a stream's content type.
    pub(super) fn into_document(self) -> Option<Vec<u8>> {
        match self.opening {
            Opening::Document(document) => Some(document),
            Opening::Untouched | Opening::Stream => None,
        }
    }

    /// Takes the stream's next bytes and gives `on_event` each event that ends in them.
    ///
    /// An event that lies whole in `chunk` and has one `data` line is not copied.
    pub(super) fn push(&mut self, chunk: &[u8], mut on_event: impl FnMut(Event<'_>)) {
        let mut at = self.pass_mark(chunk);
        // The data of an event that began in this chunk and has one line so far.
        let mut fresh: Option<&[u8]> = None;
        while let Some(&first) = chunk.get(at) {
            if std::mem::take(&mut self.skip_lf) && first == b'\n' {
                at += 1;
                continue;
            }
            let Some(length) = memchr2(b'\n', b'\r', &chunk[at..]) else { break };
            let line = &chunk[at..at + length];
            self.skip_lf = chunk[at + length] == b'\r';
            at += length + 1;
            if self.in_line {
                self.keep(line);
                self.end_kept_line(&mut on_event);
                continue;
            }
            match Line::of(line) {
                Line::Blank => self.dispatch(fresh.take(), &mut on_event),
                Line::Data(value) if !self.has_data && fresh.is_none() => {
                    self.begin_field();
                    fresh = Some(value);
                }
                other => {
                    if let Some(value) = fresh.take() {
                        self.add_data(value);
                    }
                    self.take(other, &mut on_event);
                }
            }
        }
        if let Some(value) = fresh {
            self.add_data(value);
        }
        if let Some(rest) = chunk.get(at..)
            && !rest.is_empty()
        {
            self.keep(rest);
        }
    }

    /// The stream is over: gives `on_event` an event that lacks its closing blank line, if its data
    /// is `[DONE]` or a whole JSON text. Anything less is dropped, as the OpenAI and Anthropic SDKs do.
    pub(super) fn finish(&mut self, mut on_event: impl FnMut(Event<'_>)) {
        if self.in_line {
            self.end_kept_line(&mut on_event);
        }
        let whole = self.data.trim_ascii() == b"[DONE]" || deep::parse(&self.data, |_| ()).is_ok();
        if self.raw.is_none() && whole && !self.oversized {
            self.dispatch(None, &mut on_event);
        }
    }

    /// Bytes that are held, and bytes that are set aside for holding them.
    #[cfg(test)]
    pub(super) fn capacity(&self) -> usize {
        let document = match &self.opening {
            Opening::Document(document) => document.capacity(),
            Opening::Untouched | Opening::Stream => 0,
        };
        self.line.capacity() + self.data.capacity() + document
    }

    /// Steps over a byte order mark, which may come in pieces.
    fn pass_mark(&mut self, chunk: &[u8]) -> usize {
        let mut at = 0;
        while self.mark < BOM.len() {
            let Some(&byte) = chunk.get(at) else { return at };
            if byte != BOM[self.mark] {
                // What looked like one was the beginning of a line.
                let begun = std::mem::replace(&mut self.mark, BOM.len());
                if begun > 0 {
                    self.keep(&BOM[..begun]);
                }
                return at;
            }
            self.mark += 1;
            at += 1;
        }
        at
    }

    /// Adds to the line that a chunk cut.
    fn keep(&mut self, piece: &[u8]) {
        self.in_line = true;
        if self.skip_line {
            return;
        }
        let begins_comment = self.line.is_empty() && piece.first() == Some(&b':');
        if begins_comment {
            self.skip_line = true;
            return;
        }
        // With the longest field name before it a value of the bound's size still fits.
        // JSON text outside of any field is dropped where a field begins: it takes none of its room.
        let held = if self.raw.is_some() { 0 } else { self.data.len() };
        let room = (self.max_event + FIELD).saturating_sub(held);
        if self.line.len() + piece.len() <= room {
            append(&mut self.line, piece, self.max_event + FIELD);
            return;
        }
        // Too long in any case. What is kept of it is the same wherever it was cut.
        let missing = (PREFIX + FIELD).saturating_sub(self.line.len()).min(piece.len());
        append(&mut self.line, &piece[..missing], self.max_event + FIELD);
        self.skip_line = true;
        self.line_done = true;
        let line = std::mem::take(&mut self.line);
        match Line::of(&line) {
            Line::Data(value) => self.overflow(value),
            Line::Error(value) => {
                self.place = Place::Error;
                self.overflow(value);
            }
            Line::Event(value) => {
                self.begin_field();
                self.name.set(value);
            }
            Line::Text(_) | Line::Other(_) => self.begin_field(),
            Line::Blank | Line::Comment => {}
        }
        self.line = line;
    }

    /// The line that a chunk cut is whole now.
    fn end_kept_line(&mut self, on_event: &mut impl FnMut(Event<'_>)) {
        let mut line = std::mem::take(&mut self.line);
        let (skipped, done) = (self.skip_line, self.line_done);
        self.in_line = false;
        self.skip_line = false;
        self.line_done = false;
        if !skipped && !done {
            match Line::of(&line) {
                Line::Blank => self.dispatch(None, on_event),
                other => self.take(other, on_event),
            }
        }
        line.clear();
        self.line = line;
    }

    /// Takes a line that is not blank.
    fn take(&mut self, line: Line<'_>, on_event: &mut impl FnMut(Event<'_>)) {
        match line {
            Line::Data(value) => {
                self.begin_field();
                self.add_data(value);
            }
            Line::Error(value) => {
                self.begin_field();
                self.place = Place::Error;
                self.add_data(value);
            }
            Line::Event(value) => {
                self.begin_field();
                self.name.set(value);
            }
            // A document may be wrapped anywhere.
            Line::Other(text) if self.raw.is_some() => self.take_text(text, on_event),
            Line::Other(_) => self.opening = Opening::Stream,
            Line::Text(text) => self.take_text(text, on_event),
            Line::Blank | Line::Comment => {}
        }
    }

    /// Takes a line of JSON text that stands outside of any field.
    fn take_text(&mut self, text: &[u8], on_event: &mut impl FnMut(Event<'_>)) {
        if self.has_data {
            return;
        }
        let too_long = self.data.len() + text.len() >= self.max_event;
        // White space before the first value is nothing; later it marks the rest of another one.
        let is_first = matches!(self.opening, Opening::Untouched) && self.raw.is_none();
        let text = if is_first { text.trim_ascii_start() } else { text };
        let begins = matches!(text.first(), Some(b'{' | b'['));
        if self.raw.is_none() && !(is_first && begins) && !text.trim_ascii().is_empty() {
            self.opening = Opening::Stream;
        }
        let Some(mut scan) = self.raw.or_else(|| begins.then(Scan::default)) else { return };
        if too_long {
            self.begin_field();
            return;
        }
        let begin = self.data.len();
        append(&mut self.data, text, self.max_event);
        append(&mut self.data, b"\n", self.max_event);
        match scan.feed(text) {
            None => self.raw = Some(scan),
            Some(length) => {
                self.raw = None;
                let length_in_all = begin + length;
                let data = &self.data[..length_in_all];
                on_event(Event { name: b"", data, oversized: false, place: Place::Outside });
                let is_document = matches!(self.opening, Opening::Untouched)
                    && data.first() == Some(&b'{')
                    && text[length..].trim_ascii().is_empty();
                if is_document {
                    self.data.truncate(length_in_all);
                    self.opening = Opening::Document(std::mem::take(&mut self.data));
                } else {
                    self.opening = Opening::Stream;
                    self.data.clear();
                }
            }
        }
    }

    /// A field begins: this is a stream, and JSON text that never came to its end is dropped.
    fn begin_field(&mut self) {
        self.opening = Opening::Stream;
        if self.raw.take().is_some() {
            self.data.clear();
        }
    }

    fn add_data(&mut self, value: &[u8]) {
        if self.oversized {
            return;
        }
        let separator = usize::from(self.has_data);
        if self.data.len() + separator + value.len() > self.max_event {
            self.overflow(value);
            return;
        }
        if self.has_data {
            append(&mut self.data, b"\n", self.max_event);
        }
        append(&mut self.data, value, self.max_event);
        self.has_data = true;
    }

    /// The event is too large with `value`: only its beginning is kept.
    fn overflow(&mut self, value: &[u8]) {
        if self.oversized {
            return;
        }
        self.begin_field();
        if self.has_data {
            append(&mut self.data, b"\n", self.max_event);
        }
        self.data.truncate(PREFIX);
        let missing = (PREFIX - self.data.len()).min(value.len());
        append(&mut self.data, &value[..missing], self.max_event);
        self.has_data = true;
        self.oversized = true;
    }

    /// A blank line ends the event, if there is any.
    fn dispatch(&mut self, fresh: Option<&[u8]>, on_event: &mut impl FnMut(Event<'_>)) {
        if self.raw.is_some() {
            return;
        }
        let (data, oversized) = match fresh {
            Some(value) if value.len() > self.max_event => (&value[..PREFIX], true),
            Some(value) => (value, false),
            None => (&self.data[..], self.oversized),
        };
        if !data.is_empty() {
            on_event(Event { name: self.name.get(), data, oversized, place: self.place });
        }
        self.data.clear();
        self.has_data = false;
        self.oversized = false;
        self.place = Place::Data;
        self.name.clear();
    }
}

/// What is kept of an event that is too large: enough for its `type`.
pub(super) const PREFIX: usize = 1_024;
const BOM: [u8; 3] = [0xEF, 0xBB, 0xBF];
