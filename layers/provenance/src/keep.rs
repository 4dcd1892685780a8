use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use backstop_core::error::{BoxError, ConfigError, Error};
use backstop_core::scrub;
use pin_project_lite::pin_project;
use tokio::time::{Instant, Sleep, sleep_until};

use crate::ledger::Ledger;
use crate::record::Started;

/// What is done where the ledger does not keep the start of a record, or not in time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum OnFailure {
    /// Goes on without the record, counts the loss, and says so loudly, once for each outage.
    Continue,
    /// Sends nothing: [`Error::Ledger`]. What is not recorded does not happen.
    #[default]
    Refuse,
}

impl OnFailure {
    /// The word for this in configs.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Continue => "continue",
            Self::Refuse => "refuse",
        }
    }
}

/// A ledger, and what is done where it fails.
#[derive(Clone, Debug)]
pub(crate) struct Keeper<L> {
    pub(crate) ledger: L,
    pub(crate) timeout: Duration,
    pub(crate) on_failure: OnFailure,
    losses: Arc<Losses>,
}

#[derive(Debug, Default)]
struct Losses {
    count: AtomicU64,
    is_out: AtomicBool,
}

impl<L> Keeper<L> {
    pub(crate) fn new(ledger: L) -> Self {
        let (timeout, on_failure) = (DEFAULT_TIMEOUT, OnFailure::default());
        Self { ledger, timeout, on_failure, losses: Arc::default() }
    }

    /// The same settings for another ledger, which has lost nothing yet.
    pub(crate) fn with_ledger<M>(self, ledger: M) -> Keeper<M> {
        let Self { ledger: _, timeout, on_failure, losses: _ } = self;
        Keeper { ledger, timeout, on_failure, losses: Arc::default() }
    }

    pub(crate) fn check(&self) -> Result<(), ConfigError> {
        if self.timeout.is_zero() {
            let mend = "give the ledger some time; 5 s is the default";
            return Err(ConfigError::new("ledger.timeout", "is zero", mend));
        }
        Ok(())
    }

    pub(crate) fn losses(&self) -> u64 {
        self.losses.count.load(Ordering::Relaxed)
    }

    fn works(&self) {
        if self.losses.is_out.load(Ordering::Relaxed)
            && self.losses.is_out.swap(false, Ordering::Relaxed)
        {
            let losses = self.losses();
            tracing::info!(target: "backstop", losses, "the ledger keeps records again");
        }
    }

    fn fails(&self, error: BoxError) -> Result<(), Error> {
        let is_first = !self.losses.is_out.swap(true, Ordering::Relaxed);
        let text = || scrub(&error.to_string(), MAX_TEXT).into_owned();
        match self.on_failure {
            OnFailure::Continue => {
                let losses = self.losses.count.fetch_add(1, Ordering::Relaxed) + 1;
                if is_first {
                    tracing::error!(
                        target: "backstop", error = text(), losses,
                        "the ledger does not keep records: calls go on without"
                    );
                }
                Ok(())
            }
            OnFailure::Refuse => {
                if is_first {
                    tracing::error!(
                        target: "backstop", error = text(),
                        "the ledger does not keep records: calls are refused"
                    );
                }
                Err(Error::Ledger(error))
            }
        }
    }
}

impl<L: Ledger> Keeper<L> {
    /// Gives the start of a record to the ledger.
    pub(crate) fn start(&self, started: Started) -> Start<L::Starting> {
        let starting = self.ledger.started(started);
        Start { starting, timer: None, since: Instant::now() }
    }
}

pin_project! {
    /// The start of a record on its way to the ledger.
    pub(crate) struct Start<F> {
        #[pin]
        starting: F,
        #[pin]
        timer: Option<Sleep>,
        since: Instant,
    }
}

impl<F> Start<F> {
    /// Ready once the start is kept, with the place for the finish; or with `None` where it is lost and
    /// the call goes on.
    pub(crate) fn poll_kept<L>(
        self: Pin<&mut Self>,
        keeper: &Keeper<L>,
        cx: &mut Context<'_>,
    ) -> Poll<Result<Option<L::Slot>, Error>>
    where
        L: Ledger<Starting = F>,
        F: Future<Output = Result<L::Slot, L::Error>>,
    {
        let mut this = self.project();
        let error = match this.starting.poll(cx) {
            Poll::Ready(Ok(slot)) => {
                keeper.works();
                return Poll::Ready(Ok(Some(slot)));
            }
            Poll::Ready(Err(error)) => error.into(),
            Poll::Pending => {
                if this.timer.is_none() {
                    this.timer.set(Some(sleep_until(*this.since + keeper.timeout)));
                }
                let Some(timer) = this.timer.as_pin_mut() else { return Poll::Pending };
                ready!(timer.poll(cx));
                Box::new(NotInTime(keeper.timeout))
            }
        };
        Poll::Ready(keeper.fails(error).map(|()| None))
    }
}

#[derive(Debug, thiserror::Error)]
#[error("the ledger did not keep the start of a record within {0:?} (ledger.timeout)")]
struct NotInTime(Duration);

/// A commit takes milliseconds; a disk that takes seconds is out of order.
const DEFAULT_TIMEOUT: Duration = Duration::from_secs(5);
/// What an error may say in a record or a log.
pub(crate) const MAX_TEXT: usize = 1024;
