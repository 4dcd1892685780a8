//! The layer that records calls.

mod body;
mod config;
mod future;
mod handle;
mod headers;
mod layer;
mod open;
mod service;
mod span;

pub use body::ProvenanceBody;
pub use config::ProvenanceBuilder;
pub(crate) use config::system_clock;
pub use future::ResponseFuture as ProvenanceFuture;
pub use handle::Provenance;
pub use layer::ProvenanceLayer;
pub use service::ProvenanceService;
