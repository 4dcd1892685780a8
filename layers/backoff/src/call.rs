use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::{Duration, Instant};

use backstop_core::dialect::is_stateful;
use backstop_core::error::{BoxError, Error};
use backstop_core::{
    Action, AttemptCell, CallContext, CallOptions, Exhausted, Guard, Next, OnExhausted, Original,
    RequestBody, Reservation, Retries, Verdict, WaitReason,
};
use http::{Extensions, Request, Response};
use tower_service::Service;

use crate::config::Config;
use crate::terms::Terms;

/// One call: what is needed to send it again, and the decision whether to.
///
/// A call that succeeds at once is moved about but never opened; so what only a failure needs is made
/// when one comes.
pub(crate) struct Call<S> {
    config: Arc<Config>,
    /// `None` where no other attempt can come.
    service: Option<S>,
    /// The request as it is sent; its body is empty until the caller's was read. Gone with the only
    /// attempt where no other can come.
    request: Option<Kept>,
    keeps_request: bool,
    terms: Terms,
    failed: Option<Box<Failed>>,
    /// The place that the request has in the process's buffers, as long as it is kept.
    place: Option<Reservation>,
}

/// The request, for another attempt.
#[expect(clippy::large_enum_variant, reason = "a box would be an allocation for every call")]
pub(crate) enum Kept {
    /// As it came to this layer.
    Own(Request<RequestBody>),
    /// As the router keeps it for every layer below: it is made anew from there.
    Shared(CallContext),
}

impl Kept {
    #[inline]
    pub(crate) fn of(request: &Request<RequestBody>) -> Self {
        match CallContext::of(request) {
            Some(context) if context.shares_original() => Self::Shared(context.clone()),
            _ => Self::Own(request.clone()),
        }
    }

    fn context(&self) -> Option<&CallContext> {
        match self {
            Self::Own(request) => CallContext::of(request),
            Self::Shared(context) => Some(context),
        }
    }

    fn body(&self) -> Option<&RequestBody> {
        match self {
            Self::Own(request) => Some(request.body()),
            Self::Shared(context) => context.original().map(Original::body),
        }
    }

    /// The request once more.
    fn again(&self) -> Option<Request<RequestBody>> {
        match self {
            Self::Own(request) => Some(request.clone()),
            // It fitted once.
            Self::Shared(context) => context.request_again()?.ok(),
        }
    }
}

/// What there is to remember once an attempt has failed.
#[derive(Default)]
struct Failed {
    retries: Retries,
    repeated_unprocessed: bool,
    /// An error of the service's readiness, met before the call began.
    unready: Option<Error>,
}

/// What follows the end of an attempt.
pub(crate) enum Step<RB> {
    /// The call is over.
    Done(Result<Response<RB>, Error>),
    /// Another attempt comes after `wait`; the failed answer's rest is to be let go.
    Again { answer: Option<RB>, wait: Duration },
}

impl<S> Call<S> {
    /// A call whose `request` is still to be sent, or is kept to be sent again.
    // Nothing but the literal: a request has 256 bytes, and every stop on its way here copies them.
    #[inline(always)]
    pub(crate) fn new(
        service: Option<S>,
        config: Arc<Config>,
        terms: Terms,
        request: Option<Kept>,
        keeps_request: bool,
        place: Option<Reservation>,
    ) -> Self {
        Self { config, service, request, keeps_request, terms, failed: None, place }
    }

    pub(crate) fn retries(&self) -> u32 {
        self.failed.as_ref().map_or(0, |failed| failed.retries.count())
    }

    pub(crate) const fn deadline(&self) -> Option<Instant> {
        self.terms.deadline
    }

    /// Remembers an error of the service's readiness until the body is there.
    pub(crate) fn remember(&mut self, unready: Option<Error>) {
        if unready.is_some() {
            self.failed.get_or_insert_default().unready = unready;
        }
    }

    /// Takes the body, and says what was met before it was there.
    pub(crate) fn take_body(
        &mut self,
        body: RequestBody,
        place: Option<Reservation>,
    ) -> Option<Error> {
        self.place = place.filter(|_| self.keeps_request);
        if let Some(Kept::Own(request)) = &mut self.request {
            *request.body_mut() = body;
            begin_first(request.extensions());
        }
        self.failed.as_mut()?.unready.take()
    }

    fn context(&self) -> Option<&CallContext> {
        self.request.as_ref()?.context()
    }
}

impl<S> Call<S>
where
    S: Service<Request<RequestBody>>,
    S::Error: Into<BoxError>,
{
    /// Waits for the service's readiness and calls it.
    pub(crate) fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<S::Future, Error>> {
        let Some(service) = &mut self.service else { return Poll::Pending };
        if let Err(error) = ready!(service.poll_ready(cx)) {
            return Poll::Ready(Err(Error::from_inner(error)));
        }
        let request = match &self.request {
            Some(kept) if self.keeps_request => kept.again(),
            _ => match self.request.take() {
                Some(Kept::Own(request)) => Some(request),
                Some(shared) => shared.again(),
                None => None,
            },
        };
        match request {
            Some(request) => Poll::Ready(Ok(service.call(request))),
            None => Poll::Pending,
        }
    }

    /// Decides what the failure of an attempt leads to; of one that `was_sent`, or of one that failed
    /// before it was, for example because the service never got ready for it.
    #[cold]
    pub(crate) fn settle<RB>(
        &mut self,
        mut result: Result<Response<RB>, Error>,
        was_sent: bool,
    ) -> Step<RB> {
        let now = tokio::time::Instant::now().into_std();
        let verdict = match &result {
            Ok(response) => Verdict::of_answer(response, || self.config.clock.at(now)),
            Err(Error::Attempt(attempt)) => attempt.verdict().clone(),
            // Our own word, from a layer below: no attempt was made, so none is repeated.
            Err(_) => return Step::Done(result),
        };
        if verdict.is_unprocessed() && self.may_repeat_at_once() {
            self.announce(Duration::ZERO, WaitReason::Unprocessed, &verdict);
            return Step::Again { answer: None, wait: Duration::ZERO };
        }
        if !verdict.class().is_failure() || self.config.actions.decide(&verdict) != Action::Retry {
            present_failure(&mut result);
            return Step::Done(result);
        }
        let may_be_done = was_sent && verdict.may_be_processed();
        if may_be_done && !self.terms.retry_stateful(&self.config) && self.is_stateful() {
            return Step::Done(self.exhaust(Guard::Stateful, verdict, result));
        }
        let mut failed = self.failed.take().unwrap_or_default();
        let Config { schedule, seed, .. } = &*self.config;
        let bounds = self.terms.bounds(&self.config);
        let next = failed.retries.next(schedule, &bounds, verdict.hint(), now, seed);
        self.failed = Some(failed);
        match next {
            Next::Wait { wait, reason } => {
                self.announce(wait, reason, &verdict);
                let answer = result.ok().map(Response::into_body);
                Step::Again { answer, wait }
            }
            Next::Stop(guard) => Step::Done(self.exhaust(guard, verdict, result)),
        }
    }

    /// Once for a call; never where it is allowed no second attempt at all.
    fn may_repeat_at_once(&mut self) -> bool {
        let failed = self.failed.get_or_insert_default();
        !std::mem::replace(&mut failed.repeated_unprocessed, true)
            && self.keeps_request
            && !self.terms.bounds(&self.config).allow_no_retry()
    }

    fn is_stateful(&self) -> bool {
        let body = self.request.as_ref().and_then(Kept::body);
        body.is_some_and(|body| is_stateful(&body.to_bytes()))
    }

    /// Tells the layers below, and whoever listens, that another attempt comes.
    fn announce(&mut self, wait: Duration, reason: WaitReason, verdict: &Verdict) {
        let attempt = match self.context() {
            Some(context) => {
                context.begin_next(wait, reason);
                context.attempt()
            }
            None => self.insert_context(wait, reason),
        };
        let wait_ms = u64::try_from(wait.as_millis()).unwrap_or(u64::MAX);
        let class = verdict.class().as_str();
        let status = verdict.status().map(|status| status.as_u16());
        let (code, reason) = (verdict.code(), reason.as_str());
        // Hours of silent waiting look like a hang: long waits are to be seen without asking.
        if wait >= LONG_WAIT {
            tracing::warn!(
                target: "backstop::attempt", attempt, class, status, code, wait_ms, reason,
                "the attempt failed; the next one comes after a long wait"
            );
        } else {
            tracing::debug!(
                target: "backstop::attempt", attempt, class, status, code, wait_ms, reason,
                "the attempt failed; another one comes"
            );
        }
    }

    /// The first retry of a layer that stands alone: from here on there is something to tell.
    fn insert_context(&mut self, wait: Duration, reason: WaitReason) -> u32 {
        let deadline = self.terms.deadline;
        let Some(Kept::Own(request)) = &mut self.request else { return 0 };
        let options = request.extensions().get::<CallOptions>().cloned().unwrap_or_default();
        let context = CallContext::new(options, None, deadline);
        context.begin_first();
        context.begin_next(wait, reason);
        let attempt = context.attempt();
        request.extensions_mut().insert(context);
        attempt
    }

    fn exhaust<RB>(
        &self,
        guard: Guard,
        verdict: Verdict,
        mut result: Result<Response<RB>, Error>,
    ) -> Result<Response<RB>, Error> {
        let nothing = Retries::new();
        let retries = self.failed.as_ref().map_or(&nothing, |failed| &failed.retries);
        tracing::debug!(
            target: "backstop::attempt",
            retries = retries.count(), class = verdict.class().as_str(), guard = guard.as_str(),
            "the attempt failed; no other comes"
        );
        let as_error = self.terms.on_exhausted(&self.config) == OnExhausted::Error;
        let request = match &self.request {
            Some(kept) if as_error || result.is_err() => kept.again(),
            _ => None,
        };
        let Some(request) = request else {
            present_failure(&mut result);
            return result;
        };
        let exhausted = Exhausted::new(request.uri(), guard, verdict)
            .with_label(
                CallOptions::of(request.extensions())
                    .map(CallOptions::labels)
                    .and_then(|labels| labels.node.as_deref().or(labels.run.as_deref())),
            )
            .with_retries(retries.count(), retries.waited())
            .with_disabled(self.terms.bounds(&self.config).guards.disabled())
            .with_source(result.err().map(Into::into));
        let exhausted = if as_error { exhausted.as_timeout() } else { exhausted };
        Err(Error::Exhausted(Box::new(exhausted)))
    }
}

/// Tells the layers below that the call begins, if there is something to tell it by.
pub(crate) fn begin_first(extensions: &Extensions) {
    if let Some(context) = extensions.get::<CallContext>() {
        context.begin_first();
    }
}

/// What failed under a status that says success must not pass for one.
#[inline]
pub(crate) fn present_failure<RB>(result: &mut Result<Response<RB>, Error>) {
    if let Ok(response) = result {
        AttemptCell::present_failure(response);
    }
}

/// Longer than a person watching a run would take for normal (inspect_ai#3693).
const LONG_WAIT: Duration = Duration::from_secs(10);
