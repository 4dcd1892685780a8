use std::error::Error as StdError;
use std::fmt;
use std::time::Duration;

use http::{StatusCode, Uri};

use crate::error::{BoxError, Scrubbed};
use crate::scrub::scrub;
use crate::verdict::MAX_MESSAGE;
use crate::{Class, Guard, Verdict};

/// Retrying came to its end without a good answer.
///
/// Holds what a person needs to understand it: where the call went (without the query, which may
/// hold a key), the caller's label, how often it was retried and how long was waited, which guard
/// ended it and which were switched off, and the last failure itself (`source()`, or
/// [`Exhausted::verdict`] where the last failure was an answer).
pub struct Exhausted {
    url: Box<str>,
    label: Option<Box<str>>,
    retries: u32,
    waited: Duration,
    stopped_by: Guard,
    disabled: Vec<Guard>,
    timeout: bool,
    verdict: Verdict,
    source: Option<BoxError>,
}

impl Exhausted {
    /// Retries of the call to `uri`, of which the last failed with `verdict`, ended by `guard`.
    #[must_use]
    pub fn new(uri: &Uri, stopped_by: Guard, verdict: Verdict) -> Self {
        Self {
            url: without_query(uri),
            label: None,
            retries: 0,
            waited: Duration::ZERO,
            stopped_by,
            disabled: Vec::new(),
            timeout: false,
            verdict,
            source: None,
        }
    }

    /// The caller's label for the call.
    #[must_use]
    pub fn with_label(mut self, label: Option<&str>) -> Self {
        self.label = label.map(Into::into);
        self
    }

    /// How often the call was retried, and how long was waited for it.
    #[must_use]
    pub const fn with_retries(mut self, retries: u32, waited: Duration) -> Self {
        self.retries = retries;
        self.waited = waited;
        self
    }

    /// Which guards were switched off.
    #[must_use]
    pub fn with_disabled(mut self, disabled: impl IntoIterator<Item = Guard>) -> Self {
        self.disabled = disabled.into_iter().collect();
        self
    }

    /// The error that the last attempt ended with.
    #[must_use]
    pub fn with_source(mut self, source: Option<BoxError>) -> Self {
        self.source = source;
        self
    }

    /// Makes this a `timeout` with status 504 whatever the last failure was: `on_exhausted =
    /// "error"`, as document C asks.
    #[must_use]
    pub const fn as_timeout(mut self) -> Self {
        self.timeout = true;
        self
    }

    /// Where the call went, without the query.
    #[must_use]
    pub fn url(&self) -> &str {
        &self.url
    }

    /// The caller's label.
    #[must_use]
    pub fn label(&self) -> Option<&str> {
        self.label.as_deref()
    }

    /// Attempts after the first.
    #[must_use]
    pub const fn retries(&self) -> u32 {
        self.retries
    }

    /// The waits between attempts, added up.
    #[must_use]
    pub const fn waited(&self) -> Duration {
        self.waited
    }

    /// What ended it.
    #[must_use]
    pub const fn stopped_by(&self) -> Guard {
        self.stopped_by
    }

    /// The guards that were switched off.
    #[must_use]
    pub fn disabled(&self) -> &[Guard] {
        &self.disabled
    }

    /// The verdict on the last attempt.
    #[must_use]
    pub const fn verdict(&self) -> &Verdict {
        &self.verdict
    }

    /// `timeout` where the guards' end is to be taken for one, or the last failure was one; else
    /// `upstream`.
    #[must_use]
    pub fn kind(&self) -> &'static str {
        if self.timeout || self.verdict.class() == Class::Timeout { "timeout" } else { "upstream" }
    }

    /// 504 for a `timeout`, else 502.
    #[must_use]
    pub fn status(&self) -> StatusCode {
        if self.kind() == "timeout" { StatusCode::GATEWAY_TIMEOUT } else { StatusCode::BAD_GATEWAY }
    }
}

impl fmt::Debug for Exhausted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { url, label, retries, waited, stopped_by, disabled, timeout: _, verdict, source } =
            self;
        f.debug_struct("Exhausted")
            .field("url", url)
            .field("label", label)
            .field("retries", retries)
            .field("waited", waited)
            .field("stopped_by", stopped_by)
            .field("disabled", disabled)
            .field("verdict", verdict)
            .field("source", &source.as_deref().map(|source| Scrubbed(source)))
            .finish()
    }
}

impl fmt::Display for Exhausted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "gave up on {}", self.url)?;
        if let Some(label) = self.label() {
            write!(f, " for {label:?}")?;
        }
        let plural = if self.retries == 1 { "retry" } else { "retries" };
        write!(f, " after {} {plural} and {:?} of waiting", self.retries, self.waited)?;
        write!(f, " (ended by {}", self.stopped_by)?;
        if !self.disabled.is_empty() {
            f.write_str("; switched off:")?;
            for (i, guard) in self.disabled.iter().enumerate() {
                write!(f, "{} {guard}", if i == 0 { "" } else { "," })?;
            }
        }
        write!(f, "); last failure: {}", self.verdict.class())?;
        if let Some(status) = self.verdict.status() {
            write!(f, ", status {}", status.as_u16())?;
        }
        if let Some(code) = self.verdict.code() {
            write!(f, ", code {code}")?;
        }
        if let Some(message) = self.verdict.message() {
            write!(f, ": {message}")?;
        } else if let Some(source) = &self.source {
            write!(f, ": {}", scrub(&source.to_string(), MAX_MESSAGE))?;
        }
        Ok(())
    }
}

impl StdError for Exhausted {
    fn source(&self) -> Option<&(dyn StdError + 'static)> {
        self.source.as_deref().map(|source| source as _)
    }
}

/// `uri` as it may be shown: scheme, host and path. Its query may hold a key, its authority a user and a
/// password.
#[must_use]
pub fn without_query(uri: &Uri) -> Box<str> {
    let mut url = String::new();
    if let (Some(scheme), Some(authority)) = (uri.scheme_str(), uri.authority()) {
        url.push_str(scheme);
        url.push_str("://");
        // `user:password@host` is a credential too.
        url.push_str(authority.as_str().rsplit('@').next().unwrap_or_default());
    }
    url.push_str(uri.path());
    url.into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_url_loses_its_query_and_its_user() {
        let uri = Uri::from_static("https://me:secret@api.example.com/v1/chat?key=hidden");
        assert_eq!(&*without_query(&uri), "https://api.example.com/v1/chat");
        assert_eq!(&*without_query(&Uri::from_static("/v1/chat?key=hidden")), "/v1/chat");
    }

    #[test]
    fn the_message_says_where_how_often_and_why() {
        let verdict = Verdict::new(Class::Overloaded)
            .with_status(StatusCode::from_u16(529).unwrap())
            .with_code("overloaded_error");
        let exhausted = Exhausted::new(
            &Uri::from_static("https://api.example.com/v1/messages?key=k"),
            Guard::MaxRetries,
            verdict,
        )
        .with_label(Some("node-7"))
        .with_retries(7, Duration::from_millis(63_500))
        .with_disabled([Guard::MaxRetryTime])
        .as_timeout();
        assert_eq!(
            exhausted.to_string(),
            "gave up on https://api.example.com/v1/messages for \"node-7\" after 7 retries and \
             63.5s of waiting (ended by max_retries; switched off: max_retry_time); last failure: \
             overloaded, status 529, code overloaded_error"
        );
        assert_eq!((exhausted.kind(), exhausted.status().as_u16()), ("timeout", 504));
    }
}
