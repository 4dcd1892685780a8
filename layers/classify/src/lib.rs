#![doc = include_str!("../README.md")]

mod body;
mod classifier;
mod clocks;
mod config;
mod decode;
mod document;
mod future;
mod judged;
mod layer;
mod peek;
mod service;
#[cfg(feature = "tower-http")]
mod trace;
mod watch;

pub use body::ClassifyBody;
pub use classifier::{AndThen, Answer, Classify, OrElse};
pub use clocks::Timeouts;
pub use config::{ClassifyBuilder, HoldOverflow};
pub use future::ResponseFuture;
pub use layer::ClassifyLayer;
pub use service::ClassifyService;
#[cfg(feature = "tower-http")]
pub use trace::{ByVerdict, VerdictAtEnd};
