use std::time::Duration;

use backstop_backoff::{BackoffBuilder, BackoffLayer};
use backstop_classify::{ClassifyBuilder, ClassifyLayer};
use backstop_core::{
    Action, ActionTable, BufferLimit, Chain, Class, ConfigError, Hold, Seed, WallClock,
};
use backstop_fallback::{FallbackBuilder, FallbackRouterLayer};
use backstop_provenance::{
    AttemptBuilder, AttemptLayer, Ledger, NoLedger, OnFailure, ProvenanceBuilder, ProvenanceLayer,
};

use super::Stack;

/// Builds a [`Stack`]; every setting but the chain has a default.
///
/// What several layers share is set here once; the rest by the layer's own builder, as in
/// `.backoff(|backoff| backoff.max_retries(3))`.
#[derive(Clone, Debug)]
#[must_use]
pub struct StackBuilder<L = NoLedger> {
    provenance: ProvenanceBuilder<L>,
    router: FallbackBuilder,
    backoff: BackoffBuilder,
    attempt: AttemptBuilder<L>,
    classify: ClassifyBuilder,
    actions: ActionTable,
}

/// A router that shares the request it keeps with the backoff below: in a stack nothing stands between.
pub(super) fn router(chain: Chain) -> FallbackBuilder {
    FallbackRouterLayer::builder(chain).share_original(true)
}

impl StackBuilder {
    pub(super) fn new(chain: Chain) -> Self {
        Self {
            provenance: ProvenanceLayer::builder(),
            router: router(chain),
            backoff: BackoffLayer::builder(),
            attempt: AttemptLayer::builder(),
            classify: ClassifyLayer::builder(),
            actions: ActionTable::default(),
        }
    }
}

impl<L: Ledger> StackBuilder<L> {
    /// Where the records of calls and attempts are kept. Default: nowhere.
    pub fn ledger<M: Ledger>(self, ledger: M) -> StackBuilder<M> {
        let Self { provenance, router, backoff, attempt, classify, actions } = self;
        let attempt = attempt.ledger(ledger.clone());
        let provenance = provenance.ledger(ledger);
        StackBuilder { provenance, router, backoff, attempt, classify, actions }
    }

    /// How long the ledger may take to keep the start of a record. Default 5 s.
    pub fn ledger_timeout(mut self, timeout: Duration) -> Self {
        self.provenance = self.provenance.ledger_timeout(timeout);
        self.attempt = self.attempt.ledger_timeout(timeout);
        self
    }

    /// What is done where the ledger fails. Default: the call is refused.
    pub fn on_ledger_failure(mut self, on_failure: OnFailure) -> Self {
        self.provenance = self.provenance.on_failure(on_failure);
        self.attempt = self.attempt.on_failure(on_failure);
        self
    }

    /// What is done about a class of failure, in every layer. See [`ActionTable`] for the defaults.
    pub fn on(mut self, class: Class, action: Action) -> Self {
        self.actions = self.actions.with(class, action);
        self
    }

    /// The whole table at once.
    pub fn actions(mut self, actions: ActionTable) -> Self {
        self.actions = actions;
        self
    }

    /// Forbids any fallback; see [`FallbackBuilder::forbid_fallback`]. Default: a chain that is declared is
    /// walked.
    pub fn forbid_fallback(mut self) -> Self {
        self.router = self.router.forbid_fallback();
        self
    }

    /// Decides whether an attempt failed without reading any error; see [`ClassifyBuilder::agnostic`].
    /// Default: the dialects' own codes decide.
    pub fn agnostic(mut self) -> Self {
        self.classify = self.classify.agnostic();
        self
    }

    /// How long an answer is held back. Default [`Hold::FirstContent`]: a stream until its first content,
    /// anything else until it is complete.
    pub fn hold(mut self, hold: Hold) -> Self {
        self.classify = self.classify.hold(hold);
        self
    }

    /// How long a whole call may take, all rungs, waits and the answer's body included. Default: no bound.
    pub fn deadline(mut self, deadline: Duration) -> Self {
        self.router = self.router.deadline(deadline);
        self
    }

    /// The largest request body, in bytes. Default 32 MiB. A larger one is refused before anything is sent.
    pub fn body_limit(mut self, bytes: u64) -> Self {
        self.provenance = self.provenance.body_limit(bytes);
        self.router = self.router.body_limit(bytes);
        self.backoff = self.backoff.body_limit(bytes);
        self
    }

    /// A limit on what all calls together hold, requests and held answers. Default: none. A request that
    /// finds no place is refused before anything is sent.
    pub fn buffer_limit(mut self, limit: BufferLimit) -> Self {
        // One layer counts a request, the one that reads it first and holds it longest.
        self.router = self.router.buffer_limit(limit.clone());
        self.classify = self.classify.buffer_limit(limit);
        self
    }

    /// Whether a body that continues state kept by the server is sent again after an attempt that may have
    /// been processed. Default: no.
    pub fn retry_stateful(mut self, retry: bool) -> Self {
        self.router = self.router.retry_stateful(retry);
        self.backoff = self.backoff.retry_stateful(retry);
        self
    }

    /// The seed of all jitter and of call IDs. Default: one that nobody can foresee.
    pub fn seed(mut self, seed: Seed) -> Self {
        self.provenance = self.provenance.seed(seed.clone());
        self.router = self.router.seed(seed.clone());
        self.backoff = self.backoff.seed(seed);
        self
    }

    /// The wall clock of records and of hints that are dates. Default: the system's at this moment, and
    /// tokio's clock from there.
    pub fn wall_clock(mut self, clock: WallClock) -> Self {
        self.provenance = self.provenance.wall_clock(clock);
        self.router = self.router.wall_clock(clock);
        self.backoff = self.backoff.wall_clock(clock);
        self.attempt = self.attempt.wall_clock(clock);
        self.classify = self.classify.wall_clock(clock);
        self
    }

    /// Changes what is BackoffLayer's alone: guards, schedule, `on_exhausted`. Its actions are the stack's.
    pub fn backoff(mut self, change: impl FnOnce(BackoffBuilder) -> BackoffBuilder) -> Self {
        self.backoff = change(self.backoff);
        self
    }

    /// Changes what is ClassifyLayer's alone: timeouts, limits, a classifier of your own.
    pub fn classify(mut self, change: impl FnOnce(ClassifyBuilder) -> ClassifyBuilder) -> Self {
        self.classify = change(self.classify);
        self
    }

    /// Changes what is FallbackRouterLayer's alone: the wait before a rung at the same provider.
    pub fn router(mut self, change: impl FnOnce(FallbackBuilder) -> FallbackBuilder) -> Self {
        self.router = change(self.router);
        self
    }

    /// Whether answers carry `x-backstop-call` and the other headers; see
    /// [`ProvenanceBuilder::answer_headers`]. Default: no.
    pub fn answer_headers(mut self, set: bool) -> Self {
        self.provenance = self.provenance.answer_headers(set);
        self
    }

    /// Checks the settings and builds the stack.
    ///
    /// # Errors
    /// [`ConfigError`] names the setting, what is wrong with it and the mend.
    pub fn build(self) -> Result<Stack<L>, ConfigError> {
        let Self { provenance, router, backoff, attempt, classify, actions } = self;
        Ok(Stack {
            provenance: provenance.actions(actions.clone()).build()?,
            router: router.actions(actions.clone()).build()?,
            backoff: backoff.actions(actions).build()?,
            attempt: attempt.build()?,
            classify: classify.build()?,
        })
    }
}
