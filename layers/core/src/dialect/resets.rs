//! Rate limit headers as hints.

use std::time::SystemTime;

use http::HeaderMap;

use super::facts::{Bucket, ResetForm};
use crate::hint::texts;
use crate::{Hint, HintSource, time};

/// When the last of the empty buckets is full again. Buckets that still hold something are not what
/// stood in the request's way. For answers of status 429 only; the official SDKs ignore these
/// headers.
pub(super) fn hint(buckets: &[Bucket], headers: &HeaderMap, now: SystemTime) -> Option<Hint> {
    buckets
        .iter()
        .filter(|bucket| {
            texts(headers, bucket.remaining)
                .find_map(time::seconds)
                .is_some_and(|left| left.is_zero())
        })
        .filter_map(|bucket| {
            texts(headers, bucket.reset).find_map(|reset| match bucket.form {
                ResetForm::GoDuration => Hint::new(time::go_duration(reset)?, HintSource::Reset),
                ResetForm::Rfc3339 => Hint::until(time::rfc3339(reset)?, now, HintSource::Reset),
            })
        })
        .max_by_key(|hint| hint.wait())
}
