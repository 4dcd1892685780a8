//! What the providers' wires look like: where the model and the credential stand, and what an
//! answer means.
//!
//! Everything here is sans-IO: bytes, statuses, headers and the present moment are arguments. A
//! [`Dialect`] is a table of facts about one provider's API, each with its source in the dialect's
//! own file; what is done with the facts is the same for all of them:
//!
//! - [`Route`] tells from a request whose API it is for, and which part of it;
//! - [`Judge`] reads one answer, whole or in pieces cut anywhere, and gives the
//!   [`Verdict`](crate::Verdict);
//! - [`Presentation`] says how a failure inside a 2xx is shown to a caller whose SDK takes every
//!   200 for an answer.
//!
//! Structured codes decide, prose never does: no error message is matched anywhere.

mod anthropic;
mod array;
mod content;
mod credentials;
mod deep;
mod document;
mod error_body;
mod facts;
mod failure;
mod gemini;
mod google;
mod handle;
mod judge;
mod lines;
mod notes;
mod open;
mod openai;
mod presentation;
mod reasoning;
mod resets;
mod route;
mod scan;
mod sse;
mod state;
mod stream;
#[cfg(test)]
mod tests;

pub use facts::{Endpoint, Framing, ModelPlace};
pub use handle::Dialect;
pub use judge::{BodyEnd, Judge, Mode, Seen};
pub use presentation::Presentation;
pub use reasoning::ReasoningPlace;
pub use route::Route;
pub(crate) use route::percent_decoded;
pub use state::is_stateful;
