//! All layers in their order: the record beside what the providers themselves saw.

mod records;
mod shape;

use backstop::provenance::MemoryLedger;
use backstop::stack::StackBuilder;
use backstop::{Chain, Jitter, Schedule, Stack};

use crate::rig::ms;

/// A stack that records in memory, whose waits are short and exact.
pub(crate) fn recording(chain: Chain) -> (StackBuilder<MemoryLedger>, MemoryLedger) {
    let ledger = MemoryLedger::new();
    let quick = Schedule::new(ms(1), ms(2)).with_jitter(Jitter::None);
    let stack = Stack::builder(chain)
        .ledger(ledger.clone())
        .backoff(|backoff| backoff.schedule(quick))
        .router(|router| router.schedule(Schedule::new(ms(1), ms(2)).with_jitter(Jitter::None)));
    (stack, ledger)
}
