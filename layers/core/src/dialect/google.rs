//! `google.rpc` details of an error: they say when to come back, why, and which quota was hit.
//!
//! Shape: `details: [{"@type": "type.googleapis.com/google.rpc.RetryInfo", "retryDelay": "34.07s"},
//! ..]`. Sources: doc: Gemini API errors; googleapis/python-genai google/genai/errors.py;
//! google-gemini/gemini-cli packages/core/src/utils/googleQuotaErrors.ts.

use std::borrow::Cow;

use super::failure::text;
use crate::json::Value;
use crate::{Hint, HintSource, time};

/// What the details of one error say.
#[derive(Default)]
pub(super) struct Details<'a> {
    /// `ErrorInfo.reason`.
    pub(super) reason: Option<Cow<'a, str>>,
    /// `RetryInfo.retryDelay`.
    pub(super) hint: Option<Hint>,
    /// A quota of a whole day is used up: `QuotaFailure.violations[].quotaId` holds `PerDay` or
    /// `Daily`, words of an identifier, not of prose.
    pub(super) daily: bool,
}

impl<'a> Details<'a> {
    /// Reads a list of details; anything else says nothing.
    pub(super) fn read(details: Value<'a>) -> Self {
        let mut read = Self::default();
        for detail in details.elements() {
            let Some(kind) = text(detail, "@type") else { continue };
            match kind.rsplit('.').next() {
                Some("ErrorInfo") if read.reason.is_none() => read.reason = text(detail, "reason"),
                Some("RetryInfo") if read.hint.is_none() => {
                    read.hint = text(detail, "retryDelay")
                        .and_then(|delay| time::proto_duration(&delay))
                        .and_then(|wait| Hint::new(wait, HintSource::Body));
                }
                Some("QuotaFailure") => {
                    read.daily |= detail.get("violations").is_some_and(|violations| {
                        violations.elements().any(|violation| {
                            text(violation, "quotaId")
                                .is_some_and(|id| id.contains("PerDay") || id.contains("Daily"))
                        })
                    });
                }
                _ => {}
            }
        }
        read
    }
}
