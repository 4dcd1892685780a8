use std::fmt;
use std::time::SystemTime;

/// The ID of one call: a UUID of version 7 (RFC 9562), so that IDs sort by time.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct CallId(u128);

impl CallId {
    /// The ID of a call that began at `now`; `random` tells it from others of that millisecond.
    #[must_use]
    pub fn new(now: SystemTime, random: u128) -> Self {
        let millis = now.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default().as_millis();
        let (high, low) = (random >> 64, random & 0xFFFF_FFFF_FFFF_FFFF);
        let version_7 = 0x7000 | (high & 0x0FFF);
        let variant = 0x8000_0000_0000_0000 | (low & 0x3FFF_FFFF_FFFF_FFFF);
        Self((millis & 0xFFFF_FFFF_FFFF) << 80 | version_7 << 64 | variant)
    }

    /// The ID that `text` spells, as [`CallId`] is displayed.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let is_shaped = text.len() == 36
            && text.bytes().enumerate().all(|(at, byte)| match at {
                8 | 13 | 18 | 23 => byte == b'-',
                _ => byte.is_ascii_hexdigit(),
            });
        let digits: String = text.chars().filter(|c| *c != '-').collect();
        is_shaped.then(|| u128::from_str_radix(&digits, 16).ok().map(Self))?
    }
}

impl fmt::Display for CallId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self(id) = self;
        let part = |shift: u32, digits: u32| (id >> shift) & ((1 << (digits * 4)) - 1);
        write!(
            f,
            "{:08x}-{:04x}-{:04x}-{:04x}-{:012x}",
            part(96, 8),
            part(80, 4),
            part(64, 4),
            part(48, 4),
            part(0, 12)
        )
    }
}

impl fmt::Debug for CallId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn an_id_is_a_uuid_of_version_7_and_reads_back() {
        // RFC 9562, appendix A.6.
        let now = SystemTime::UNIX_EPOCH + Duration::from_millis(0x017F_22E2_79B0);
        let id = CallId::new(now, 0x0CC3_18C4_DC0C_0C07_398F);
        let text = id.to_string();
        assert!(text.starts_with("017f22e2-79b0-7cc3-98c4-"), "{text}");
        assert_eq!(CallId::parse(&text), Some(id));
        for wrong in ["", "017f22e279b07cc398c4dc0c0c07398f", &text[1..], &text.replace('-', "x")] {
            assert_eq!(CallId::parse(wrong), None, "{wrong}");
        }
        let later = CallId::new(now + Duration::from_millis(1), 0);
        assert!(later > id, "sorted by time");
    }
}
