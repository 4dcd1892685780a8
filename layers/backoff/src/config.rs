use std::fmt;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use backstop_core::error::ConfigError;
use backstop_core::{
    Action, ActionTable, Bounds, BufferLimit, Class, Guards, Jitter, Limit, OnExhausted, Schedule,
    Seed, WallClock,
};
use tokio::time::Instant;

use crate::BackoffLayer;

/// Builds a [`BackoffLayer`]; every setting has a default, so that an empty builder is good.
///
/// Settings that make no sense are an error of [`BackoffBuilder::build`], never of the first call.
#[derive(Clone, Debug)]
#[must_use]
pub struct BackoffBuilder {
    config: Config,
}

#[derive(Clone)]
pub(crate) struct Config {
    pub(crate) schedule: Schedule,
    pub(crate) bounds: Bounds,
    pub(crate) actions: ActionTable,
    pub(crate) deadline: Option<Duration>,
    pub(crate) body_limit: u64,
    pub(crate) buffer_limit: Option<BufferLimit>,
    pub(crate) on_exhausted: OnExhausted,
    pub(crate) retry_stateful: bool,
    pub(crate) seed: Seed,
    pub(crate) clock: WallClock,
    /// Whether a call without settings of its own can need its request after the first attempt.
    pub(crate) keeps_request: bool,
}

impl BackoffBuilder {
    pub(crate) fn new() -> Self {
        Self {
            config: Config {
                schedule: Schedule::default(),
                bounds: Bounds::default(),
                actions: ActionTable::default(),
                deadline: None,
                body_limit: DEFAULT_BODY_LIMIT,
                buffer_limit: None,
                on_exhausted: OnExhausted::default(),
                retry_stateful: false,
                seed: Seed::random(),
                clock: system_clock(),
                keeps_request: true,
            },
        }
    }

    /// Attempts after the first. Default 7; [`Limit::Unlimited`] switches this guard off.
    pub fn max_retries(mut self, retries: impl Into<Limit<u32>>) -> Self {
        self.config.bounds.guards.max_retries = retries.into();
        self
    }

    /// Accumulated waiting, compared before each wait. Default 60 s; [`Limit::Unlimited`] switches
    /// this guard off. What the attempts themselves take does not count: that is
    /// [`BackoffBuilder::deadline`].
    pub fn max_retry_time(mut self, time: impl Into<Limit<Duration>>) -> Self {
        self.config.bounds.guards.max_retry_time = time.into();
        self
    }

    /// The longest hint that is slept through, inclusive. Default 120 s; a longer one ends the retries
    /// at once.
    pub fn max_hint(mut self, hint: impl Into<Limit<Duration>>) -> Self {
        self.config.bounds.guards.max_hint = hint.into();
        self
    }

    /// All three bounds at once.
    pub fn guards(mut self, guards: Guards) -> Self {
        self.config.bounds.guards = guards;
        self
    }

    /// The waits: how they begin, grow and are spread. Default 0.5 s, doubling up to 60 s, and up to
    /// 25 % more.
    pub fn schedule(mut self, schedule: Schedule) -> Self {
        self.config.schedule = schedule;
        self
    }

    /// How the waits are spread. Default up to 25 % more.
    pub fn jitter(mut self, jitter: Jitter) -> Self {
        self.config.schedule = self.config.schedule.with_jitter(jitter);
        self
    }

    /// What is done about a class of failure. See [`ActionTable`] for the defaults.
    pub fn on(mut self, class: Class, action: Action) -> Self {
        self.config.actions = self.config.actions.with(class, action);
        self
    }

    /// The whole table at once.
    pub fn actions(mut self, actions: ActionTable) -> Self {
        self.config.actions = actions;
        self
    }

    /// How long the whole call may take, attempts and waits included; with a ClassifyLayer below, the
    /// answer's body too, which is out of this layer's hands once it was handed on. Default: no bound.
    /// It looks ahead (a wait that it cannot hold is not begun) and cuts the attempt in flight.
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

    /// What a call gets that has used up its retries. Default: the provider's last answer.
    pub fn on_exhausted(mut self, on_exhausted: OnExhausted) -> Self {
        self.config.on_exhausted = on_exhausted;
        self
    }

    /// Whether a body that continues state kept by the server (`previous_response_id`,
    /// `conversation`, `background`) is sent again after an attempt that may have been processed.
    /// Default: no.
    pub fn retry_stateful(mut self, retry: bool) -> Self {
        self.config.retry_stateful = retry;
        self
    }

    /// The seed of all jitter. Default: one that nobody can foresee. The same seed gives the same
    /// waits to the same sequence of calls.
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
    /// [`ConfigError`] names the setting, what is wrong with it and the mend: an initial wait of
    /// zero or above the maximum, a jitter that is no ratio, a deadline, `max_hint` or body limit of
    /// zero.
    pub fn build(self) -> Result<BackoffLayer, ConfigError> {
        let Config { schedule, bounds, deadline, body_limit, .. } = &self.config;
        schedule.check()?;
        bounds.guards.check()?;
        if deadline.is_some_and(|deadline| deadline.is_zero()) {
            return Err(ConfigError::new("deadline", "is zero", "leave it out for no deadline"));
        }
        if *body_limit == 0 {
            return Err(ConfigError::new("body_limit", "is zero", "allow at least one byte"));
        }
        if bounds.guards.are_both_off() && deadline.is_none() {
            tracing::warn!(
                target: "backstop",
                "max_retries and max_retry_time are both off and there is no deadline: a call to a \
                 provider that stays down never ends"
            );
        }
        Ok(self.into_layer_unchecked())
    }

    pub(crate) fn anthropic() -> Self {
        Self::new().document_a(Duration::from_secs(2))
    }

    pub(crate) fn gemini_free_tier() -> Self {
        Self::new().document_a(Duration::from_secs(15))
    }

    fn document_a(self, initial: Duration) -> Self {
        self.max_retries(DOCUMENT_A_ATTEMPTS - 1)
            .max_retry_time(Limit::Unlimited)
            .schedule(Schedule::new(initial, DOCUMENT_A_MAX))
    }

    pub(crate) fn into_layer_unchecked(self) -> BackoffLayer {
        let mut config = self.config;
        config.keeps_request = keeps_request(&config.bounds, config.on_exhausted);
        BackoffLayer { config: Arc::new(config) }
    }
}

/// Whether a request is needed once it was sent: for a retry, or to be named in an error.
pub(crate) fn keeps_request(bounds: &Bounds, on_exhausted: OnExhausted) -> bool {
    !bounds.allow_no_retry() || on_exhausted == OnExhausted::Error
}

/// What was set, and not what follows from it.
impl fmt::Debug for Config {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            schedule,
            bounds,
            actions,
            deadline,
            body_limit,
            buffer_limit,
            on_exhausted,
            retry_stateful,
            seed,
            clock,
            keeps_request: _,
        } = self;
        f.debug_struct("Config")
            .field("schedule", schedule)
            .field("bounds", bounds)
            .field("actions", actions)
            .field("deadline", deadline)
            .field("body_limit", body_limit)
            .field("buffer_limit", &buffer_limit.as_ref().map(BufferLimit::limit))
            .field("on_exhausted", on_exhausted)
            .field("retry_stateful", retry_stateful)
            .field("seed", seed)
            .field("clock", clock)
            .finish()
    }
}

#[expect(clippy::disallowed_methods, reason = "the one place where wall time enters; injectable")]
fn system_clock() -> WallClock {
    WallClock::new(SystemTime::now(), Instant::now().into_std())
}

/// Anthropic's own limit for messages; nobody documents a larger one for generation.
const DEFAULT_BODY_LIMIT: u64 = 32 * 1024 * 1024;
/// Document A: at most five attempts, waits of at most a minute.
const DOCUMENT_A_ATTEMPTS: u32 = 5;
const DOCUMENT_A_MAX: Duration = Duration::from_secs(60);
