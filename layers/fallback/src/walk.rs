use std::sync::Arc;
use std::time::Duration;

use backstop_core::dialect::is_stateful;
use backstop_core::error::Error;
use backstop_core::rewrite::{self, Place};
use backstop_core::{
    Action, AttemptCell, CallContext, CallOptions, Chain, Class, Next, Original, Profile,
    RequestBody, Retries, Rung, Verdict, WaitReason,
};
use http::{Extensions, Request, Response, Uri};
use tokio::time::Instant;

use crate::config::Config;

/// One call's way along its chain: where it is, and whether it goes on.
pub(crate) struct Walk {
    config: Arc<Config>,
    /// With the request as the caller sent it, where another attempt can need it.
    context: CallContext,
    /// Where this walk is; another one above or below it may be elsewhere.
    rung: u32,
}

/// What follows the end of a rung.
pub(crate) enum Step<RB> {
    /// The call is over.
    Done(Result<Response<RB>, Error>),
    /// Another rung is asked with `request` after `wait`; the failed answer's rest is to be let go.
    Next { request: Box<Request<RequestBody>>, answer: Option<RB>, wait: Duration },
}

impl Walk {
    /// The call of a request with `extensions`, whose body is not read yet.
    #[inline]
    pub(crate) fn new(config: &Arc<Config>, extensions: &mut Extensions) -> Self {
        let context = context(config, extensions).keeping_nothing();
        Self { config: Arc::clone(config), context, rung: 0 }
    }

    /// The call of a request whose body is there: as [`Walk::new`] and [`Walk::begin`], and the context is
    /// made in one piece.
    #[inline]
    pub(crate) fn of(
        config: &Arc<Config>,
        request: &mut Request<RequestBody>,
    ) -> Result<Self, Error> {
        if CallContext::of(request).is_some() {
            let mut walk = Self::new(config, request.extensions_mut());
            walk.begin(request)?;
            return Ok(walk);
        }
        let options = match request.extensions().is_empty() {
            true => None,
            false => request.extensions_mut().remove::<CallOptions>(),
        };
        let set = options.as_ref();
        let time = set.and_then(CallOptions::time).or(config.deadline);
        let deadline = time.and_then(after_now);
        let chain = set.and_then(CallOptions::planned).unwrap_or(&config.chain).clone();
        check(config, set, &chain, deadline, request.uri())?;
        let original = may_need_original(config, &chain).then(|| Original::of(request));
        if let Some(primary) = chain.rungs().first() {
            rewrite::apply(request, primary.profile(), Place::Primary).map_err(unfit)?;
        }
        let shared = config.shares_original;
        let context = CallContext::planned(options, deadline, chain, original, shared);
        request.extensions_mut().insert(context.clone());
        Ok(Self { config: Arc::clone(config), context, rung: 0 })
    }

    /// Plans the chain, and makes `request` one for the primary.
    ///
    /// # Errors
    /// What forbids the call; nothing is sent.
    pub(crate) fn begin(&mut self, request: &mut Request<RequestBody>) -> Result<(), Error> {
        let Self { config, context, rung: _ } = self;
        if context.chain().is_none() {
            let chain = context.options().planned().unwrap_or(&config.chain);
            context.plan(chain.clone());
        }
        // A router above has planned its own.
        let chain = context.chain().unwrap_or(&config.chain);
        let beside = request.extensions().get::<CallOptions>();
        if chain.has_fallback() && beside.is_some_and(CallOptions::forbids_fallback) {
            return Err(refuse_fallback(chain));
        }
        check(config, Some(context.options()), chain, context.deadline(), request.uri())
            .inspect_err(|error| {
                if matches!(error, Error::Refused { .. }) {
                    context.note(Instant::now().into_std(), error.to_string());
                }
            })?;
        let original = may_need_original(config, chain).then(|| Original::of(request));
        if let Some(primary) = chain.rungs().first() {
            rewrite::apply(request, primary.profile(), Place::Primary).map_err(unfit)?;
        }
        if let Some(original) = original {
            *context = context.clone().keeping(original, config.shares_original);
        }
        // Somebody above may have sent the call this way before: it begins at the primary again.
        context.set_rung(0);
        context.begin_first();
        request.extensions_mut().insert(context.clone());
        Ok(())
    }

    /// Whether another rung may be asked after the first.
    pub(crate) fn may_go_on(&self) -> bool {
        self.context.chain().is_some_and(Chain::has_fallback)
    }

    pub(crate) fn deadline(&self) -> Option<std::time::Instant> {
        self.context.deadline()
    }

    /// Decides what the failure of a rung leads to.
    #[cold]
    pub(crate) fn settle<RB>(&mut self, mut result: Result<Response<RB>, Error>) -> Step<RB> {
        let now = Instant::now().into_std();
        let verdict = match &result {
            Ok(response) => Verdict::of_answer(response, || self.config.clock.at(now)),
            Err(error) => match error.verdict() {
                Some(verdict) => verdict.clone(),
                // Our own word, from a layer below: no rung was asked.
                None => return Step::Done(result),
            },
        };
        let is_over = self.deadline().is_some_and(|deadline| deadline <= now);
        if is_over
            || !verdict.class().is_failure()
            || self.config.actions.decide(&verdict) == Action::Return
            || (verdict.may_be_processed() && self.must_not_be_repeated())
        {
            present_failure(&mut result);
            return Step::Done(result);
        }
        match self.next(&verdict, now) {
            Some((request, wait)) => {
                let answer = result.ok().map(Response::into_body);
                Step::Next { request, answer, wait }
            }
            None => {
                present_failure(&mut result);
                Step::Done(result)
            }
        }
    }

    /// The next rung that can serve the call, and the wait before it.
    fn next(
        &mut self,
        verdict: &Verdict,
        now: std::time::Instant,
    ) -> Option<(Box<Request<RequestBody>>, Duration)> {
        let chain = self.context.chain()?.clone();
        let from = self.rung;
        let failed = chain.rungs().get(from as usize)?.profile();
        for (rung, to) in (0_u32..).zip(chain.rungs()).skip(from as usize + 1) {
            let profile = to.profile();
            let (wait, reason) = match self.wait_before(profile, failed, verdict, now) {
                Ok(wait) => wait,
                Err(why) => {
                    self.skip(profile, why, now);
                    continue;
                }
            };
            let mut request = self.context.original()?.request();
            if let Err(unfit) = rewrite::apply(&mut request, profile, Place::Fallback) {
                self.skip(profile, unfit, now);
                continue;
            }
            self.rung = rung;
            self.context.set_rung(rung);
            self.context.begin_next(wait, reason);
            request.extensions_mut().insert(self.context.clone());
            self.announce(failed, profile, verdict, wait);
            return Some((Box::new(request), wait));
        }
        None
    }

    /// None, unless the provider of the next rung is the one that has just asked to be left alone.
    fn wait_before(
        &self,
        next: &Profile,
        failed: &Profile,
        verdict: &Verdict,
        now: std::time::Instant,
    ) -> Result<(Duration, WaitReason), String> {
        let is_asked_to_wait = matches!(verdict.class(), Class::RateLimited | Class::Overloaded);
        if !is_asked_to_wait || next.provider() != failed.provider() {
            return Ok((Duration::ZERO, WaitReason::NextRung));
        }
        let Config { schedule, bounds, seed, .. } = &*self.config;
        let mut bounds = bounds.clone();
        bounds.deadline = self.deadline();
        match Retries::new().next(schedule, &bounds, verdict.hint(), now, seed) {
            Next::Wait { wait, reason } => Ok((wait, reason)),
            Next::Stop(guard) => Err(format!(
                "its provider has just said {}, and the wait is longer than {guard} allows",
                verdict.class()
            )),
        }
    }

    fn skip(&self, profile: &Profile, why: impl std::fmt::Display, now: std::time::Instant) {
        let what = format!("skipped {}: {why}", profile.id());
        tracing::debug!(target: "backstop::attempt", profile = profile.id(), "{what}");
        self.context.note(now, what);
    }

    fn announce(&self, failed: &Profile, next: &Profile, verdict: &Verdict, wait: Duration) {
        tracing::debug!(
            target: "backstop::attempt",
            failed = failed.id(), next = next.id(), class = verdict.class().as_str(),
            status = verdict.status().map(|status| status.as_u16()), code = verdict.code(),
            wait_ms = u64::try_from(wait.as_millis()).unwrap_or(u64::MAX),
            "the rung is spent; the next one is asked"
        );
    }

    /// Whether the body continues state that a server keeps, so that it is not sent twice.
    fn must_not_be_repeated(&self) -> bool {
        let options = self.context.options();
        if options.stateful().unwrap_or(self.config.retry_stateful) {
            return false;
        }
        let original = self.context.original();
        original.is_some_and(|original| is_stateful(&original.body().to_bytes()))
    }
}

/// The context of the call: the one that a layer above has made, or a new one.
fn context(config: &Config, extensions: &mut Extensions) -> CallContext {
    if let Some(context) = extensions.get::<CallContext>() {
        let time = context.options().time().or(config.deadline);
        if let (None, Some(at)) = (context.deadline(), time.and_then(after_now)) {
            context.set_deadline(at);
        }
        return context.clone();
    }
    let options = extensions.remove::<CallOptions>().unwrap_or_default();
    let deadline = options.time().or(config.deadline).and_then(after_now);
    let context = CallContext::new(options, None, deadline);
    extensions.insert(context.clone());
    context
}

fn is_past(at: std::time::Instant) -> bool {
    at <= Instant::now().into_std()
}

fn after_now(time: Duration) -> Option<std::time::Instant> {
    Instant::now().checked_add(time).map(Instant::into_std)
}

/// Whether the call may be made at all.
#[inline]
fn check(
    config: &Config,
    options: Option<&CallOptions>,
    chain: &Chain,
    deadline: Option<std::time::Instant>,
    uri: &Uri,
) -> Result<(), Error> {
    let fallbacks = chain.rungs().get(1..).unwrap_or_default();
    if !fallbacks.is_empty()
        && (config.forbids_fallback || options.is_some_and(CallOptions::forbids_fallback))
    {
        return Err(refuse_fallback(chain));
    }
    if deadline.is_some_and(is_past) {
        return Err(Error::past_deadline());
    }
    let mut profiles = fallbacks.iter().map(Rung::profile);
    match profiles.find(|to| rewrite::lacks_credential(uri, to)) {
        Some(lacking) => Err(no_credential(lacking)),
        None => Ok(()),
    }
}

/// Whether another attempt can come that is made from the request as the caller sent it.
fn may_need_original(config: &Config, chain: &Chain) -> bool {
    let may_repeat = || chain.rungs().iter().any(|rung| rung.attempts() > 1);
    chain.has_fallback() || (config.shares_original && may_repeat())
}

#[cold]
fn refuse_fallback(chain: &Chain) -> Error {
    Error::refused(format!("fallback is forbidden, but the chain {chain:?} declares one"))
}

#[cold]
fn no_credential(profile: &Profile) -> Error {
    Error::misconfigured(format!(
        "profile {:?} has no credential for {:?}; set its API key, or say that it needs none",
        profile.id(),
        profile.provider()
    ))
}

#[cold]
fn unfit(unfit: rewrite::Unfit) -> Error {
    Error::misconfigured(unfit.to_string())
}

/// What failed under a status that says success must not pass for one.
fn present_failure<RB>(result: &mut Result<Response<RB>, Error>) {
    if let Ok(response) = result {
        AttemptCell::present_failure(response);
    }
}
