//! The contracts of the layers and of the test doubles, in one binary.
#![expect(
    clippy::unwrap_used,
    reason = "clippy's allowance for tests does not reach the helpers of an integration test"
)]

mod allocations;
mod buffers;
mod bugs;
mod clients;
mod commitment;
mod connections;
mod defaults;
mod documents;
mod fallback;
mod hostile;
mod properties;
mod readiness;
mod rig;
mod stack;
mod support;
mod testing_kit;
mod timeouts;
mod waits;
