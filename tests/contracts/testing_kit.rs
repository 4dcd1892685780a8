//! The test doubles themselves: each misbehaviour really happens, and each count is right.

mod client;
mod dialects;
mod endings;
mod framing;
mod hyper_client;
mod log;
mod memory;
mod readiness;
mod serving;
