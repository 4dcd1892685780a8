//! The ledgers: in memory and in a file, in bad times too.
#![expect(
    clippy::unwrap_used,
    reason = "clippy's allowance for tests does not reach the helpers of an integration test"
)]

#[cfg(feature = "jsonl")]
mod append;
#[cfg(all(unix, feature = "jsonl"))]
mod crash;
mod journal;
mod memory;
#[cfg(feature = "jsonl")]
mod outage;
mod parts;
#[cfg(feature = "jsonl")]
mod reader;
#[path = "../support/mod.rs"]
mod support;
