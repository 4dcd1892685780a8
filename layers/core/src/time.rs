//! The ways in which servers write times: exact to the nanosecond, and rounded up beyond it.

use std::time::{Duration, SystemTime};

/// A number that is not negative, as whole part and billionths.
///
/// Not an `f64`: `34.07` has no exact binary form, and its product with 1000, rounded up, is 34071.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Number {
    whole: u64,
    billionths: u32,
}

/// A plain number: `20`, `1.5`, `1e3`. Negative and non-finite ones are `None`, too large ones
/// saturate.
pub(crate) fn number(text: &str) -> Option<Number> {
    decimal(text).or_else(|| scientific(text))
}

/// A number of seconds.
pub(crate) fn seconds(text: &str) -> Option<Duration> {
    Some(scale(number(text)?, Duration::from_secs(1)))
}

/// A protobuf duration: decimal seconds and an `s`, as in Google's `RetryInfo`.
pub(crate) fn proto_duration(text: &str) -> Option<Duration> {
    Some(scale(decimal(text.strip_suffix('s')?)?, Duration::from_secs(1)))
}

/// A Go duration, as in OpenAI's reset headers: `120ms`, `6m0s`, `2m59.56s`.
pub(crate) fn go_duration(text: &str) -> Option<Duration> {
    let mut rest = text;
    let mut total = Duration::ZERO;
    while !rest.is_empty() {
        let unit_at = rest.find(|c: char| !c.is_ascii_digit() && c != '.')?;
        let (value, tail) = rest.split_at(unit_at);
        let unit_end = tail.find(|c: char| c.is_ascii_digit()).unwrap_or(tail.len());
        let (unit, tail) = tail.split_at(unit_end);
        let unit = match unit {
            "ns" => Duration::from_nanos(1),
            "us" | "µs" => Duration::from_micros(1),
            "ms" => Duration::from_millis(1),
            "s" => Duration::from_secs(1),
            "m" => Duration::from_secs(60),
            "h" => Duration::from_secs(3_600),
            _ => return None,
        };
        total = total.saturating_add(scale(decimal(value)?, unit));
        rest = tail;
    }
    (!text.is_empty()).then_some(total)
}

/// An RFC 3339 moment, as in Anthropic's reset headers: `2026-01-01T00:00:42Z`.
pub(crate) fn rfc3339(text: &str) -> Option<SystemTime> {
    let field = |range: std::ops::Range<usize>| -> Option<i64> {
        let digits = text.get(range)?;
        digits.bytes().all(|b| b.is_ascii_digit()).then(|| digits.parse().ok())?
    };
    let (year, month, day) = (field(0..4)?, field(5..7)?, field(8..10)?);
    let (hour, minute, second) = (field(11..13)?, field(14..16)?, field(17..19)?);
    let separators = [text.get(4..5)?, text.get(7..8)?, text.get(13..14)?, text.get(16..17)?];
    let in_range = (1..=12).contains(&month)
        && (1..=31).contains(&day)
        && hour < 24
        && minute < 60
        && second <= 60
        && separators == ["-", "-", ":", ":"]
        && matches!(text.get(10..11)?, "T" | "t" | " ");
    if !in_range {
        return None;
    }
    let rest = text.get(19..)?;
    let (fraction, zone) = rest.split_at(rest.find(['Z', 'z', '+', '-'])?);
    let billionths = match fraction.strip_prefix('.') {
        Some(digits) => decimal(&format!("0.{digits}"))?.billionths,
        None if fraction.is_empty() => 0,
        None => return None,
    };
    let offset = match zone {
        "Z" | "z" => 0,
        _ => {
            let at = |range| zone.get(range).and_then(|d: &str| d.parse::<u32>().ok());
            let (hours, minutes) = (at(1..3)?, at(4..6)?);
            let seconds = i64::from(hours) * 3_600 + i64::from(minutes) * 60;
            let well_formed = zone.len() == 6 && zone.get(3..4) == Some(":");
            if !well_formed || hours > 23 || minutes > 59 {
                return None;
            }
            if zone.starts_with('-') { -seconds } else { seconds }
        }
    };
    let since_epoch =
        days_from_civil(year, month, day) * 86_400 + hour * 3_600 + minute * 60 + second - offset;
    let since_epoch = u64::try_from(since_epoch).ok()?;
    SystemTime::UNIX_EPOCH.checked_add(Duration::new(since_epoch, billionths))
}

/// `number` times `unit`, rounded up to a nanosecond and saturating.
pub(crate) fn scale(number: Number, unit: Duration) -> Duration {
    let unit = unit.as_nanos();
    let nanos = u128::from(number.whole).saturating_mul(unit).saturating_add(
        u128::from(number.billionths).saturating_mul(unit).div_ceil(u128::from(BILLION)),
    );
    from_nanos(nanos)
}

/// `nanos` as a [`Duration`], saturating.
pub(crate) fn from_nanos(nanos: u128) -> Duration {
    let billion = u128::from(BILLION);
    match (u64::try_from(nanos / billion), u32::try_from(nanos % billion)) {
        (Ok(secs), Ok(rest)) => Duration::new(secs, rest),
        _ => Duration::MAX,
    }
}

fn decimal(text: &str) -> Option<Number> {
    let (whole, fraction) = text.split_once('.').unwrap_or((text, ""));
    let digits = |part: &str| part.bytes().all(|b| b.is_ascii_digit());
    if !digits(whole) || !digits(fraction) || (whole.is_empty() && fraction.is_empty()) {
        return None;
    }
    // All digits: the only way to fail is to be too large.
    let whole_part = if whole.is_empty() { 0 } else { whole.parse().unwrap_or(u64::MAX) };
    let mut billionths: u32 = 0;
    for place in 0..9 {
        let digit = fraction.as_bytes().get(place).map_or(0, |b| u32::from(b - b'0'));
        billionths = billionths * 10 + digit;
    }
    let beyond = fraction.bytes().skip(9).any(|b| b != b'0');
    let number = match billionths + u32::from(beyond) {
        BILLION => Number { whole: whole_part.saturating_add(1), billionths: 0 },
        billionths => Number { whole: whole_part, billionths },
    };
    Some(number)
}

fn scientific(text: &str) -> Option<Number> {
    let value: f64 = text.parse().ok()?;
    // A very long but finite wait is still a hint; `as` saturates.
    (value.is_finite() && value > 0.0).then(|| Number {
        whole: value.trunc() as u64,
        billionths: ((value.fract() * f64::from(BILLION)) as u32).min(BILLION - 1),
    })
}

/// Days from 1970-01-01 to a date of the proleptic Gregorian calendar.
fn days_from_civil(year: i64, month: i64, day: i64) -> i64 {
    // Years begin in March here, so that the leap day is a year's last.
    let shifted = if month <= 2 { year - 1 } else { year };
    let month_from_march = (month + 9) % 12;
    let day_of_year = (153 * month_from_march + 2) / 5 + day - 1;
    shifted * 365 + shifted / 4 - shifted / 100 + shifted / 400 + day_of_year - 719_468
}

const BILLION: u32 = 1_000_000_000;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn decimals_are_exact_and_round_up_past_the_nanosecond() {
        assert_eq!(seconds("34.07"), Some(Duration::from_millis(34_070)));
        assert_eq!(seconds("0.0000000001"), Some(Duration::from_nanos(1)));
        assert_eq!(seconds("0.9999999999"), Some(Duration::from_secs(1)));
        assert_eq!(seconds("1e3"), Some(Duration::from_secs(1_000)));
        assert_eq!(seconds(".5"), Some(Duration::from_millis(500)));
        for bad in ["", ".", "-1", "1.2.3", "0x10", "1e999", "NaN", "١"] {
            assert_eq!(seconds(bad), None, "{bad:?}");
        }
    }

    #[test]
    fn proto_durations_are_decimal_seconds_with_a_unit() {
        assert_eq!(proto_duration("1.837906927s"), Some(Duration::new(1, 837_906_927)));
        for bad in ["-3s", "soon", "1e999s", "1e3s", "7", "s", ""] {
            assert_eq!(proto_duration(bad), None, "{bad:?}");
        }
    }

    #[test]
    fn go_durations_add_their_parts() {
        assert_eq!(go_duration("120ms"), Some(Duration::from_millis(120)));
        assert_eq!(go_duration("6m0s"), Some(Duration::from_secs(360)));
        assert_eq!(go_duration("2m59.56s"), Some(Duration::from_millis(179_560)));
        assert_eq!(go_duration("1h1us"), Some(Duration::from_micros(3_600_000_001)));
        for bad in ["", "5", "-5s", "5 s", "5d", "s", "1.2.3s"] {
            assert_eq!(go_duration(bad), None, "{bad:?}");
        }
    }

    #[test]
    fn rfc3339_agrees_with_http_dates() {
        let same = [
            ("1970-01-01T00:00:00Z", "Thu, 01 Jan 1970 00:00:00 GMT"),
            ("2026-01-01T00:00:42Z", "Thu, 01 Jan 2026 00:00:42 GMT"),
            ("2024-02-29T23:59:59+00:00", "Thu, 29 Feb 2024 23:59:59 GMT"),
            ("2026-03-01T01:30:00+01:30", "Sun, 01 Mar 2026 00:00:00 GMT"),
            ("2025-12-31T22:00:00-02:00", "Thu, 01 Jan 2026 00:00:00 GMT"),
        ];
        for (ours, theirs) in same {
            assert_eq!(rfc3339(ours), httpdate::parse_http_date(theirs).ok(), "{ours}");
        }
        let half = rfc3339("2026-01-01T00:00:00.5Z").unwrap();
        assert_eq!(half, rfc3339("2026-01-01T00:00:00Z").unwrap() + Duration::from_millis(500));
        for bad in [
            "",
            "2026",
            "2026-13-01T00:00:00Z",
            "2026-01-01T24:00:00Z",
            "2026-01-01T00:00:00",
            "2026-01-01T00:00:00+1",
            "2026-01-01T00:00:00.xZ",
            "1969-12-31T23:59:59Z",
            "２０２６-01-01T00:00:00Z",
            "2026-01-01T00:00:00+99:99",
        ] {
            assert_eq!(rfc3339(bad), None, "{bad:?}");
        }
    }
}
