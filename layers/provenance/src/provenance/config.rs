use std::fmt;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use backstop_core::error::ConfigError;
use backstop_core::{Action, ActionTable, BufferLimit, Class, Seed, WallClock};
use tokio::time::Instant;

use crate::keep::{Keeper, OnFailure};
use crate::ledger::{Ledger, NoLedger};
use crate::provenance::ProvenanceLayer;

/// Builds a [`ProvenanceLayer`]; every setting has a default, so that an empty builder is good.
///
/// Settings that make no sense are an error of [`ProvenanceBuilder::build`], never of the first call.
#[derive(Clone, Debug)]
#[must_use]
pub struct ProvenanceBuilder<L = NoLedger> {
    config: Config<L>,
}

#[derive(Clone)]
pub(crate) struct Config<L> {
    pub(crate) keeper: Keeper<L>,
    pub(crate) actions: ActionTable,
    pub(crate) body_limit: u64,
    pub(crate) buffer_limit: Option<BufferLimit>,
    pub(crate) answer_headers: bool,
    pub(crate) seed: Seed,
    pub(crate) clock: WallClock,
}

impl ProvenanceBuilder {
    pub(crate) fn new() -> Self {
        Self {
            config: Config {
                keeper: Keeper::new(NoLedger),
                actions: ActionTable::default(),
                body_limit: DEFAULT_BODY_LIMIT,
                buffer_limit: None,
                answer_headers: false,
                seed: Seed::random(),
                clock: system_clock(),
            },
        }
    }
}

impl<L: Ledger> ProvenanceBuilder<L> {
    /// Where records are kept. Default: nowhere.
    pub fn ledger<M: Ledger>(self, ledger: M) -> ProvenanceBuilder<M> {
        let Config { keeper, actions, body_limit, buffer_limit, answer_headers, seed, clock } =
            self.config;
        let keeper = keeper.with_ledger(ledger);
        ProvenanceBuilder {
            config: Config {
                keeper,
                actions,
                body_limit,
                buffer_limit,
                answer_headers,
                seed,
                clock,
            },
        }
    }

    /// How long the ledger may take to keep the start of a record. Default 5 s; after that it has
    /// failed.
    pub fn ledger_timeout(mut self, timeout: Duration) -> Self {
        self.config.keeper.timeout = timeout;
        self
    }

    /// What is done where the ledger fails. Default: the call is refused.
    pub fn on_failure(mut self, on_failure: OnFailure) -> Self {
        self.config.keeper.on_failure = on_failure;
        self
    }

    /// What is done about a class of failure, which tells `rejected` from `incomplete`: set what the
    /// layers below have. See [`ActionTable`] for the defaults.
    pub fn on(mut self, class: Class, action: Action) -> Self {
        self.config.actions = self.config.actions.with(class, action);
        self
    }

    /// The whole table at once.
    pub fn actions(mut self, actions: ActionTable) -> Self {
        self.config.actions = actions;
        self
    }

    /// The largest request body, in bytes. Default 32 MiB. A larger one is refused before anything
    /// is sent.
    pub fn body_limit(mut self, bytes: u64) -> Self {
        self.config.body_limit = bytes;
        self
    }

    /// A limit on what all calls together hold, to be shared with other layers. Default: none. A
    /// request counts from its first byte to its answer's head; give the limit to one of the layers
    /// that read requests, lest it count twice.
    pub fn buffer_limit(mut self, limit: BufferLimit) -> Self {
        self.config.buffer_limit = Some(limit);
        self
    }

    /// Whether answers carry `x-backstop-call`, `-attempts`, `-profile`, `-model`, `-fallback`,
    /// `-waited-ms` and `-outcome`. Default: no. Headers of these names that the answer has are
    /// replaced.
    pub fn answer_headers(mut self, set: bool) -> Self {
        self.config.answer_headers = set;
        self
    }

    /// The seed of call IDs. Default: one that nobody can foresee.
    pub fn seed(mut self, seed: Seed) -> Self {
        self.config.seed = seed;
        self
    }

    /// The wall clock of records. Default: the system's at this moment, and tokio's clock from there.
    pub fn wall_clock(mut self, clock: WallClock) -> Self {
        self.config.clock = clock;
        self
    }

    /// Checks the settings and builds the layer.
    ///
    /// # Errors
    /// [`ConfigError`] names the setting, what is wrong with it and the mend: a ledger timeout or a
    /// body limit of zero.
    pub fn build(self) -> Result<ProvenanceLayer<L>, ConfigError> {
        self.config.keeper.check()?;
        if self.config.body_limit == 0 {
            return Err(ConfigError::new("body_limit", "is zero", "allow at least one byte"));
        }
        Ok(self.into_layer_unchecked())
    }

    pub(crate) fn into_layer_unchecked(self) -> ProvenanceLayer<L> {
        ProvenanceLayer { config: Arc::new(self.config) }
    }
}

impl<L: fmt::Debug> fmt::Debug for Config<L> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { keeper, actions, body_limit, buffer_limit, answer_headers, seed, clock } = self;
        f.debug_struct("Config")
            .field("keeper", keeper)
            .field("actions", actions)
            .field("body_limit", body_limit)
            .field("buffer_limit", &buffer_limit.as_ref().map(BufferLimit::limit))
            .field("answer_headers", answer_headers)
            .field("seed", seed)
            .field("clock", clock)
            .finish()
    }
}

#[expect(clippy::disallowed_methods, reason = "the one place where wall time enters; injectable")]
pub(crate) fn system_clock() -> WallClock {
    WallClock::new(SystemTime::now(), Instant::now().into_std())
}

/// Anthropic's own limit for messages; nobody documents a larger one for generation.
const DEFAULT_BODY_LIMIT: u64 = 32 * 1024 * 1024;
