#![doc = include_str!("../README.md")]

mod ledger;
mod record;

pub use ledger::{Ledger, NoLedger, NoSlot, Slot};
pub use record::{
    AttemptFinished, AttemptStarted, CallFinished, CallStarted, DecisionMade, Finished, Outcome,
    Started,
};
