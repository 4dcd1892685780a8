use std::sync::Arc;
use std::time::Duration;

use backstop_core::dialect::Route;
use backstop_core::error::Error;
use backstop_core::{
    AttemptCell, CallContext, CallId, Class, Verdict, WaitReason, scrub, without_query,
};
use http::header::CONTENT_LENGTH;
use http::{Request, Response, StatusCode};
use http_body::Body;
use tokio::time::Instant;
use tracing::Span;

use crate::attempt::config::Config;
use crate::attempt::span;
use crate::keep::{MAX_TEXT, Start};
use crate::ledger::{Ledger, Slot};
use crate::record::{AttemptFinished, AttemptStarted, Finished, Started};
use crate::text;

/// Where an attempt stands in its call.
pub(crate) struct Numbered {
    /// From 1.
    pub(crate) number: u32,
    /// From 0.
    pub(crate) rung: u32,
    /// The wait that was announced before it.
    pub(crate) wait: Option<(Duration, WaitReason)>,
}

impl Numbered {
    /// The next attempt of a call; the first of one that nobody knows anything of.
    pub(crate) fn next(context: Option<&CallContext>) -> Self {
        match context {
            Some(context) => {
                let (number, wait) = context.number_attempt();
                Self { number, rung: context.rung(), wait }
            }
            None => Self { number: 1, rung: 0, wait: None },
        }
    }
}

/// An attempt that is not over: its record is finished exactly once, at the latest when this is dropped.
pub(crate) struct Open<L: Ledger> {
    pub(crate) config: Arc<Config<L>>,
    pub(crate) span: Span,
    /// The place for the record's finish; `None` where none was started, or it is finished.
    pub(crate) slot: Option<L::Slot>,
    context: Option<CallContext>,
    number: u32,
    left: Instant,
    answer: Option<Answer>,
    is_over: bool,
}

/// The answer as far as it is there.
struct Answer {
    status: StatusCode,
    head: Duration,
    cell: Option<AttemptCell>,
    /// The verdict on a head that tells of a failure, where there was no classifier to look further.
    failed: Option<Box<Verdict>>,
    first_byte: Option<Duration>,
    bytes: u64,
    /// How many bytes the head announces, where there is no classifier to tell the end.
    announced: Option<u64>,
}

impl<L: Ledger> Open<L> {
    /// An attempt of the call that `context` tells of.
    pub(crate) fn begin(
        config: &Arc<Config<L>>,
        context: Option<&CallContext>,
        span: Span,
        number: u32,
    ) -> Self {
        Self {
            config: Arc::clone(config),
            span,
            slot: None,
            context: context.cloned(),
            number,
            left: Instant::now(),
            answer: None,
            is_over: false,
        }
    }

    /// Gives the start of the record to the ledger.
    pub(crate) fn start<B: Body + 'static>(
        &self,
        request: &Request<B>,
        numbered: &Numbered,
    ) -> Start<L::Starting> {
        let context = self.context.as_ref();
        let model = match context.and_then(CallContext::profile) {
            Some(profile) => Some(profile.model().into()),
            None => {
                let route = Route::of_request(request.method(), request.uri(), request.headers());
                text::model_of(route, request)
            }
        };
        let size = request.body().size_hint();
        let started = AttemptStarted {
            call: self.call(),
            attempt: numbered.number,
            rung: numbered.rung,
            chain: context.and_then(CallContext::chain).cloned(),
            model,
            endpoint: without_query(request.uri()),
            request_bytes: size.exact().unwrap_or_else(|| size.lower()),
            wait: numbered.wait,
            at: self.config.clock.at(self.left.into_std()),
        };
        self.config.keeper.start(Started::Attempt(Box::new(started)))
    }

    fn call(&self) -> Option<CallId> {
        self.context.as_ref()?.id()
    }

    /// The attempt leaves now.
    pub(crate) fn leave(&mut self) {
        self.left = Instant::now();
        if let Some(context) = &self.context {
            context.count_attempt();
        }
    }

    /// Nothing is sent: that was no attempt, and there is nothing to record.
    pub(crate) const fn forget(&mut self) {
        self.is_over = true;
    }

    /// The answer's head is there.
    pub(crate) fn answer<RB>(&mut self, response: &Response<RB>) {
        let status = response.status();
        span::tell_status(&self.span, status);
        let cell = AttemptCell::of(response).cloned();
        let (mut failed, mut announced) = (None, None);
        if cell.is_none() {
            let now = || self.config.clock.at(Instant::now().into_std());
            let verdict = Verdict::of_head(status, response.headers(), now);
            failed = verdict.class().is_failure().then(|| Box::new(verdict));
            let length = response.headers().get(CONTENT_LENGTH);
            announced = length.and_then(|length| length.to_str().ok()?.parse().ok());
        }
        let (head, first_byte) = (self.left.elapsed(), None);
        self.answer = Some(Answer { status, head, cell, failed, first_byte, bytes: 0, announced });
    }

    /// Counts bytes that are handed on, and says whether these are the last that the head announces.
    pub(crate) fn hand_on(&mut self, len: usize) -> bool {
        let Some(answer) = self.answer.as_mut().filter(|_| len > 0) else { return false };
        if answer.bytes == 0 && answer.cell.is_none() {
            answer.first_byte = Some(self.left.elapsed());
        }
        answer.bytes = answer.bytes.saturating_add(len as u64);
        answer.announced == Some(answer.bytes)
    }

    /// There was no answer, or it broke off.
    pub(crate) fn fail(&mut self, error: &Error) {
        let known = self.answer.as_ref().and_then(Answer::verdict);
        let known = known.filter(|verdict| verdict.class().is_failure());
        match known.or_else(|| error.verdict()).cloned() {
            // An answer that looked good and broke off all the same.
            Some(verdict) if !verdict.class().is_failure() => {
                self.finish(Class::Transient.as_str(), Some(&verdict), Some(error));
            }
            Some(verdict) => self.finish(verdict.class().as_str(), Some(&verdict), Some(error)),
            None => self.finish(error.kind(), None, Some(error)),
        }
    }

    /// The answer came to its end.
    pub(crate) fn end(&mut self) {
        let verdict = self.answer.as_ref().and_then(Answer::verdict).cloned();
        let class = verdict.as_ref().map_or(Class::Success, Verdict::class);
        self.finish(class.as_str(), verdict.as_ref(), None);
    }

    fn abandon(&mut self) {
        let is_as_announced =
            |answer: &Answer| answer.cell.is_none() && answer.announced == Some(answer.bytes);
        match &self.answer {
            // A failure is one, whoever lost interest in its body. Where the end was seen, it is there.
            Some(answer) if answer.is_judged() || is_as_announced(answer) => self.end(),
            _ => {
                let class = if self.is_late() { Class::Timeout } else { Class::Cancelled };
                let verdict = self.answer.as_ref().and_then(Answer::verdict).cloned();
                self.finish(class.as_str(), verdict.as_ref(), None);
            }
        }
    }

    /// Whether it was the call's deadline that cut the attempt.
    fn is_late(&self) -> bool {
        let deadline = self.context.as_ref().and_then(CallContext::deadline);
        deadline.is_some_and(|at| at <= Instant::now().into_std())
    }

    fn finish(&mut self, class: &'static str, verdict: Option<&Verdict>, error: Option<&Error>) {
        if std::mem::replace(&mut self.is_over, true) {
            return;
        }
        let finished = self.finished(class, verdict, error);
        span::tell_end(&self.span, &finished);
        if let Some(slot) = self.slot.take() {
            slot.finish(Finished::Attempt(Box::new(finished)));
        }
    }

    fn finished(
        &self,
        class: &'static str,
        verdict: Option<&Verdict>,
        error: Option<&Error>,
    ) -> AttemptFinished {
        let answer = self.answer.as_ref();
        let cell = answer.and_then(|answer| answer.cell.as_ref());
        // The classifier's clock starts when it first needs one.
        let later = cell.map(|cell| cell.started().saturating_duration_since(self.left.into_std()));
        let since_left = |at: Option<Duration>| Some(at?.saturating_add(later?));
        let words = verdict.and_then(Verdict::message).map(Into::into);
        let is_failure = class != Class::Success.as_str();
        AttemptFinished {
            call: self.call(),
            attempt: self.number,
            status: answer
                .map(|answer| answer.status)
                .or_else(|| verdict.and_then(Verdict::status)),
            class,
            code: verdict.and_then(Verdict::code).map(Into::into),
            hint: verdict.and_then(Verdict::hint).map(|hint| hint.wait()),
            request_id: verdict.and_then(Verdict::request_id).map(Into::into),
            reported_model: verdict.and_then(Verdict::model).map(Into::into),
            unprocessed: verdict.is_some_and(Verdict::is_unprocessed),
            head: since_left(cell.and_then(AttemptCell::head))
                .or_else(|| answer.map(|answer| answer.head)),
            first_byte: since_left(cell.and_then(AttemptCell::first_byte))
                .or_else(|| answer.and_then(|answer| answer.first_byte)),
            first_content: since_left(cell.and_then(AttemptCell::first_content)),
            duration: since_left(cell.and_then(AttemptCell::end))
                .unwrap_or_else(|| self.left.elapsed()),
            bytes: cell.map_or_else(|| answer.map_or(0, |answer| answer.bytes), AttemptCell::bytes),
            stream_end: verdict.and_then(Verdict::stream_end),
            usage: verdict.and_then(Verdict::usage),
            error: words
                .or_else(|| error.map(text::of_error))
                .filter(|_| is_failure)
                .map(|text: Box<str>| scrub(&text, MAX_TEXT).into()),
        }
    }
}

impl Answer {
    /// The last verdict on it, else the one with which it was handed on, else that on its head.
    fn verdict(&self) -> Option<&Verdict> {
        let of_cell = |cell: &'_ AttemptCell| cell.last_verdict().is_some();
        match &self.cell {
            Some(cell) if of_cell(cell) => cell.last_verdict(),
            Some(cell) => cell.verdict(),
            None => self.failed.as_deref(),
        }
    }

    /// Whether it is known what it amounts to, although its body was not read to the end.
    fn is_judged(&self) -> bool {
        let is_over = self.cell.as_ref().is_some_and(|cell| cell.last_verdict().is_some());
        is_over || self.verdict().is_some_and(|verdict| verdict.class().is_failure())
    }
}

impl<L: Ledger> Drop for Open<L> {
    fn drop(&mut self) {
        // A panic is nobody's leaving: a record without a finish says so.
        if !self.is_over && !std::thread::panicking() {
            self.abandon();
        }
    }
}
