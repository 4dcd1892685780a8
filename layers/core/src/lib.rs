#![doc = include_str!("../README.md")]

mod action;
mod body;
mod cell;
mod class;
mod clock;
mod context;
pub mod dialect;
pub mod error;
mod exhausted;
mod hint;
pub mod json;
mod limit;
mod profile;
mod retries;
mod schedule;
mod scrub;
pub mod splice;
mod status;
mod time;
pub mod transport;
mod verdict;

pub use action::{Action, ActionTable};
pub use body::{Collect, HeldFrames, RequestBody};
pub use cell::{AttemptCell, Substitute};
pub use class::Class;
pub use clock::WallClock;
pub use context::{CallContext, CallOptions, Hold, Labels, OnExhausted};
pub use error::{BoxError, ConfigError, Error, TimedOut, Unprocessed};
pub use exhausted::Exhausted;
pub use hint::{Hint, HintSource};
pub use limit::Limit;
pub use profile::{Chain, Profile, Rung};
pub use retries::{Bounds, Guard, Guards, Next, Retries, WaitReason};
pub use schedule::{Generator, Jitter, Schedule, Seed};
pub use scrub::scrub;
pub use verdict::{Evidence, StreamEnd, Usage, Verdict};
