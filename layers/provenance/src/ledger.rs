use std::convert::Infallible;
use std::future::{Future, Ready, ready};

use backstop_core::error::BoxError;

use crate::record::{Finished, Started};

/// Where records are kept.
///
/// A record is *started* before what it tells of happens, and *finished* after. The place for the finish
/// is taken together with the start, so that a finish can never fail for want of one: it is called from
/// `Drop`, too.
///
/// Cloning shares the ledger.
pub trait Ledger: Clone + Send + Sync + 'static {
    /// The place for the finish of one record.
    type Slot: Slot;
    /// Why a start could not be kept.
    type Error: Into<BoxError>;
    /// The start on its way. Dropping it may leave a started record behind, which counts as
    /// `interrupted`.
    type Starting: Future<Output = Result<Self::Slot, Self::Error>> + Send;

    /// Whether records are kept at all. Where not, none is made.
    const KEEPS: bool = true;

    /// Keeps the start of a call or of an attempt. Ready once it is as durable as the ledger promises.
    fn started(&self, started: Started) -> Self::Starting;
}

/// The place that a ledger holds for the finish of one record.
pub trait Slot: Send + Sync + 'static {
    /// Keeps the finish. Neither waits nor fails: what cannot be written is counted and reported by the
    /// ledger itself.
    fn finish(self, finished: Finished);
}

/// Keeps nothing.
#[derive(Clone, Copy, Debug, Default)]
#[expect(clippy::exhaustive_structs, reason = "there is nothing in it")]
pub struct NoLedger;

impl Ledger for NoLedger {
    type Slot = NoSlot;
    type Error = Infallible;
    type Starting = Ready<Result<NoSlot, Infallible>>;
    const KEEPS: bool = false;

    fn started(&self, _: Started) -> Self::Starting {
        ready(Ok(NoSlot))
    }
}

/// The place of a record that is not kept.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct NoSlot;

impl Slot for NoSlot {
    fn finish(self, _: Finished) {}
}
