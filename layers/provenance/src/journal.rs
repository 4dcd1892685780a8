use std::collections::{BTreeMap, HashMap};

use backstop_core::CallId;

use crate::call_record::{AttemptRecord, CallRecord};
use crate::part::{self, Part, Whose};
use crate::record::{Finished, Outcome, Started};

/// Joins the parts of records to calls.
///
/// Parts may come in any order; the first of a kind counts. A start without its finish is
/// `interrupted`, a finish without its start has no more than a finish says. It holds all that it is given.
#[derive(Clone, Debug, Default)]
pub struct Journal {
    calls: Vec<Call>,
    places: HashMap<CallId, usize>,
    alone: BTreeMap<String, Attempt>,
}

#[derive(Clone, Debug)]
struct Call {
    id: CallId,
    started: Option<Box<part::CallStarted>>,
    finished: Option<Box<part::CallFinished>>,
    attempts: BTreeMap<u32, Attempt>,
}

#[derive(Clone, Debug, Default)]
struct Attempt {
    started: Option<Box<part::AttemptStarted>>,
    finished: Option<Box<part::AttemptFinished>>,
}

impl Journal {
    /// An empty one.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Takes the start of a record. The caller's body is not read. An attempt that belongs to no call has
    /// nothing to be known by, and is left out.
    pub fn started(&mut self, started: &Started) {
        self.add(Part::of_started(started, None, String::new));
    }

    /// Takes the finish of a record.
    pub fn finished(&mut self, finished: &Finished) {
        self.add(Part::of_finished(finished, String::new));
    }

    /// Takes a line of a file.
    #[cfg(feature = "jsonl")]
    pub fn line(&mut self, line: crate::jsonl::Line) {
        self.add(line.into_part());
    }

    pub(crate) fn add(&mut self, part: Part) {
        match part {
            Part::CallStarted(part) => {
                self.call(part.call).started.get_or_insert(part);
            }
            Part::CallFinished(part) => {
                self.call(part.call).finished.get_or_insert(part);
            }
            Part::AttemptStarted(part) => {
                if let Some(attempt) = self.attempt(&part.whose, part.attempt) {
                    attempt.started.get_or_insert(part);
                }
            }
            Part::AttemptFinished(part) => {
                if let Some(attempt) = self.attempt(&part.whose, part.attempt) {
                    attempt.finished.get_or_insert(part);
                }
            }
        }
    }

    fn call(&mut self, id: CallId) -> &mut Call {
        let at = *self.places.entry(id).or_insert(self.calls.len());
        if at == self.calls.len() {
            self.calls.push(Call { id, started: None, finished: None, attempts: BTreeMap::new() });
        }
        &mut self.calls[at]
    }

    fn attempt(&mut self, whose: &Whose, number: u32) -> Option<&mut Attempt> {
        match (whose.call, &whose.alone) {
            (Some(call), _) => Some(self.call(call).attempts.entry(number).or_default()),
            (None, Some(name)) if !name.is_empty() => {
                Some(self.alone.entry(name.clone()).or_default())
            }
            (None, _) => None,
        }
    }

    /// The calls, in the order of their first parts.
    #[must_use]
    pub fn into_calls(self) -> Vec<CallRecord> {
        self.into_all().0
    }

    /// The calls, in the order of their first parts, and the attempts that belong to no call.
    #[must_use]
    pub fn into_all(self) -> (Vec<CallRecord>, Vec<AttemptRecord>) {
        let calls = self.calls.into_iter().map(Call::join).collect();
        (calls, self.alone.into_values().filter_map(Attempt::join).collect())
    }

    /// The calls whose start is known.
    pub(crate) fn into_started(mut self) -> (Vec<CallRecord>, Vec<AttemptRecord>) {
        self.calls.retain(|call| call.started.is_some());
        self.alone.retain(|_, attempt| attempt.started.is_some());
        self.into_all()
    }
}

impl Call {
    fn join(self) -> CallRecord {
        let Self { id, started, finished, attempts } = self;
        let planned = attempts
            .values()
            .find_map(|attempt| attempt.started.as_ref()?.planned_chain.as_ref())
            .cloned();
        let attempts: Vec<_> = attempts.into_values().filter_map(Attempt::join).collect();
        let mut record = CallRecord {
            call: id,
            run: None,
            node: None,
            lane: None,
            labels: BTreeMap::new(),
            route: None,
            outcome: Outcome::Interrupted,
            planned_chain: planned.unwrap_or_default(),
            produced_by: None,
            fallback_used: false,
            retries: u32::try_from(attempts.len().saturating_sub(1)).unwrap_or(u32::MAX),
            waited_ms: attempts
                .iter()
                .filter_map(|attempt| attempt.wait_ms)
                .fold(0, u64::saturating_add),
            request_sha256: None,
            caller_retry: None,
            started_at: None,
            duration_ms: None,
            usage: None,
            decisions: Vec::new(),
            attempts,
            path: None,
            requested_model: None,
            attempts_made: None,
            error: None,
        };
        if let Some(started) = started {
            started.tell(&mut record);
        }
        if let Some(finished) = finished {
            finished.tell(&mut record);
        }
        record
    }
}

impl part::CallStarted {
    fn tell(self, record: &mut CallRecord) {
        let Self {
            call: _,
            run,
            node,
            lane,
            labels,
            route,
            path,
            requested_model,
            request_sha256,
            caller_retry,
            started_at,
        } = self;
        (record.run, record.node, record.lane) = (run, node, lane);
        (record.labels, record.route, record.path) = (labels, route, path);
        (record.requested_model, record.request_sha256) = (requested_model, request_sha256);
        (record.caller_retry, record.started_at) = (caller_retry, started_at);
    }
}

impl part::CallFinished {
    fn tell(self, record: &mut CallRecord) {
        let Self {
            call: _,
            outcome,
            planned_chain,
            produced_by,
            fallback_used,
            retries,
            attempts_made,
            waited_ms,
            duration_ms,
            usage,
            decisions,
            error,
        } = self;
        if !planned_chain.is_empty() {
            record.planned_chain = planned_chain;
        }
        record.produced_by = produced_by.map(|mut who| {
            // Without a chain nobody but the attempt knows what was sent.
            if who.profile.is_none() && who.model.is_none() {
                who.model = record.attempts.last().and_then(|attempt| attempt.model.clone());
            }
            who
        });
        (record.outcome, record.fallback_used, record.retries) = (outcome, fallback_used, retries);
        (record.attempts_made, record.waited_ms) = (attempts_made, waited_ms);
        (record.duration_ms, record.usage) = (duration_ms, usage);
        (record.decisions, record.error) = (decisions, error);
    }
}

impl Attempt {
    fn join(self) -> Option<AttemptRecord> {
        let Self { started, finished } = self;
        let attempt = match (&started, &finished) {
            (Some(part), _) => part.attempt,
            (None, Some(part)) => part.attempt,
            (None, None) => return None,
        };
        let mut record = AttemptRecord {
            attempt,
            rung: None,
            profile: None,
            model: None,
            endpoint: None,
            wait_ms: None,
            wait_reason: None,
            unprocessed: false,
            status: None,
            class: AttemptRecord::INTERRUPTED.into(),
            code: None,
            hint_ms: None,
            request_id: None,
            reported_model: None,
            started_at: None,
            first_byte_ms: None,
            first_content_ms: None,
            duration_ms: None,
            bytes: None,
            stream_end: None,
            usage: None,
            error: None,
            head_ms: None,
            request_bytes: None,
        };
        if let Some(started) = started {
            started.tell(&mut record);
        }
        if let Some(finished) = finished {
            finished.tell(&mut record);
        }
        Some(record)
    }
}

impl part::AttemptStarted {
    fn tell(self, record: &mut AttemptRecord) {
        let Self {
            whose: _,
            attempt: _,
            rung,
            profile,
            model,
            endpoint,
            request_bytes,
            wait_ms,
            wait_reason,
            started_at,
            planned_chain: _,
        } = self;
        (record.rung, record.profile, record.model) = (rung, profile, model);
        (record.endpoint, record.request_bytes) = (endpoint, request_bytes);
        (record.wait_ms, record.wait_reason) = (wait_ms, wait_reason);
        record.started_at = started_at;
    }
}

impl part::AttemptFinished {
    fn tell(self, record: &mut AttemptRecord) {
        let Self {
            whose: _,
            attempt: _,
            unprocessed,
            status,
            class,
            code,
            hint_ms,
            request_id,
            reported_model,
            head_ms,
            first_byte_ms,
            first_content_ms,
            duration_ms,
            bytes,
            stream_end,
            usage,
            error,
        } = self;
        (record.unprocessed, record.status, record.class) = (unprocessed, status, class);
        (record.code, record.hint_ms, record.request_id) = (code, hint_ms, request_id);
        (record.reported_model, record.head_ms) = (reported_model, head_ms);
        (record.first_byte_ms, record.first_content_ms) = (first_byte_ms, first_content_ms);
        (record.duration_ms, record.bytes) = (duration_ms, bytes);
        (record.stream_end, record.usage, record.error) = (stream_end, usage, error);
    }
}
