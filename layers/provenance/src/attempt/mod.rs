//! The layer that records attempts.

mod body;
mod config;
mod future;
mod layer;
mod open;
mod service;
mod span;

pub use body::AttemptBody;
pub use config::AttemptBuilder;
pub use future::ResponseFuture as AttemptFuture;
pub use layer::AttemptLayer;
pub use service::AttemptService;
