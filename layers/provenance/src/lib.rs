#![doc = include_str!("../README.md")]

mod attempt;
mod keep;
mod ledger;
mod provenance;
mod record;
mod text;

pub use attempt::{AttemptBody, AttemptBuilder, AttemptFuture, AttemptLayer, AttemptService};
pub use keep::OnFailure;
pub use ledger::{Ledger, NoLedger, NoSlot, Slot};
pub use provenance::{
    Provenance, ProvenanceBody, ProvenanceBuilder, ProvenanceFuture, ProvenanceLayer,
    ProvenanceService,
};
pub use record::{
    AttemptFinished, AttemptStarted, CallFinished, CallStarted, DecisionMade, Finished, Outcome,
    Started,
};
