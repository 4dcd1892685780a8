use std::fmt;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use backstop_core::error::ConfigError;
use backstop_core::{
    Action, ActionTable, Bounds, BufferLimit, Chain, Class, Guards, Limit, Schedule, Seed,
    WallClock,
};
use tokio::time::Instant;

use crate::FallbackRouterLayer;

/// Builds a [`FallbackRouterLayer`]; every setting but the chain has a default.
///
/// Settings that make no sense are an error of [`FallbackBuilder::build`], never of the first call.
#[derive(Clone, Debug)]
#[must_use]
pub struct FallbackBuilder {
    config: Config,
}

#[derive(Clone)]
pub(crate) struct Config {
    pub(crate) chain: Chain,
    pub(crate) forbids_fallback: bool,
    pub(crate) actions: ActionTable,
    pub(crate) schedule: Schedule,
    pub(crate) bounds: Bounds,
    pub(crate) deadline: Option<Duration>,
    pub(crate) body_limit: u64,
    pub(crate) buffer_limit: Option<BufferLimit>,
    pub(crate) retry_stateful: bool,
    pub(crate) shares_original: bool,
    pub(crate) seed: Seed,
    pub(crate) clock: WallClock,
}

impl FallbackBuilder {
    pub(crate) fn new(chain: Chain) -> Self {
        let mut guards = Guards::default();
        // One wait between two rungs is all there is; only a hint can make it long.
        guards.max_retries = Limit::Unlimited;
        guards.max_retry_time = Limit::Unlimited;
        Self {
            config: Config {
                chain,
                forbids_fallback: false,
                actions: ActionTable::default(),
                schedule: Schedule::default(),
                bounds: Bounds::new(guards),
                deadline: None,
                body_limit: DEFAULT_BODY_LIMIT,
                buffer_limit: None,
                retry_stateful: false,
                shares_original: false,
                seed: Seed::random(),
                clock: system_clock(),
            },
        }
    }

    /// Forbids any fallback: a layer whose own chain has one is not built, and a call whose chain has
    /// one is refused before anything is sent. Default: a chain that is declared is walked.
    pub fn forbid_fallback(mut self) -> Self {
        self.config.forbids_fallback = true;
        self
    }

    /// What is done about a class of failure once the layers below have given up. [`Action::Retry`] and
    /// [`Action::Next`] go to the next rung, [`Action::Return`] hands the failure to the caller. See
    /// [`ActionTable`] for the defaults.
    pub fn on(mut self, class: Class, action: Action) -> Self {
        self.config.actions = self.config.actions.with(class, action);
        self
    }

    /// The whole table at once.
    pub fn actions(mut self, actions: ActionTable) -> Self {
        self.config.actions = actions;
        self
    }

    /// The wait before a rung at the same provider that has just said `rate_limited` or `overloaded`:
    /// the schedule's first, or the provider's hint. Default 0.5 s and up to 25 % more. Between other
    /// rungs there is no wait.
    pub fn schedule(mut self, schedule: Schedule) -> Self {
        self.config.schedule = schedule;
        self
    }

    /// The longest hint that is slept through before a rung at the same provider, inclusive; a rung with
    /// a longer one is skipped. Default 120 s.
    pub fn max_hint(mut self, hint: impl Into<Limit<Duration>>) -> Self {
        self.config.bounds.guards.max_hint = hint.into();
        self
    }

    /// How long the whole call may take, all rungs and waits included. Default: no bound. It cuts the
    /// attempt in flight.
    pub fn deadline(mut self, deadline: Duration) -> Self {
        self.config.deadline = Some(deadline);
        self
    }

    /// The largest request body, in bytes. Default 32 MiB. A larger one is refused before anything
    /// is sent.
    pub fn body_limit(mut self, bytes: u64) -> Self {
        self.config.body_limit = bytes;
        self
    }

    /// A limit on what all calls together hold, to be shared with other layers. Default: none. A
    /// request that finds no place is refused before anything is sent ([`Error::Full`]).
    ///
    /// [`Error::Full`]: backstop_core::Error::Full
    pub fn buffer_limit(mut self, limit: BufferLimit) -> Self {
        self.config.buffer_limit = Some(limit);
        self
    }

    /// Whether a body that continues state kept by the server (`previous_response_id`,
    /// `conversation`, `background`) is sent to the next rung after an attempt that may have been
    /// processed. Default: no.
    pub fn retry_stateful(mut self, retry: bool) -> Self {
        self.config.retry_stateful = retry;
        self
    }

    /// Lets the BackoffLayer below make its repeats from the request that this layer keeps, so that one
    /// copy of the head serves them all. Set it only where no layer between the two changes requests: what
    /// it does to the first attempt would be missing in the others. `Stack` sets it. Default: no.
    pub fn share_original(mut self, share: bool) -> Self {
        self.config.shares_original = share;
        self
    }

    /// The seed of all jitter. Default: one that nobody can foresee.
    pub fn seed(mut self, seed: Seed) -> Self {
        self.config.seed = seed;
        self
    }

    /// The wall clock against which dated hints are measured. Default: the system's at this moment,
    /// and tokio's clock from there.
    pub fn wall_clock(mut self, clock: WallClock) -> Self {
        self.config.clock = clock;
        self
    }

    /// Checks the settings and builds the layer.
    ///
    /// # Errors
    /// [`ConfigError`] names the setting, what is wrong with it and the mend: a chain with a fallback
    /// where fallback is forbidden, a schedule that makes no sense, a deadline or body limit of zero.
    pub fn build(self) -> Result<FallbackRouterLayer, ConfigError> {
        let Config { chain, schedule, bounds, deadline, body_limit, .. } = &self.config;
        if self.config.forbids_fallback && chain.has_fallback() {
            return Err(ConfigError::new(
                "fallback",
                format!("is forbidden, but the chain {chain:?} declares one"),
                "declare the primary alone, or allow fallback",
            ));
        }
        schedule.check()?;
        bounds.guards.check()?;
        if deadline.is_some_and(|deadline| deadline.is_zero()) {
            return Err(ConfigError::new("deadline", "is zero", "leave it out for no deadline"));
        }
        if *body_limit == 0 {
            return Err(ConfigError::new("body_limit", "is zero", "allow at least one byte"));
        }
        Ok(self.into_layer_unchecked())
    }

    pub(crate) fn into_layer_unchecked(self) -> FallbackRouterLayer {
        FallbackRouterLayer { config: Arc::new(self.config) }
    }
}

impl fmt::Debug for Config {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            chain,
            forbids_fallback,
            actions,
            schedule,
            bounds,
            deadline,
            body_limit,
            buffer_limit,
            retry_stateful,
            shares_original,
            seed,
            clock,
        } = self;
        f.debug_struct("Config")
            .field("chain", chain)
            .field("forbids_fallback", forbids_fallback)
            .field("actions", actions)
            .field("schedule", schedule)
            .field("max_hint", &bounds.guards.max_hint)
            .field("deadline", deadline)
            .field("body_limit", body_limit)
            .field("buffer_limit", &buffer_limit.as_ref().map(BufferLimit::limit))
            .field("retry_stateful", retry_stateful)
            .field("shares_original", shares_original)
            .field("seed", seed)
            .field("clock", clock)
            .finish()
    }
}

#[expect(clippy::disallowed_methods, reason = "the one place where wall time enters; injectable")]
fn system_clock() -> WallClock {
    WallClock::new(SystemTime::now(), Instant::now().into_std())
}

/// Anthropic's own limit, the largest of the providers'.
const DEFAULT_BODY_LIMIT: u64 = 32 * 1024 * 1024;
