//! The contracts of the layers and of the test doubles, in one binary.
#![expect(
    clippy::unwrap_used,
    reason = "clippy's allowance for tests does not reach the helpers of an integration test"
)]

mod bugs;
mod commitment;
mod defaults;
mod rig;
mod smoke;
mod support;
mod testing_kit;
