#![doc = include_str!("../README.md")]

mod config;
mod future;
mod layer;
mod service;
mod walk;

pub use config::FallbackBuilder;
pub use future::ResponseFuture;
pub use layer::FallbackRouterLayer;
pub use service::FallbackRouter;
