use std::cell::LazyCell;
use std::time::{Duration, SystemTime};

use http::header::RETRY_AFTER;
use http::{HeaderMap, HeaderName, HeaderValue};

use crate::time;

/// When a server said to come back, as a wait from now, and where it said so.
///
/// Always positive: zero, negative, past and non-finite values are no hint. Fractions of a
/// millisecond round up, so that a hint is never undercut. A value too large for a [`Duration`]
/// saturates: it is a very long hint.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Hint {
    wait: Duration,
    source: HintSource,
}

impl Hint {
    /// A hint of `wait`, rounded up to a whole millisecond; `None` if it is zero.
    #[must_use]
    pub fn new(wait: Duration, source: HintSource) -> Option<Self> {
        (!wait.is_zero()).then(|| Self { wait: ceil_to_millis(wait), source })
    }

    /// A hint that names the moment `at`; `None` if that is not after `now`.
    #[must_use]
    pub fn until(at: SystemTime, now: SystemTime, source: HintSource) -> Option<Self> {
        Self::new(at.duration_since(now).ok()?, source)
    }

    /// How long to wait from the moment at which the answer came.
    #[must_use]
    pub const fn wait(self) -> Duration {
        self.wait
    }

    /// Where the hint stood.
    #[must_use]
    pub const fn source(self) -> HintSource {
        self.source
    }

    /// The hint in headers that mean the same at every provider: the first usable of
    /// `retry-after-ms` (a number) and `retry-after` (seconds, with a fraction or not, or an
    /// HTTP-date against `now`). The order is that of the OpenAI and Anthropic SDKs. Where a header
    /// stands more than once, the first usable one counts.
    pub fn of_headers(headers: &HeaderMap, now: impl FnOnce() -> SystemTime) -> Option<Self> {
        let now = LazyCell::new(now);
        let millis = |value| {
            let wait = time::scale(time::number(value)?, Duration::from_millis(1));
            Self::new(wait, HintSource::RetryAfterMs)
        };
        let seconds_or_date = |value| match time::seconds(value) {
            Some(seconds) => Self::new(seconds, HintSource::RetryAfter),
            None => {
                let date = httpdate::parse_http_date(value).ok()?;
                Self::until(date, *now, HintSource::RetryAfterDate)
            }
        };
        texts(headers, &RETRY_AFTER_MS)
            .find_map(millis)
            .or_else(|| texts(headers, RETRY_AFTER).find_map(seconds_or_date))
    }
}

/// Where a [`Hint`] stood.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum HintSource {
    /// In the body, for example Google's `RetryInfo`.
    Body,
    /// When an exhausted bucket is full again, from the provider's own rate limit headers.
    Reset,
    /// `retry-after`, in seconds.
    RetryAfter,
    /// `retry-after`, as a date.
    RetryAfterDate,
    /// `retry-after-ms`.
    RetryAfterMs,
}

impl HintSource {
    /// The word for this source in records.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Body => "body",
            Self::Reset => "reset",
            Self::RetryAfter => "retry-after",
            Self::RetryAfterDate => "retry-after-date",
            Self::RetryAfterMs => "retry-after-ms",
        }
    }
}

/// `x-should-retry`, which OpenAI and Anthropic send and their SDKs obey before all else.
pub(crate) fn should_retry(headers: &HeaderMap) -> Option<bool> {
    texts(headers, &X_SHOULD_RETRY).find_map(|word| match word {
        word if word.eq_ignore_ascii_case("true") => Some(true),
        word if word.eq_ignore_ascii_case("false") => Some(false),
        _ => None,
    })
}

/// What each header of this name says: a front may have added one of its own.
pub(crate) fn texts(
    headers: &HeaderMap,
    name: impl http::header::AsHeaderName,
) -> impl Iterator<Item = &str> {
    headers.get_all(name).iter().filter_map(|value| text(Some(value)))
}

pub(crate) fn text(value: Option<&HeaderValue>) -> Option<&str> {
    Some(value?.to_str().ok()?.trim())
}

fn ceil_to_millis(wait: Duration) -> Duration {
    match wait.subsec_nanos() % 1_000_000 {
        0 => wait,
        rest => wait.saturating_add(Duration::from_nanos(u64::from(1_000_000 - rest))),
    }
}

// Names that were looked at once, when this was compiled.
static RETRY_AFTER_MS: HeaderName = HeaderName::from_static("retry-after-ms");
static X_SHOULD_RETRY: HeaderName = HeaderName::from_static("x-should-retry");

#[cfg(test)]
mod tests {
    use super::*;

    fn hint(headers: &[(&'static str, &str)]) -> Option<Hint> {
        let now = httpdate::parse_http_date("Thu, 01 Jan 2026 00:00:00 GMT").unwrap();
        let headers = headers
            .iter()
            .map(|(name, value)| {
                (HeaderName::from_static(name), HeaderValue::from_str(value).unwrap())
            })
            .collect();
        Hint::of_headers(&headers, || now)
    }

    fn millis(headers: &[(&'static str, &str)]) -> Option<u128> {
        hint(headers).map(|hint| hint.wait().as_millis())
    }

    #[test]
    fn every_form_is_read_and_the_finer_header_wins() {
        assert_eq!(millis(&[("retry-after", "20")]), Some(20_000));
        assert_eq!(millis(&[("retry-after", " 1.5 ")]), Some(1_500));
        assert_eq!(millis(&[("retry-after", "2"), ("retry-after-ms", "1250")]), Some(1_250));
        assert_eq!(millis(&[("retry-after", "Thu, 01 Jan 2026 00:00:30 GMT")]), Some(30_000));
        assert_eq!(millis(&[("retry-after", "34.07")]), Some(34_070), "decimal, not binary");
        assert_eq!(millis(&[("retry-after", "0.0001")]), Some(1), "a fraction rounds up");
        assert_eq!(millis(&[("retry-after-ms", "0.2")]), Some(1));
    }

    #[test]
    fn an_unusable_finer_header_leaves_the_coarser_one() {
        assert_eq!(millis(&[("retry-after", "2"), ("retry-after-ms", "0")]), Some(2_000));
        assert_eq!(millis(&[("retry-after", "2"), ("retry-after-ms", "soon")]), Some(2_000));
        assert_eq!(millis(&[("retry-after", "2"), ("retry-after-ms", "-5")]), Some(2_000));
    }

    #[test]
    fn an_unusable_header_leaves_another_of_the_same_name() {
        let date = "Thu, 01 Jan 2026 00:00:30 GMT";
        for unusable in ["0", "soon", "", "-1", "Wed, 31 Dec 2025 23:59:00 GMT"] {
            for (usable, wait) in [("20", 20_000), (date, 30_000)] {
                let headers = [("retry-after", unusable), ("retry-after", usable)];
                assert_eq!(millis(&headers), Some(wait), "{unusable} {usable}");
            }
            let headers = [("retry-after-ms", unusable), ("retry-after-ms", "7")];
            assert_eq!(millis(&headers), Some(7), "{unusable}");
        }
        assert_eq!(millis(&[("retry-after", "2"), ("retry-after", "3")]), Some(2_000));
        let words = |words: [&'static str; 2]| {
            let name = HeaderName::from_static("x-should-retry");
            let headers = words.map(|word| (name.clone(), HeaderValue::from_static(word)));
            should_retry(&headers.into_iter().collect())
        };
        assert_eq!(words(["maybe", "TRUE"]), Some(true));
        assert_eq!(words(["false", "true"]), Some(false));
    }

    #[test]
    fn past_zero_negative_and_endless_values_are_no_hint() {
        for value in [
            "0",
            "-1",
            "-0",
            "0.0",
            "nan",
            "inf",
            "-inf",
            "1e999",
            "soon",
            "",
            "+",
            "Wed, 31 Dec 2025 23:59:00 GMT",
            "Thu, 01 Jan 2026 00:00:00 GMT",
            "Wed, 99 Foo 2025 23:59:00 GMT",
        ] {
            assert_eq!(hint(&[("retry-after", value)]), None, "{value:?}");
        }
    }

    #[test]
    fn a_value_past_every_duration_is_a_very_long_hint() {
        let hint = hint(&[("retry-after", "99999999999999999999999")]).unwrap();
        assert!(hint.wait() >= Duration::from_secs(u64::MAX));
        assert!(millis(&[("retry-after", "Fri, 31 Dec 9999 23:59:59 GMT")]) > Some(10u128.pow(14)));
    }
}
