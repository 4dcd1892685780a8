#![doc = include_str!("../README.md")]

mod call;
mod config;
mod future;
mod layer;
mod service;
mod terms;

pub use config::BackoffBuilder;
pub use future::ResponseFuture;
pub use layer::BackoffLayer;
pub use service::Backoff;
