//! Answers that are judged when they are whole.

use super::content::is_list;
use super::failure::{self, Failure};
use super::judge::Judge;
use super::presentation::Lack;
use super::sse::SseReader;
use super::stream::Reader;
use super::{BodyEnd, Framing, deep};
use crate::json::{self, JsonErrorKind, Value};
use crate::status;

impl Judge {
    /// Reads the document `body`, or what came of it.
    pub(super) fn read_document(&mut self, body: &[u8], end: BodyEnd) {
        if !self.status.is_success() {
            // The status has spoken. The body may say more, if it is whole; but not that a 304 failed.
            if status::class_of(self.status).is_failure() {
                // Without one that can be read there is nothing to add.
                let _ = deep::parse(body, |document| self.read_error(document));
            }
            return;
        }
        if end == BodyEnd::Broken {
            self.lack = Some(Lack::Broken);
            return;
        }
        let body = body[json::start(body)..].trim_ascii();
        let must_answer = self.route.grammar().is_some();
        if body.is_empty() {
            self.lack = must_answer.then_some(Lack::Empty);
            return;
        }
        match deep::parse(body, |document| self.read_answer(document)) {
            Ok(()) => {}
            Err(_) if looks_like_events(body) => self.read_events(body),
            Err(_) if self.is_html_type || looks_like_html(body) => {
                self.lack = self.route.dialect().is_some().then_some(Lack::Html);
            }
            Err(_) if !must_answer => {}
            Err(error) if error.kind() == JsonErrorKind::Truncated => self.lack = Some(Lack::Cut),
            Err(_) => self.lack = Some(Lack::NotJson),
        }
    }

    /// The error in an answer whose status says that it failed. On the array endpoint Google wraps
    /// it in a list.
    fn read_error(&mut self, document: Value<'_>) {
        let document = if is_list(document) { document.elements().next() } else { Some(document) };
        let Some(document) = document else { return };
        if let Some(error) = failure::find_in_failed(document) {
            self.notes.note_request_id(document.get("request_id"));
            let failure = Failure::read(self.route.dialect(), self.status, error, Some(document));
            self.notes.note_failure(failure);
        }
    }

    fn read_answer(&mut self, document: Value<'_>) {
        let endpoint = self.route.endpoint();
        let find = self.finder();
        let parts = is_list(document).then(|| document.elements()).into_iter().flatten();
        for part in std::iter::once(document).chain(parts) {
            if let Some(error) = find(part) {
                self.note_error(part, error, false);
                break;
            }
        }
        if let Some(dialect) = self.route.grammar() {
            (dialect.facts().document)(document, endpoint, &mut self.notes);
            self.notes.settle();
            if self.notes.failure.is_none() && !self.notes.has_answer() {
                self.lack = Some(Lack::NoAnswer);
            }
        }
    }

    /// A stream that was not announced as one: some fronts lose its content type.
    fn read_events(&mut self, body: &[u8]) {
        self.framing = Framing::Sse;
        self.reader = Reader::Sse(SseReader::new(self.max_event));
        self.read_stream(body);
        self.end_stream(BodyEnd::Eof);
    }
}

fn looks_like_events(body: &[u8]) -> bool {
    [&b"data:"[..], b"event:", b":"].iter().any(|start| body.starts_with(start))
}

fn looks_like_html(body: &[u8]) -> bool {
    [&b"<!doctype html"[..], b"<html"]
        .iter()
        .any(|start| body.get(..start.len()).is_some_and(|head| head.eq_ignore_ascii_case(start)))
}
