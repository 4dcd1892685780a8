use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use backstop_core::dialect::Dialect;
use backstop_core::error::{BoxError, Error};
use backstop_core::{
    Action, AttemptCell, Bounds, CallContext, CallOptions, Class, Exhausted, Guard, Next,
    OnExhausted, RequestBody, Retries, Verdict, WaitReason,
};
use http::request::Parts;
use http::{Request, Response};
use tokio::time::Instant;
use tower_service::Service;

use crate::config::Config;

/// One call: what is needed to send it again, and the decision whether to.
pub(crate) struct Call<S> {
    config: Arc<Config>,
    /// `None` once the call is over: what it held of the service below is given back at once.
    service: Option<S>,
    /// Whether `service` was polled ready and not called since.
    is_ready: bool,
    unready: Option<Error>,
    head: Head,
    body: RequestBody,
    bounds: Bounds,
    on_exhausted: OnExhausted,
    retry_stateful: bool,
    retries: Retries,
    repeated_unprocessed: bool,
}

/// The request's head: kept for more attempts, or gone with the only one.
enum Head {
    Gone,
    Kept(Parts),
    Once(Parts),
}

/// What follows the end of an attempt.
pub(crate) enum Step<RB> {
    /// The call is over.
    Done(Result<Response<RB>, Error>),
    /// Another attempt comes after `wait`; the failed answer's rest is to be let go.
    Again { answer: Option<RB>, wait: Duration },
}

impl<S> Call<S> {
    pub(crate) fn new(
        service: S,
        config: Arc<Config>,
        mut head: Parts,
        unready: Option<Error>,
    ) -> Self {
        let mut bounds = Bounds::new(config.guards.clone());
        let mut on_exhausted = config.on_exhausted;
        let mut retry_stateful = config.retry_stateful;
        let mut time = config.deadline;
        let context = head.extensions.get::<CallContext>();
        if let Some(context) = context {
            let rung = context.rung();
            let planned = context.chain().and_then(|chain| chain.rungs().get(rung as usize));
            bounds.attempts = planned.map(backstop_core::Rung::attempts);
            bounds.deadline = context.deadline();
        }
        let options = context.map(CallContext::options).or_else(|| head.extensions.get());
        if let Some(options) = options {
            bounds.guards = options.guards(&config.guards);
            if context.is_none_or(|context| context.rung() == 0) {
                bounds.attempts = options.attempts().or(bounds.attempts);
            }
            on_exhausted = options.exhaustion().unwrap_or(on_exhausted);
            retry_stateful = options.stateful().unwrap_or(retry_stateful);
            time = options.time().or(time);
        }
        if let (None, Some(time)) = (bounds.deadline, time) {
            let now = Instant::now();
            bounds.deadline = now.checked_add(time).map(Instant::into_std);
            let options = options.cloned().unwrap_or_default();
            let context = CallContext::new(options, Some(now.into_std()), bounds.deadline);
            head.extensions.insert(context);
        }
        let is_kept = !bounds.allow_no_retry() || on_exhausted == OnExhausted::Error;
        Self {
            config,
            service: Some(service),
            is_ready: unready.is_none(),
            unready,
            head: if is_kept { Head::Kept(head) } else { Head::Once(head) },
            body: RequestBody::empty(),
            bounds,
            on_exhausted,
            retry_stateful,
            retries: Retries::new(),
            repeated_unprocessed: false,
        }
    }

    pub(crate) const fn retries(&self) -> &Retries {
        &self.retries
    }

    pub(crate) const fn deadline(&self) -> Option<std::time::Instant> {
        self.bounds.deadline
    }

    /// Takes the body; the first attempt can begin, or has failed already.
    pub(crate) fn start(&mut self, body: RequestBody) -> Result<(), Error> {
        self.body = body;
        if let Some(context) = self.context() {
            context.begin_first();
        }
        self.unready.take().map_or(Ok(()), Err)
    }

    /// Gives up what the service was polled ready for, while a slow caller sends its body: others
    /// can use the place.
    pub(crate) fn give_back_readiness(&mut self)
    where
        S: Clone,
    {
        if self.is_ready {
            self.service = self.service.clone();
            self.is_ready = false;
        }
    }

    /// Lets go of the service, and with it of anything reserved.
    pub(crate) fn end(&mut self) {
        self.service = None;
    }

    fn context(&self) -> Option<&CallContext> {
        self.parts()?.extensions.get()
    }

    fn parts(&self) -> Option<&Parts> {
        match &self.head {
            Head::Kept(parts) | Head::Once(parts) => Some(parts),
            Head::Gone => None,
        }
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
        if !self.is_ready {
            match service.poll_ready(cx) {
                Poll::Pending => return Poll::Pending,
                Poll::Ready(Err(error)) => return Poll::Ready(Err(Error::from_inner(error))),
                Poll::Ready(Ok(())) => {}
            }
        }
        self.is_ready = false;
        let (head, body) = match &self.head {
            Head::Kept(head) => (head.clone(), self.body.clone()),
            Head::Once(_) | Head::Gone => match std::mem::replace(&mut self.head, Head::Gone) {
                Head::Once(head) | Head::Kept(head) => (head, std::mem::take(&mut self.body)),
                Head::Gone => return Poll::Pending,
            },
        };
        Poll::Ready(Ok(service.call(Request::from_parts(head, body))))
    }

    /// Decides what the end of an attempt leads to.
    pub(crate) fn settle<RB>(&mut self, result: Result<Response<RB>, Error>) -> Step<RB> {
        let verdict = match &result {
            Ok(response) => match Verdict::of(response) {
                Some(verdict) if !verdict.class().is_failure() => return Step::Done(result),
                Some(verdict) => verdict.clone(),
                None if response.status().is_success() => return Step::Done(result),
                None => {
                    let clock = &self.config.clock;
                    Verdict::of_head(response.status(), response.headers(), || {
                        clock.at(Instant::now().into_std())
                    })
                }
            },
            Err(Error::Attempt(attempt)) => attempt.verdict().clone(),
            // Our own word, from a layer below: no attempt was made, so none is repeated.
            Err(_) => return Step::Done(result),
        };
        if verdict.is_unprocessed() && !self.repeated_unprocessed && self.can_send_again() {
            self.repeated_unprocessed = true;
            self.announce(Duration::ZERO, WaitReason::Unprocessed, &verdict);
            return Step::Again { answer: None, wait: Duration::ZERO };
        }
        if !verdict.class().is_failure() || self.config.actions.decide(&verdict) != Action::Retry {
            return Step::Done(hand_back(result));
        }
        if !self.retry_stateful && may_be_processed(&verdict) && self.is_stateful() {
            return Step::Done(self.exhaust(Guard::Stateful, verdict, result));
        }
        let Config { schedule, seed, .. } = &*self.config;
        let now = Instant::now().into_std();
        match self.retries.next(schedule, &self.bounds, verdict.hint(), now, seed) {
            Next::Wait { wait, reason } => {
                self.announce(wait, reason, &verdict);
                let answer = result.ok().map(Response::into_body);
                Step::Again { answer, wait }
            }
            Next::Stop(guard) => Step::Done(self.exhaust(guard, verdict, result)),
        }
    }

    const fn can_send_again(&self) -> bool {
        matches!(self.head, Head::Kept(_)) && !matches!(self.service, None)
    }

    fn is_stateful(&self) -> bool {
        let Some(head) = self.parts() else { return false };
        Dialect::of_request(&head.uri, &head.headers)
            .is_some_and(|dialect| dialect.is_stateful(&self.body.to_bytes()))
    }

    /// Tells the layers below, and whoever listens, that another attempt comes.
    fn announce(&mut self, wait: Duration, reason: WaitReason, verdict: &Verdict) {
        let attempt = match self.context() {
            Some(context) => {
                context.begin_next(wait);
                context.attempt()
            }
            None => self.insert_context(wait),
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
    fn insert_context(&mut self, wait: Duration) -> u32 {
        let (Head::Kept(head) | Head::Once(head)) = &mut self.head else { return 0 };
        let options = head.extensions.get::<CallOptions>().cloned().unwrap_or_default();
        let context = CallContext::new(options, None, self.bounds.deadline);
        context.begin_first();
        context.begin_next(wait);
        let attempt = context.attempt();
        head.extensions.insert(context);
        attempt
    }

    fn exhaust<RB>(
        &self,
        guard: Guard,
        verdict: Verdict,
        result: Result<Response<RB>, Error>,
    ) -> Result<Response<RB>, Error> {
        tracing::debug!(
            target: "backstop::attempt",
            retries = self.retries.count(), class = verdict.class().as_str(), guard = guard.as_str(),
            "the attempt failed; no other comes"
        );
        let as_error = self.on_exhausted == OnExhausted::Error;
        let (Some(head), true) = (self.parts(), as_error || result.is_err()) else {
            return hand_back(result);
        };
        let label = head
            .extensions
            .get::<CallContext>()
            .map(CallContext::labels)
            .or_else(|| head.extensions.get().map(CallOptions::labels))
            .and_then(|labels| labels.node.as_deref().or(labels.run.as_deref()));
        let exhausted = Exhausted::new(&head.uri, guard, verdict)
            .with_label(label)
            .with_retries(self.retries.count(), self.retries.waited())
            .with_disabled(self.bounds.guards.disabled())
            .with_source(result.err().map(Into::into));
        let exhausted = if as_error { exhausted.as_timeout() } else { exhausted };
        Err(Error::Exhausted(Box::new(exhausted)))
    }
}

/// What failed under a status that says success must not pass for one.
fn hand_back<RB>(result: Result<Response<RB>, Error>) -> Result<Response<RB>, Error> {
    result.map(|mut response| {
        AttemptCell::present_failure(&mut response);
        response
    })
}

/// A status that turns a request away at the door says that nothing was done with it.
fn may_be_processed(verdict: &Verdict) -> bool {
    let turned_away = matches!(verdict.class(), Class::RateLimited | Class::Overloaded)
        && verdict.status().is_some_and(|status| !status.is_success());
    !turned_away && !verdict.is_unprocessed()
}

/// Longer than a person watching a run would take for normal (inspect_ai#3693).
const LONG_WAIT: Duration = Duration::from_secs(10);
