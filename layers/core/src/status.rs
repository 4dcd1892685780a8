use http::StatusCode;

use crate::Class;

/// What a status means by itself, at any provider.
///
/// Sources: RFC 9110; the retry rules of the official SDKs (408, 409, 429, 5xx); 499 and 529 as
/// nginx, Google and Anthropic use them; 520 to 524 as Cloudflare does. 501 is permanent: Google's
/// and AWS's lists leave it out. A redirect, which nobody here follows, says that the resource is
/// not at this address.
pub(crate) fn class_of(status: StatusCode) -> Class {
    match status.as_u16() {
        200..=299 | 304 => Class::Success,
        300..=399 | 404 | 410 => Class::NotFound,
        401 | 403 | 407 | 511 => Class::Auth,
        402 => Class::QuotaExhausted,
        408 | 504 | 522 | 524 | 598 => Class::Timeout,
        409 | 425 | 499 => Class::Transient,
        413 | 414 | 431 => Class::TooLarge,
        424 | 502 | 520..=527 | 530 => Class::Upstream,
        429 => Class::RateLimited,
        451 => Class::ContentRefused,
        501 | 505 => Class::InvalidRequest,
        503 | 529 => Class::Overloaded,
        400..=499 => Class::InvalidRequest,
        500..=599 => Class::Transient,
        // 1xx never ends an exchange, and 600 and more are nobody's: not an answer to trust.
        _ => Class::Upstream,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_status_number_has_a_class() {
        for code in 100..=999 {
            let status = StatusCode::from_u16(code).unwrap();
            let class = class_of(status);
            assert_eq!(
                class == Class::Success,
                status.is_success() || code == 304,
                "{code} is {class}"
            );
        }
    }

    #[test]
    fn unregistered_statuses_of_the_field_are_known() {
        for (code, class) in [
            (529, Class::Overloaded),
            (599, Class::Transient),
            (498, Class::InvalidRequest),
            (499, Class::Transient),
            (520, Class::Upstream),
            (522, Class::Timeout),
            (525, Class::Upstream),
        ] {
            assert_eq!(class_of(StatusCode::from_u16(code).unwrap()), class, "{code}");
        }
    }
}
