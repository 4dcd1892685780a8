use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use crate::error::ConfigError;
use crate::time::from_nanos;

/// How long to wait before the nth retry: `min(max, initial · factorⁿ)`, plus jitter.
///
/// It never sleeps; it answers "wait this long". Exact for any `n` up to `u32::MAX`: the doubling is
/// done in whole nanoseconds and saturates at `max`.
///
/// Defaults: 0.5 s, doubling, up to 60 s, and up to 25 % more by jitter. `max` bounds the wait
/// before jitter; [`Schedule::longest_wait`] is the bound with it.
///
/// ```
/// use backstop_core::{Jitter, Schedule};
/// use std::time::Duration;
///
/// let schedule = Schedule::default();
/// let waits: Vec<f64> = (0..8).map(|n| schedule.nominal(n).as_secs_f64()).collect();
/// assert_eq!(waits, [0.5, 1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 60.0]);
/// assert_eq!(schedule.longest_wait(), Duration::from_secs(75));
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct Schedule {
    initial: Duration,
    max: Duration,
    factor: f64,
    jitter: Jitter,
}

impl Schedule {
    /// Waits from `initial` up to `max`, doubling, with the default jitter. A `max` of
    /// [`Duration::MAX`] is no ceiling.
    #[must_use]
    pub const fn new(initial: Duration, max: Duration) -> Self {
        Self { initial, max, factor: DEFAULT_FACTOR, jitter: Jitter::Additive(DEFAULT_RATIO) }
    }

    /// Multiplies by `factor` instead of 2 from one wait to the next. At least 1.
    #[must_use]
    pub const fn with_factor(mut self, factor: f64) -> Self {
        self.factor = factor;
        self
    }

    /// Chooses the jitter.
    #[must_use]
    pub const fn with_jitter(mut self, jitter: Jitter) -> Self {
        self.jitter = jitter;
        self
    }

    /// Whether the settings make sense; builders of layers ask.
    ///
    /// # Errors
    /// [`ConfigError`] for an `initial` of zero or above `max`, a factor below 1 or not finite, a
    /// jitter ratio outside 0 to 1.
    pub fn check(&self) -> Result<(), ConfigError> {
        let Self { initial, max, factor, jitter } = self;
        if initial.is_zero() {
            return Err(ConfigError::new(
                "initial",
                "is zero",
                "a retry without a wait is a hot loop",
            ));
        }
        if initial > max {
            let problem = format!("{initial:?} is above max ({max:?})");
            return Err(ConfigError::new("initial", problem, "lower initial or raise max"));
        }
        if !(factor.is_finite() && *factor >= 1.0) {
            let problem = format!("{factor} would make the waits shrink");
            return Err(ConfigError::new("factor", problem, "use a finite number from 1"));
        }
        match jitter {
            Jitter::Additive(ratio) if !(0.0..=1.0).contains(ratio) => Err(ConfigError::new(
                "jitter",
                format!("{ratio} is no ratio"),
                "use a number from 0 to 1, or none, full, equal, decorrelated",
            )),
            _ => Ok(()),
        }
    }

    /// The wait before retry `n` (from 0), without jitter.
    #[must_use]
    pub fn nominal(&self, n: u32) -> Duration {
        if self.factor == 2.0 {
            let nanos = self.initial.as_nanos();
            // One bit fewer than there are leading zeros, so that nothing is shifted out.
            let doubled = if n < nanos.leading_zeros() { nanos << n } else { u128::MAX };
            from_nanos(doubled).min(self.max)
        } else {
            let scaled = self.initial.as_nanos() as f64 * self.factor.powf(f64::from(n));
            // `as` saturates, at infinity too; the smallest wait is the first one.
            from_nanos(scaled as u128).max(self.initial).min(self.max)
        }
    }

    /// No wait of this schedule is longer, for any `n` and any draw. Hints may ask for more.
    #[must_use]
    pub fn longest_wait(&self) -> Duration {
        match self.jitter {
            Jitter::Additive(ratio) => self.max.saturating_add(part(self.max, ratio)),
            Jitter::None | Jitter::Full | Jitter::Equal | Jitter::Decorrelated => self.max,
        }
    }

    /// By how much a hint may be overshot, as a share of the hint: a herd that got one hint must not
    /// come back as one.
    #[must_use]
    pub const fn hint_spread(&self) -> f64 {
        match self.jitter {
            Jitter::None => 0.0,
            Jitter::Additive(ratio) => ratio,
            Jitter::Full | Jitter::Equal | Jitter::Decorrelated => DEFAULT_RATIO,
        }
    }

    /// The waits of `retries` retries added up: without jitter, and at most.
    #[must_use]
    pub fn total(&self, retries: u32) -> (Duration, Duration) {
        let mut sums = (Duration::ZERO, Duration::ZERO);
        for n in 0..retries {
            let nominal = self.nominal(n);
            let extra = match self.jitter {
                Jitter::Additive(ratio) => part(nominal, ratio),
                // Three times the last wait, every time.
                Jitter::Decorrelated => self.tripled(n).saturating_sub(nominal),
                Jitter::None | Jitter::Full | Jitter::Equal => Duration::ZERO,
            };
            // From the ceiling on all waits are alike.
            let alike = if nominal == self.max { retries - n } else { 1 };
            sums.0 = sums.0.saturating_add(nominal.saturating_mul(alike));
            sums.1 = sums.1.saturating_add(nominal.saturating_add(extra).saturating_mul(alike));
            if alike > 1 || sums.0 == Duration::MAX {
                break;
            }
        }
        sums
    }

    /// The longest decorrelated wait before retry `n`.
    fn tripled(&self, n: u32) -> Duration {
        let factor = 3u128.checked_pow(n.saturating_add(1)).unwrap_or(u128::MAX);
        from_nanos(self.initial.as_nanos().saturating_mul(factor)).min(self.max)
    }

    /// The jittered wait before retry `n`, with `draw` from 0 up to (not including) 1 and the wait
    /// before the last retry as this function gave it.
    pub(crate) fn jittered(&self, n: u32, previous: Duration, draw: f64) -> Duration {
        let nominal = self.nominal(n);
        match self.jitter {
            Jitter::None => nominal,
            Jitter::Additive(ratio) => nominal.saturating_add(part(nominal, ratio * draw)),
            Jitter::Full => part(nominal, draw),
            Jitter::Equal => {
                let half = nominal / 2;
                half.saturating_add(part(nominal - half, draw))
            }
            Jitter::Decorrelated => {
                let span =
                    previous.max(self.initial).saturating_mul(3).saturating_sub(self.initial);
                self.initial.saturating_add(part(span, draw)).min(self.max)
            }
        }
    }

    pub(crate) fn spread_hint(&self, hint: Duration, draw: f64) -> Duration {
        hint.saturating_add(part(hint, self.hint_spread() * draw))
    }

    pub(crate) const fn is_drawn(&self) -> bool {
        !matches!(self.jitter, Jitter::None)
    }
}

impl Default for Schedule {
    fn default() -> Self {
        Self::new(DEFAULT_INITIAL, DEFAULT_MAX)
    }
}

/// How waits are spread, so that callers who failed together do not return together.
///
/// The default only ever adds, and still does at `max`, which is where herds form. The other kinds
/// are the field's standard ones and keep every wait within `max`. None of them ever undercuts a
/// hint.
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub enum Jitter {
    /// Up to this share of the wait on top of it; 0.25 is the default.
    Additive(f64),
    /// Between the first wait and three times the last one.
    Decorrelated,
    /// Half the wait, and up to another half.
    Equal,
    /// Anything from nothing to the whole wait.
    Full,
    /// No jitter: every wait is the nominal one.
    None,
}

/// Where the randomness of a layer comes from: one seed, from which every call splits a generator
/// of its own.
///
/// Clones share the seed's counter, so that no two calls of one stack draw the same waits; the same
/// seed gives the same waits again.
#[derive(Clone, Debug)]
pub struct Seed {
    root: u64,
    calls: Arc<AtomicU64>,
}

impl Seed {
    /// The seed `root`.
    #[must_use]
    pub fn new(root: u64) -> Self {
        Self { root, calls: Arc::new(AtomicU64::new(0)) }
    }

    /// A seed that nobody can foresee.
    #[must_use]
    pub fn random() -> Self {
        use std::hash::{BuildHasher, RandomState};
        Self::new(RandomState::new().hash_one(0u8))
    }

    /// A generator for the next call.
    #[must_use]
    pub fn split(&self) -> Generator {
        let call = self.calls.fetch_add(1, Ordering::Relaxed);
        Generator(fastrand::Rng::with_seed(self.root ^ call.wrapping_mul(GOLDEN_RATIO)))
    }
}

/// One call's own source of jitter, or of its ID.
#[derive(Clone, Debug)]
pub struct Generator(fastrand::Rng);

impl Generator {
    /// The next draw: from 0 up to, not including, 1.
    pub fn draw(&mut self) -> f64 {
        self.0.f64()
    }

    /// 128 random bits, for an ID.
    pub fn bits(&mut self) -> u128 {
        self.0.u128(..)
    }
}

/// `ratio` of `whole`, in whole nanoseconds, rounded down.
fn part(whole: Duration, ratio: f64) -> Duration {
    from_nanos((whole.as_nanos() as f64 * ratio) as u128)
}

/// Document C: waits start at 0.5 s and double.
const DEFAULT_INITIAL: Duration = Duration::from_millis(500);
const DEFAULT_FACTOR: f64 = 2.0;
/// Document A's longest wait; a minute is also the window of most rate limits.
const DEFAULT_MAX: Duration = Duration::from_secs(60);
/// A quarter spreads a herd of hundreds over seconds and costs an eighth of a wait on average; the
/// official SDKs use the same share (they subtract it).
const DEFAULT_RATIO: f64 = 0.25;
/// 2⁶⁴ divided by the golden ratio: consecutive calls get seeds that share no pattern.
const GOLDEN_RATIO: u64 = 0x9E37_79B9_7F4A_7C15;

#[cfg(test)]
mod tests;
