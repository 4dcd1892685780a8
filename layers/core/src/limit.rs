use std::fmt;
use std::time::Duration;

use crate::error::ConfigError;

/// A bound that is either finite or switched off.
///
/// In configs -1 switches a bound off, and no other negative number is legal: see
/// [`Limit::retries`] and [`Limit::seconds`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[expect(clippy::exhaustive_enums, reason = "a bound is there or not; there is no third case")]
pub enum Limit<T> {
    /// Up to and including this.
    Finite(T),
    /// No such bound (-1 in configs).
    Unlimited,
}

impl<T> Limit<T> {
    /// Whether there is no such bound.
    #[must_use]
    pub const fn is_unlimited(&self) -> bool {
        matches!(self, Self::Unlimited)
    }
}

impl<T: PartialOrd> Limit<T> {
    /// Whether `value` has come up to the bound (`value >= bound`). Never, where there is none.
    #[must_use]
    pub fn is_reached_by(&self, value: &T) -> bool {
        matches!(self, Self::Finite(bound) if value >= bound)
    }

    /// Whether `value` lies beyond the bound (`value > bound`). Never, where there is none.
    #[must_use]
    pub fn is_exceeded_by(&self, value: &T) -> bool {
        matches!(self, Self::Finite(bound) if value > bound)
    }
}

impl Limit<u32> {
    /// A count as configs write it; `key` names the setting in the error.
    ///
    /// # Errors
    /// [`ConfigError`] for a negative number other than -1, or one past `u32::MAX`.
    pub fn retries(key: &'static str, value: i64) -> Result<Self, ConfigError> {
        match value {
            -1 => Ok(Self::Unlimited),
            _ => u32::try_from(value).map(Self::Finite).map_err(|_| {
                ConfigError::new(
                    key,
                    format!("{value} is no count"),
                    "use 0 or more, or -1 for no limit",
                )
            }),
        }
    }
}

impl Limit<Duration> {
    /// A number of seconds as configs write it; `key` names the setting in the error.
    ///
    /// # Errors
    /// [`ConfigError`] for a negative number other than -1, or one that is not finite or too large
    /// for a [`Duration`].
    pub fn seconds(key: &'static str, value: f64) -> Result<Self, ConfigError> {
        if value == -1.0 {
            return Ok(Self::Unlimited);
        }
        Duration::try_from_secs_f64(value).map(Self::Finite).map_err(|_| {
            ConfigError::new(
                key,
                format!("{value} is no number of seconds"),
                "use 0 or more, or -1 for no limit",
            )
        })
    }
}

impl<T> From<T> for Limit<T> {
    fn from(bound: T) -> Self {
        Self::Finite(bound)
    }
}

impl fmt::Display for Limit<u32> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Finite(bound) => bound.fmt(f),
            Self::Unlimited => f.write_str("unlimited"),
        }
    }
}

impl fmt::Display for Limit<Duration> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Finite(bound) => write!(f, "{bound:?}"),
            Self::Unlimited => f.write_str("unlimited"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn minus_one_is_the_only_legal_negative() {
        assert_eq!(Limit::retries("max_retries", -1).unwrap(), Limit::Unlimited);
        assert_eq!(Limit::retries("max_retries", 0).unwrap(), Limit::Finite(0));
        for bad in [-2, i64::MIN, i64::from(u32::MAX) + 1] {
            let error = Limit::retries("max_retries", bad).unwrap_err();
            assert!(error.to_string().contains("max_retries"), "{error}");
        }
        assert_eq!(Limit::seconds("max_retry_time", -1.0).unwrap(), Limit::Unlimited);
        for bad in [-0.5, -2.0, f64::NAN, f64::INFINITY, 1e300] {
            assert!(Limit::seconds("max_retry_time", bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn a_bound_is_inclusive() {
        let bound = Limit::Finite(3);
        assert!(bound.is_reached_by(&3) && !bound.is_exceeded_by(&3));
        assert!(bound.is_exceeded_by(&4) && !bound.is_reached_by(&2));
        assert!(!Limit::Unlimited.is_reached_by(&u32::MAX));
    }
}
