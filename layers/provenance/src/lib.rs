#![doc = include_str!("../README.md")]

mod attempt;
mod call_record;
mod digest;
mod journal;
#[cfg(feature = "jsonl")]
pub mod jsonl;
mod keep;
mod ledger;
mod memory;
mod part;
mod provenance;
mod record;
mod text;

pub use attempt::{AttemptBody, AttemptBuilder, AttemptFuture, AttemptLayer, AttemptService};
pub use call_record::{
    AttemptRecord, CallRecord, DecisionRecord, ProducedBy, RungRecord, UsageRecord,
};
pub use journal::Journal;
pub use keep::OnFailure;
pub use ledger::{Ledger, NoLedger, NoSlot, Slot};
pub use memory::{MemoryLedger, MemorySlot};
pub use provenance::{
    Provenance, ProvenanceBody, ProvenanceBuilder, ProvenanceFuture, ProvenanceLayer,
    ProvenanceService,
};
pub use record::{
    AttemptFinished, AttemptStarted, CallFinished, CallStarted, DecisionMade, Finished, Outcome,
    Started,
};
