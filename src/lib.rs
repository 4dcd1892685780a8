#![doc = include_str!("../README.md")]

/// Every default, why it is what it is, and what to set in its place.
pub mod defaults {
    #![doc = include_str!("../docs/defaults.md")]
}
#[cfg(any(feature = "async-openai", feature = "hyper-client", feature = "reqwest"))]
pub mod client;
pub mod stack;
#[cfg(feature = "testing")]
pub mod testing;

pub use backstop_backoff as backoff;
pub use backstop_classify as classify;
pub use backstop_core as vocabulary;
pub use backstop_fallback as fallback;
pub use backstop_provenance as provenance;

pub use backstop_backoff::BackoffLayer;
pub use backstop_classify::{ClassifyLayer, HoldOverflow, Timeouts};
pub use backstop_core::{
    Action, ActionTable, AttemptCell, BoxError, BufferLimit, CallContext, CallOptions, Chain,
    Class, ConfigError, Error, Evidence, Exhausted, Guard, Guards, Hint, Hold, Jitter, Limit,
    OnExhausted, Profile, RequestBody, Rung, Schedule, Seed, StreamEnd, TimedOut, Usage, Verdict,
    WallClock, dialect,
};
pub use backstop_fallback::FallbackRouterLayer;
pub use backstop_provenance::{AttemptLayer, Outcome, Provenance, ProvenanceLayer};
pub use stack::Stack;
