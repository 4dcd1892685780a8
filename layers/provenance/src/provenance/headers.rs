use http::header::{HeaderMap, HeaderName, HeaderValue};

use crate::provenance::Provenance;

/// Tells in an answer's head where it comes from. What the answer has under these names, from a gateway
/// further on, is not ours to tell.
pub(crate) fn set(headers: &mut HeaderMap, provenance: &Provenance, outcome: &str) {
    let model = provenance
        .reported_model()
        .or_else(|| Some(provenance.profile()?.model()))
        .or_else(|| provenance.requested_model());
    let fallback = if provenance.fallback_used() { "true" } else { "false" };
    let waited = u64::try_from(provenance.waited().as_millis()).unwrap_or(u64::MAX);
    let values = [
        (CALL, provenance.id().and_then(|id| value(&id.to_string()))),
        (ATTEMPTS, Some(HeaderValue::from(provenance.attempts()))),
        (PROFILE, provenance.profile().and_then(|profile| value(profile.id()))),
        (MODEL, model.and_then(value)),
        (FALLBACK, Some(HeaderValue::from_static(fallback))),
        (WAITED, Some(HeaderValue::from(waited))),
        (OUTCOME, value(outcome)),
    ];
    for (name, value) in values {
        match value {
            Some(value) => headers.insert(name, value),
            None => headers.remove(name),
        };
    }
}

/// `text` as a header's value: what is not visible ASCII is percent-encoded, and so is the percent sign.
fn value(text: &str) -> Option<HeaderValue> {
    let is_plain = |byte: u8| byte.is_ascii_graphic() && byte != b'%';
    if text.bytes().all(is_plain) {
        return HeaderValue::from_str(text).ok();
    }
    let mut encoded = String::with_capacity(text.len() * 3);
    for byte in text.bytes() {
        if is_plain(byte) {
            encoded.push(char::from(byte));
        } else {
            encoded.push('%');
            for digit in [byte >> 4, byte & 15] {
                encoded.push(char::from(HEX[usize::from(digit)]));
            }
        }
    }
    HeaderValue::try_from(encoded).ok()
}

const CALL: HeaderName = HeaderName::from_static("x-backstop-call");
const ATTEMPTS: HeaderName = HeaderName::from_static("x-backstop-attempts");
const PROFILE: HeaderName = HeaderName::from_static("x-backstop-profile");
const MODEL: HeaderName = HeaderName::from_static("x-backstop-model");
const FALLBACK: HeaderName = HeaderName::from_static("x-backstop-fallback");
const WAITED: HeaderName = HeaderName::from_static("x-backstop-waited-ms");
const OUTCOME: HeaderName = HeaderName::from_static("x-backstop-outcome");
const HEX: &[u8; 16] = b"0123456789ABCDEF";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_no_header_can_carry_is_encoded() {
        for (text, header) in [
            ("gpt-5.6-sol", "gpt-5.6-sol"),
            ("", ""),
            ("ein Modell\r\nx: y", "ein%20Modell%0D%0Ax:%20y"),
            ("modèle", "mod%C3%A8le"),
            ("100%", "100%25"),
            ("\0", "%00"),
        ] {
            assert_eq!(value(text).unwrap(), header, "{text:?}");
        }
    }
}
