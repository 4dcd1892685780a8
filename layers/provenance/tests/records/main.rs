//! What calls and attempts leave behind, in every state that they can be left in.
#![expect(
    clippy::unwrap_used,
    reason = "clippy's allowance for tests does not reach the helpers of an integration test"
)]

mod attempts;
mod calls;
mod ends;
mod fallback;
mod ledgers;
mod readiness;
mod regressions;
#[path = "../support/mod.rs"]
mod support;
mod told;
