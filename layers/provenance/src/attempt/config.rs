use std::sync::Arc;
use std::time::Duration;

use backstop_core::WallClock;
use backstop_core::error::ConfigError;

use crate::attempt::AttemptLayer;
use crate::keep::{Keeper, OnFailure};
use crate::ledger::{Ledger, NoLedger};
use crate::provenance::system_clock;

/// Builds an [`AttemptLayer`]; every setting has a default, so that an empty builder is good.
///
/// Settings that make no sense are an error of [`AttemptBuilder::build`], never of the first call.
#[derive(Clone, Debug)]
#[must_use]
pub struct AttemptBuilder<L = NoLedger> {
    config: Config<L>,
}

#[derive(Clone, Debug)]
pub(crate) struct Config<L> {
    pub(crate) keeper: Keeper<L>,
    pub(crate) clock: WallClock,
}

impl AttemptBuilder {
    pub(crate) fn new() -> Self {
        Self { config: Config { keeper: Keeper::new(NoLedger), clock: system_clock() } }
    }
}

impl<L: Ledger> AttemptBuilder<L> {
    /// Where records are kept. Default: nowhere.
    pub fn ledger<M: Ledger>(self, ledger: M) -> AttemptBuilder<M> {
        let Config { keeper, clock } = self.config;
        AttemptBuilder { config: Config { keeper: keeper.with_ledger(ledger), clock } }
    }

    /// How long the ledger may take to keep the start of a record. Default 5 s; after that it has
    /// failed.
    pub fn ledger_timeout(mut self, timeout: Duration) -> Self {
        self.config.keeper.timeout = timeout;
        self
    }

    /// What is done where the ledger fails. Default: the attempt is refused, and with it the call.
    pub fn on_failure(mut self, on_failure: OnFailure) -> Self {
        self.config.keeper.on_failure = on_failure;
        self
    }

    /// The wall clock of records, and of hints that are dates. Default: the system's at this moment, and
    /// tokio's clock from there.
    pub fn wall_clock(mut self, clock: WallClock) -> Self {
        self.config.clock = clock;
        self
    }

    /// Checks the settings and builds the layer.
    ///
    /// # Errors
    /// [`ConfigError`] for a ledger timeout of zero.
    pub fn build(self) -> Result<AttemptLayer<L>, ConfigError> {
        self.config.keeper.check()?;
        Ok(self.into_layer_unchecked())
    }

    pub(crate) fn into_layer_unchecked(self) -> AttemptLayer<L> {
        AttemptLayer { config: Arc::new(self.config) }
    }
}
