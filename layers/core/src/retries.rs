use std::fmt;
use std::time::{Duration, Instant};

use crate::error::ConfigError;
use crate::schedule::{Generator, Seed};
use crate::{Hint, HintSource, Limit, Schedule};

/// What ends the retries of one rung.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Guard {
    /// The rung's own number of attempts.
    Attempts,
    /// The call's deadline would come before the wait is over.
    Deadline,
    /// The hint is longer than `max_hint`: sleeping that long would look like a hang.
    MaxHint,
    /// `max_retries`.
    MaxRetries,
    /// `max_retry_time`, the accumulated waiting.
    MaxRetryTime,
    /// The body continues state that the server keeps, and the attempt may have changed it.
    Stateful,
}

impl Guard {
    /// The word for this guard in configs, records and messages.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Attempts => "attempts",
            Self::Deadline => "deadline",
            Self::MaxHint => "max_hint",
            Self::MaxRetries => "max_retries",
            Self::MaxRetryTime => "max_retry_time",
            Self::Stateful => "retry_stateful",
        }
    }
}

impl fmt::Display for Guard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// The bounds within which one rung is retried.
///
/// Defaults (document C): 7 retries, 60 s of accumulated waiting, hints up to 120 s. The two first
/// are compared differently. A retry past `max_retries` never happens. `max_retry_time` is compared
/// *before* each wait with what has been waited so far, so that the last wait may carry the sum past
/// it: with the default schedule there are 7 retries and 63.5 s of nominal waiting.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Guards {
    /// Attempts after the first.
    pub max_retries: Limit<u32>,
    /// Accumulated waiting, in time; what the attempts themselves take does not count.
    pub max_retry_time: Limit<Duration>,
    /// The longest hint that is slept through, inclusive. A longer one ends the rung.
    pub max_hint: Limit<Duration>,
}

impl Guards {
    /// Whether no retry can ever happen.
    #[must_use]
    pub fn allow_no_retry(&self) -> bool {
        self.max_retries == Limit::Finite(0) || self.max_retry_time == Limit::Finite(Duration::ZERO)
    }

    /// Whether retrying can go on for ever: allowed, but worth a warning.
    #[must_use]
    pub const fn are_both_off(&self) -> bool {
        self.max_retries.is_unlimited() && self.max_retry_time.is_unlimited()
    }

    /// The guards that are switched off, for messages.
    pub fn disabled(&self) -> impl Iterator<Item = Guard> + use<> {
        let Self { max_retries, max_retry_time, max_hint } = *self;
        [
            (Guard::MaxRetries, max_retries.is_unlimited()),
            (Guard::MaxRetryTime, max_retry_time.is_unlimited()),
            (Guard::MaxHint, max_hint.is_unlimited()),
        ]
        .into_iter()
        .filter_map(|(guard, off)| off.then_some(guard))
    }

    /// Whether the settings make sense; builders of layers ask.
    ///
    /// # Errors
    /// [`ConfigError`] for a `max_hint` of zero, which would end a rung at any hint.
    pub fn check(&self) -> Result<(), ConfigError> {
        if self.max_hint == Limit::Finite(Duration::ZERO) {
            return Err(ConfigError::new(
                "max_hint",
                "is zero, so that any hint would end the rung",
                "use a longer time, or -1 for no bound",
            ));
        }
        Ok(())
    }
}

impl Default for Guards {
    fn default() -> Self {
        Self {
            max_retries: Limit::Finite(DEFAULT_MAX_RETRIES),
            max_retry_time: Limit::Finite(DEFAULT_MAX_RETRY_TIME),
            max_hint: Limit::Finite(DEFAULT_MAX_HINT),
        }
    }
}

/// The retries of one call on one rung: how many there were, and whether there is another.
///
/// Knows no clock: it is told `now` and answers with a wait. It belongs to one call; nothing in it
/// is shared, so that no call eats another's tries.
#[derive(Debug)]
pub struct Retries {
    count: u32,
    waited: Duration,
    previous: Duration,
    generator: Option<Generator>,
}

impl Retries {
    /// No retry yet.
    #[must_use]
    pub const fn new() -> Self {
        Self { count: 0, waited: Duration::ZERO, previous: Duration::ZERO, generator: None }
    }

    /// Attempts after the first, so far.
    #[must_use]
    pub const fn count(&self) -> u32 {
        self.count
    }

    /// The waits so far, added up.
    #[must_use]
    pub const fn waited(&self) -> Duration {
        self.waited
    }

    /// Decides about the next retry after a failure with `hint`, and counts it.
    ///
    /// The wait counts from `now`; one that ends at or past the deadline is not begun. The first
    /// wait splits this call's own generator from `seed`.
    pub fn next(
        &mut self,
        schedule: &Schedule,
        bounds: &Bounds,
        hint: Option<Hint>,
        now: Instant,
        seed: &Seed,
    ) -> Next {
        let Bounds { guards, attempts, deadline } = bounds;
        if attempts.is_some_and(|attempts| self.count.saturating_add(1) >= attempts) {
            return Next::Stop(Guard::Attempts);
        }
        if guards.max_retries.is_reached_by(&self.count) {
            return Next::Stop(Guard::MaxRetries);
        }
        if guards.max_retry_time.is_reached_by(&self.waited) {
            return Next::Stop(Guard::MaxRetryTime);
        }
        if hint.is_some_and(|hint| guards.max_hint.is_exceeded_by(&hint.wait())) {
            return Next::Stop(Guard::MaxHint);
        }
        let draw = if schedule.is_drawn() {
            self.generator.get_or_insert_with(|| seed.split()).draw()
        } else {
            0.0
        };
        let scheduled = schedule.jittered(self.count, self.previous, draw);
        let (wait, reason) = match hint {
            Some(hint) => {
                let hinted = schedule.spread_hint(hint.wait(), draw);
                if hinted > scheduled {
                    (hinted, WaitReason::Hint(hint.source()))
                } else {
                    (scheduled, WaitReason::Schedule)
                }
            }
            None => (scheduled, WaitReason::Schedule),
        };
        let over = now.checked_add(wait);
        if deadline.is_some_and(|deadline| over.is_none_or(|over| over >= deadline)) {
            return Next::Stop(Guard::Deadline);
        }
        self.count = self.count.saturating_add(1);
        self.waited = self.waited.saturating_add(wait);
        self.previous = scheduled;
        Next::Wait { wait, reason }
    }
}

impl Default for Retries {
    fn default() -> Self {
        Self::new()
    }
}

/// Everything that ends the retries of one call on one rung.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Bounds {
    /// The guards of the policy, as they are for this call.
    pub guards: Guards,
    /// The rung's own number of attempts, the first included.
    pub attempts: Option<u32>,
    /// The instant at which the call must be over.
    pub deadline: Option<Instant>,
}

impl Bounds {
    /// The bounds of `guards`, with neither a number of attempts nor a deadline.
    #[must_use]
    pub const fn new(guards: Guards) -> Self {
        Self { guards, attempts: None, deadline: None }
    }

    /// Whether no retry can ever happen: who asks can save the copy that nobody will need.
    #[must_use]
    pub fn allow_no_retry(&self) -> bool {
        self.attempts.is_some_and(|attempts| attempts <= 1) || self.guards.allow_no_retry()
    }
}

/// What follows a failure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(clippy::exhaustive_enums, reason = "there is another attempt or there is not")]
pub enum Next {
    /// Try again after this wait.
    Wait {
        /// How long, jitter included.
        wait: Duration,
        /// What set it.
        reason: WaitReason,
    },
    /// The rung is spent.
    Stop(Guard),
}

/// What set the length of a wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum WaitReason {
    /// The server's hint, which was later than the schedule.
    Hint(HintSource),
    /// Nothing: the next rung of a chain is asked at once.
    NextRung,
    /// The schedule.
    Schedule,
    /// The request provably was not processed: it is repeated at once.
    Unprocessed,
}

impl WaitReason {
    /// Every reason.
    pub(crate) const ALL: &[Self] = &[
        Self::Hint(HintSource::Body),
        Self::Hint(HintSource::Reset),
        Self::Hint(HintSource::RetryAfter),
        Self::Hint(HintSource::RetryAfterDate),
        Self::Hint(HintSource::RetryAfterMs),
        Self::NextRung,
        Self::Schedule,
        Self::Unprocessed,
    ];

    /// The word for this reason in records.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Hint(source) => source.as_str(),
            Self::NextRung => "next_rung",
            Self::Schedule => "schedule",
            Self::Unprocessed => "unprocessed",
        }
    }
}

/// Document C.
const DEFAULT_MAX_RETRIES: u32 = 7;
/// Document C.
const DEFAULT_MAX_RETRY_TIME: Duration = Duration::from_secs(60);
/// Minute windows answer "60" or "61"; openai-python went from 60 to 120 s for it
/// (openai/openai-python#3555).
const DEFAULT_MAX_HINT: Duration = Duration::from_secs(120);

#[cfg(test)]
mod tests;
