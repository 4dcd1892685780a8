use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use backstop_core::dialect::Dialect;
use backstop_core::error::{BoxError, Error};
use backstop_core::{
    Action, AttemptCell, Bounds, CallContext, CallOptions, Class, Exhausted, Guard, Labels, Next,
    OnExhausted, RequestBody, Retries, Rung, Verdict, WaitReason,
};
use http::request::Parts;
use http::{Request, Response};
use tower_service::Service;

use crate::config::Config;

/// One call: what is needed to send it again, and the decision whether to.
///
/// A call that succeeds at once is moved about but never opened; so what only a failure needs is made
/// when one comes.
pub(crate) struct Call<S> {
    config: Arc<Config>,
    /// `None` once the call is over: what it held of the service below is given back at once.
    service: Option<S>,
    /// Whether `service` was polled ready and not called since.
    is_ready: bool,
    head: Head,
    body: RequestBody,
    deadline: Option<Instant>,
    /// What this call wants otherwise than the layer is set; rare.
    own: Option<Box<Own>>,
    failed: Option<Box<Failed>>,
}

/// The request's head: kept for more attempts, or gone with the only one.
enum Head {
    Gone,
    Kept(Parts),
    Once(Parts),
}

/// The settings as they are for one call.
struct Own {
    bounds: Bounds,
    on_exhausted: OnExhausted,
    retry_stateful: bool,
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
    pub(crate) fn new(
        service: S,
        config: Arc<Config>,
        mut head: Parts,
        unready: Option<Error>,
    ) -> Self {
        let own = own(&config, &mut head);
        let is_kept = match &own {
            Some(own) => !own.bounds.allow_no_retry() || own.on_exhausted == OnExhausted::Error,
            None => config.keeps_head,
        };
        Self {
            config,
            service: Some(service),
            is_ready: unready.is_none(),
            head: if is_kept { Head::Kept(head) } else { Head::Once(head) },
            body: RequestBody::empty(),
            deadline: own.as_ref().and_then(|own| own.bounds.deadline),
            own,
            failed: unready
                .map(|unready| Box::new(Failed { unready: Some(unready), ..Failed::default() })),
        }
    }

    pub(crate) fn retries(&self) -> u32 {
        self.failed.as_ref().map_or(0, |failed| failed.retries.count())
    }

    pub(crate) const fn deadline(&self) -> Option<Instant> {
        self.deadline
    }

    /// Takes the body; the first attempt can begin, or has failed already.
    pub(crate) fn start(&mut self, body: RequestBody) -> Result<(), Error> {
        self.body = body;
        if self.own.is_some()
            && let Some(context) = self.context()
        {
            context.begin_first();
        }
        match self.failed.as_mut().and_then(|failed| failed.unready.take()) {
            Some(unready) => Err(unready),
            None => Ok(()),
        }
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

    const fn parts(&self) -> Option<&Parts> {
        match &self.head {
            Head::Kept(parts) | Head::Once(parts) => Some(parts),
            Head::Gone => None,
        }
    }

    fn on_exhausted(&self) -> OnExhausted {
        self.own.as_ref().map_or(self.config.on_exhausted, |own| own.on_exhausted)
    }

    fn retries_stateful(&self) -> bool {
        self.own.as_ref().map_or(self.config.retry_stateful, |own| own.retry_stateful)
    }

    fn bounds(&self) -> &Bounds {
        self.own.as_ref().map_or(&self.config.bounds, |own| &own.bounds)
    }
}

/// What the request's extensions, a layer above or the deadline set for this call.
fn own(config: &Config, head: &mut Parts) -> Option<Box<Own>> {
    let context = head.extensions.get::<CallContext>();
    let options = match context {
        Some(context) => Some(context.options()),
        None => head.extensions.get::<CallOptions>(),
    };
    if options.is_none() && config.deadline.is_none() {
        return None;
    }
    let mut bounds = config.bounds.clone();
    if let Some(context) = context {
        let planned = context.chain().and_then(|chain| chain.rungs().get(context.rung() as usize));
        bounds.attempts = planned.map(Rung::attempts);
        bounds.deadline = context.deadline();
    }
    if let Some(options) = options {
        bounds.guards = options.guards(&bounds.guards);
        // The caller's number counts for the primary; a fallback has its own.
        if context.is_none_or(|context| context.rung() == 0) {
            bounds.attempts = options.attempts().or(bounds.attempts);
        }
    }
    let on_exhausted = options.and_then(CallOptions::exhaustion).unwrap_or(config.on_exhausted);
    let retry_stateful = options.and_then(CallOptions::stateful).unwrap_or(config.retry_stateful);
    let time = options.and_then(CallOptions::time).or(config.deadline);
    if let (None, Some(time)) = (bounds.deadline, time) {
        let now = tokio::time::Instant::now();
        bounds.deadline = now.checked_add(time).map(tokio::time::Instant::into_std);
        let options = options.cloned().unwrap_or_default();
        let context = CallContext::new(options, Some(now.into_std()), bounds.deadline);
        // The layers below must stop at the same instant.
        head.extensions.insert(context);
    }
    Some(Box::new(Own { bounds, on_exhausted, retry_stateful }))
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
        let request = match &mut self.head {
            Head::Kept(head) => Request::from_parts(head.clone(), self.body.clone()),
            head => match std::mem::replace(head, Head::Gone) {
                Head::Once(head) | Head::Kept(head) => {
                    Request::from_parts(head, std::mem::take(&mut self.body))
                }
                Head::Gone => return Poll::Pending,
            },
        };
        Poll::Ready(Ok(service.call(request)))
    }

    /// Decides what the end of an attempt leads to.
    pub(crate) fn settle<RB>(&mut self, result: Result<Response<RB>, Error>) -> Step<RB> {
        if let Ok(response) = &result {
            let is_good = match Verdict::of(response) {
                Some(verdict) => !verdict.class().is_failure(),
                None => response.status().is_success(),
            };
            if is_good {
                return Step::Done(result);
            }
        }
        self.settle_failure(result)
    }

    #[cold]
    fn settle_failure<RB>(&mut self, result: Result<Response<RB>, Error>) -> Step<RB> {
        let now = tokio::time::Instant::now().into_std();
        let verdict = match &result {
            Ok(response) => match Verdict::of(response) {
                Some(verdict) => verdict.clone(),
                None => {
                    let wall = || self.config.clock.at(now);
                    Verdict::of_head(response.status(), response.headers(), wall)
                }
            },
            Err(Error::Attempt(attempt)) => attempt.verdict().clone(),
            // Our own word, from a layer below: no attempt was made, so none is repeated.
            Err(_) => return Step::Done(result),
        };
        if verdict.is_unprocessed() && self.may_repeat_at_once() {
            self.announce(Duration::ZERO, WaitReason::Unprocessed, &verdict);
            return Step::Again { answer: None, wait: Duration::ZERO };
        }
        if !verdict.class().is_failure() || self.config.actions.decide(&verdict) != Action::Retry {
            return Step::Done(hand_back(result));
        }
        if !self.retries_stateful() && may_be_processed(&verdict) && self.is_stateful() {
            return Step::Done(self.exhaust(Guard::Stateful, verdict, result));
        }
        let mut failed = self.failed.take().unwrap_or_default();
        let Config { schedule, seed, .. } = &*self.config;
        let next = failed.retries.next(schedule, self.bounds(), verdict.hint(), now, seed);
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

    /// Once for a call, and only while there is a head to send.
    fn may_repeat_at_once(&mut self) -> bool {
        let failed = self.failed.get_or_insert_default();
        !std::mem::replace(&mut failed.repeated_unprocessed, true)
            && matches!(self.head, Head::Kept(_))
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
        let deadline = self.deadline;
        let (Head::Kept(head) | Head::Once(head)) = &mut self.head else { return 0 };
        let options = head.extensions.get::<CallOptions>().cloned().unwrap_or_default();
        let context = CallContext::new(options, None, deadline);
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
        let nothing = Retries::new();
        let retries = self.failed.as_ref().map_or(&nothing, |failed| &failed.retries);
        tracing::debug!(
            target: "backstop::attempt",
            retries = retries.count(), class = verdict.class().as_str(), guard = guard.as_str(),
            "the attempt failed; no other comes"
        );
        let as_error = self.on_exhausted() == OnExhausted::Error;
        let (Some(head), true) = (self.parts(), as_error || result.is_err()) else {
            return hand_back(result);
        };
        let exhausted = Exhausted::new(&head.uri, guard, verdict)
            .with_label(
                labels(head).and_then(|labels| labels.node.as_deref().or(labels.run.as_deref())),
            )
            .with_retries(retries.count(), retries.waited())
            .with_disabled(self.bounds().guards.disabled())
            .with_source(result.err().map(Into::into));
        let exhausted = if as_error { exhausted.as_timeout() } else { exhausted };
        Err(Error::Exhausted(Box::new(exhausted)))
    }
}

fn labels(head: &Parts) -> Option<&Labels> {
    match head.extensions.get::<CallContext>() {
        Some(context) => Some(context.labels()),
        None => head.extensions.get().map(CallOptions::labels),
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
