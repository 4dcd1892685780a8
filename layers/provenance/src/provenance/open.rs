use std::sync::Arc;

use backstop_core::dialect::Route;
use backstop_core::error::Error;
use backstop_core::{
    Action, ActionTable, AttemptCell, CallContext, CallId, CallOptions, Class, RequestBody,
    Reservation, Verdict, scrub,
};
use http::header::CONTENT_LENGTH;
use http::{Extensions, Request, Response};
use tokio::time::Instant;
use tracing::Span;

use crate::keep::{MAX_TEXT, Start};
use crate::ledger::{Ledger, Slot};
use crate::provenance::config::Config;
use crate::provenance::handle::{Answer, Provenance, Told};
use crate::provenance::span;
use crate::record::{CallFinished, CallStarted, DecisionMade, Finished, Outcome, Started};
use crate::text;

/// A call that is not over: it is closed exactly once, at the latest when this is dropped.
pub(crate) struct Open<L: Ledger> {
    pub(crate) config: Arc<Config<L>>,
    pub(crate) span: Span,
    /// The place for the record's finish; `None` where none was started, or it is finished.
    pub(crate) slot: Option<L::Slot>,
    /// The place that the request has in the process's buffers, as long as it is kept.
    pub(crate) place: Option<Reservation>,
    provenance: Provenance,
    reading: Reading,
}

/// How far the caller has come with the answer.
#[derive(Default)]
struct Reading {
    /// The verdict on a head that tells of a failure, where there was no classifier to look further.
    failed: Option<Box<Verdict>>,
    /// How many bytes were handed on.
    handed: u64,
    /// How many bytes the head announces, where there is no classifier to tell the end.
    announced: Option<u64>,
}

/// How an answer ended.
pub(crate) enum End<'a> {
    /// With this error.
    Broken(&'a Error),
    /// The caller let it go, or the whole call.
    Dropped,
    /// With its last byte.
    Whole,
}

impl<L: Ledger> Open<L> {
    /// The call of a request with these extensions: they hold its context from here on.
    pub(crate) fn begin(config: &Arc<Config<L>>, extensions: &mut Extensions) -> Self {
        let now = Instant::now();
        let started = now.into_std();
        let at = |time| now.checked_add(time).map(Instant::into_std);
        let (handle, context) = if extensions.is_empty() {
            (None, None)
        } else {
            (extensions.remove::<Provenance>(), extensions.get::<CallContext>().cloned())
        };
        let context = match context {
            Some(context) => {
                if let Some(deadline) = context.options().time().and_then(at) {
                    context.set_deadline(deadline);
                }
                context
            }
            None => {
                let options = extensions.remove::<CallOptions>().unwrap_or_default();
                let deadline = options.time().and_then(at);
                let context = CallContext::new(options, Some(started), deadline);
                extensions.insert(context.clone());
                context
            }
        };
        let id = context.id().unwrap_or_else(|| {
            let id = CallId::new(config.clock.at(started), config.seed.split().bits());
            context.set_id(id);
            id
        });
        let span = span::open(&context, id);
        let provenance = match handle {
            Some(handle) if handle.take(context.clone(), started) => handle,
            _ => Provenance::taken(context, started),
        };
        let (slot, place, reading) = (None, None, Reading::default());
        Self { config: Arc::clone(config), span, slot, place, provenance, reading }
    }

    /// Reads what the caller asks for, if somebody wants to know.
    pub(crate) fn read(&self, request: &Request<RequestBody>) {
        let is_wanted = L::KEEPS || self.config.answer_headers || !self.span.is_disabled();
        let Some(told) = self.provenance.told().filter(|_| is_wanted) else { return };
        let route = Route::of_request(request.method(), request.uri(), request.headers());
        let model = told.requested_model.get_or_init(|| text::model_of(route, request));
        span::tell_request(&self.span, route, model.as_deref());
    }

    /// Gives the start of the record to the ledger.
    pub(crate) fn start(&self, request: &Request<RequestBody>) -> Option<Start<L::Starting>> {
        let told = self.provenance.told()?;
        let caller_retry = request.headers().get(CALLER_RETRY);
        let started = CallStarted {
            call: told.context.id()?,
            labels: told.context.labels().clone(),
            path: request.uri().path().into(),
            requested_model: told.requested_model.get().cloned().flatten(),
            body: request.body().clone(),
            caller_retry: caller_retry.and_then(|count| count.to_str().ok()?.parse().ok()),
            at: self.config.clock.at(told.started),
        };
        Some(self.config.keeper.start(Started::Call(Box::new(started))))
    }

    /// The answer is there.
    ///
    /// # Errors
    /// It comes from a fallback, which the call forbids: it is to be thrown away.
    pub(crate) fn answer<RB>(&mut self, response: &Response<RB>) -> Result<(), Error> {
        self.place = None;
        let Some(told) = self.provenance.told() else { return Ok(()) };
        let rung = told.context.rung();
        if rung != 0 && told.context.options().forbids_fallback() {
            let what =
                format!("an answer of rung {rung} was thrown away: the call forbids fallback");
            told.context.note(Instant::now().into_std(), what);
            let reason = "the call forbids fallback, and a rung other than the primary answered";
            return Err(Error::refused_answer(reason));
        }
        let cell = AttemptCell::of(response).cloned();
        if cell.is_none() {
            let now = || self.config.clock.at(Instant::now().into_std());
            let (status, headers) = (response.status(), response.headers());
            let verdict = Verdict::of_head(status, headers, now);
            self.reading.failed = verdict.class().is_failure().then(|| Box::new(verdict));
            let announced = headers.get(CONTENT_LENGTH);
            self.reading.announced =
                announced.and_then(|length| length.to_str().ok()?.parse().ok());
        }
        let _ = told.answer.set(Answer { rung, cell });
        if !self.span.is_disabled() {
            self.span.record("http.response.status_code", response.status().as_u16());
        }
        Ok(())
    }

    /// What the caller is told of the call.
    pub(crate) const fn provenance(&self) -> &Provenance {
        &self.provenance
    }

    /// The word for the outcome while the answer's head is handed on: what is whole in our hands, or has
    /// failed, will be no different at its end.
    pub(crate) fn word_at_head(&self) -> &'static str {
        if let Some(outcome) = self.provenance.outcome() {
            return outcome.as_str();
        }
        let cell = self.provenance.told().and_then(|told| told.answer.get()?.cell.as_ref());
        match (self.verdict(), cell.and_then(AttemptCell::last_verdict)) {
            (Some(verdict), _) if verdict.class().is_failure() => {
                outcome_of(verdict, &self.config.actions).as_str()
            }
            (_, Some(_)) => Outcome::Ok.as_str(),
            _ => "open",
        }
    }

    /// Counts bytes that are handed on, and says whether these are the last that the head announces.
    pub(crate) fn hand_on(&mut self, len: usize) -> bool {
        self.reading.handed = self.reading.handed.saturating_add(len as u64);
        len > 0 && self.is_as_announced()
    }

    fn is_as_announced(&self) -> bool {
        self.reading.announced == Some(self.reading.handed)
    }

    fn verdict(&self) -> Option<&Verdict> {
        let told = self.provenance.told()?;
        told.answer.get().and_then(Answer::verdict).or(self.reading.failed.as_deref())
    }

    /// Whether every byte that was read before the answer's own end was seen is with the caller.
    fn has_handed_on_the_end(&self) -> bool {
        let Some(answer) = self.provenance.told().and_then(|told| told.answer.get()) else {
            return false;
        };
        match &answer.cell {
            Some(cell) => cell.last_verdict().is_some() && self.reading.handed >= cell.bytes(),
            None => self.is_as_announced(),
        }
    }

    /// The call ended without an answer.
    pub(crate) fn fail(&mut self, error: &Error) {
        let outcome = match error {
            Error::Attempt(attempt) => outcome_of(attempt.verdict(), &self.config.actions),
            Error::Exhausted(_) => Outcome::Incomplete,
            // Our own no, or the caller's fault: nothing was sent, or nothing came of it.
            _ => Outcome::Rejected,
        };
        let failure =
            error.verdict().map_or_else(|| error.kind(), |verdict| verdict.class().as_str());
        self.close(outcome, Some(failure), || Some(text::of_error(error)));
    }

    /// The answer ended.
    pub(crate) fn end(&mut self, end: End<'_>) {
        if self.provenance.outcome().is_some() {
            return;
        }
        let failed = self.verdict().filter(|verdict| verdict.class().is_failure()).cloned();
        match (end, failed) {
            // Known to have failed, whatever its reader made of it.
            (End::Broken(error), Some(verdict)) => {
                let outcome = outcome_of(&verdict, &self.config.actions);
                let failure = Some(verdict.class().as_str());
                self.close(outcome, failure, || Some(text::of_error(error)));
            }
            (End::Whole | End::Dropped, Some(verdict)) => {
                let outcome = outcome_of(&verdict, &self.config.actions);
                let text = || (outcome != Outcome::Cancelled).then(|| text::of_verdict(&verdict));
                self.close(outcome, Some(verdict.class().as_str()), text);
            }
            (End::Broken(error), None) => self.fail(error),
            (End::Whole, None) => self.close(Outcome::Ok, None, || None),
            (End::Dropped, None) if self.has_handed_on_the_end() => {
                self.close(Outcome::Ok, None, || None);
            }
            (End::Dropped, None) => {
                self.close(Outcome::Cancelled, Some(Class::Cancelled.as_str()), || None);
            }
        }
    }

    fn close(
        &mut self,
        outcome: Outcome,
        failure: Option<&str>,
        text: impl FnOnce() -> Option<Box<str>>,
    ) {
        self.place = None;
        let Self { provenance, span, slot, .. } = self;
        let Some(told) = provenance.told() else { return };
        if told.outcome.set(outcome).is_err() {
            return;
        }
        span::tell_end(span, told, outcome, failure);
        if L::KEEPS
            && let Some(slot) = slot.take()
            && let Some(finished) = finished(told, outcome, text())
        {
            slot.finish(Finished::Call(Box::new(finished)));
        }
    }
}

impl<L: Ledger> Drop for Open<L> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            // Nobody left; we broke. A record without a finish says so.
            if let Some(told) = self.provenance.told() {
                let _ = told.outcome.set(Outcome::Interrupted);
            }
            return;
        }
        self.end(End::Dropped);
    }
}

fn finished(told: &Told, outcome: Outcome, error: Option<Box<str>>) -> Option<CallFinished> {
    let answer = told.answer.get();
    let verdict = answer.and_then(Answer::verdict);
    // Who leaves in the middle of a good answer has got a part of it.
    let is_good = matches!(outcome, Outcome::Ok | Outcome::Cancelled);
    let decisions = told.context.decisions();
    Some(CallFinished {
        call: told.context.id()?,
        outcome,
        planned_chain: told.context.chain().cloned(),
        produced_by: answer.filter(|_| is_good).map(|answer| answer.rung),
        reported_model: verdict.and_then(Verdict::model).map(Into::into),
        attempts: told.context.attempts(),
        waited: told.context.waited_through(),
        decisions: decisions.map(|made| DecisionMade::new(made, told.started)).collect(),
        usage: verdict.and_then(Verdict::usage),
        duration: Instant::now().into_std().saturating_duration_since(told.started),
        error: error.map(|text| scrub(&text, MAX_TEXT).into()),
    })
}

/// What a failure makes of its call: what is returned at once is a no; what is tried again, or
/// elsewhere, was tried in vain.
fn outcome_of(verdict: &Verdict, actions: &ActionTable) -> Outcome {
    match (verdict.class(), actions.decide(verdict)) {
        (Class::Cancelled, _) => Outcome::Cancelled,
        // An answer that looked good and broke off all the same.
        (Class::Success, _) => Outcome::Incomplete,
        (_, Action::Return) => Outcome::Rejected,
        _ => Outcome::Incomplete,
    }
}

/// Sent by the official SDKs with each repeat of their own.
const CALLER_RETRY: &str = "x-stainless-retry-count";
