//! The errors of every layer, by whose fault they are.

use std::borrow::Cow;
use std::error::Error as StdError;
use std::fmt;

use http::StatusCode;

use crate::scrub::scrub;
use crate::verdict::MAX_MESSAGE;
use crate::{Class, Evidence, Exhausted, Verdict};

/// Any error of a service or a body below us.
pub type BoxError = Box<dyn StdError + Send + Sync>;

/// The error of every Backstop layer: flat, by whose fault it is.
///
/// Each variant knows the HTTP status that tells a caller the same ([`Error::status`]).
/// `source()` is the last real failure, so that nothing below is lost.
#[derive(thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// An attempt ended without an answer: refused, reset, timed out (the transport's fault, or
    /// the provider's).
    ///
    /// Also the error that ends a body which broke off after it had been handed on.
    #[error(transparent)]
    Attempt(Box<AttemptError>),
    /// Retrying came to its end, and the caller asked for an error rather than the last answer, or
    /// there was no answer (the provider's fault).
    #[error(transparent)]
    Exhausted(Box<Exhausted>),
    /// The call is not allowed as it was made, or what was made of it: nothing was sent, or the answer
    /// was thrown away (the configuration's fault).
    #[error("refused: {reason}; {}", if *.answered { "the answer was thrown away" } else { "nothing was sent" })]
    #[non_exhaustive]
    Refused {
        /// Which rule forbids it, and what to do.
        reason: Cow<'static, str>,
        /// Whether there was an answer, which was thrown away.
        answered: bool,
    },
    /// The configuration does not serve this call: nothing was sent (the configuration's fault).
    #[error("{reason}; nothing was sent")]
    #[non_exhaustive]
    Misconfigured {
        /// What is missing, and what to do.
        reason: Cow<'static, str>,
    },
    /// The request body is larger than `body_limit`: nothing was sent (the caller's fault).
    #[error(
        "the request body is larger than the limit of {limit} bytes; nothing was sent. Raise body_limit to allow it"
    )]
    #[non_exhaustive]
    TooLarge {
        /// The limit, in bytes.
        limit: u64,
    },
    /// All calls together hold as much as they may: nothing was sent. It passes by itself (our own
    /// overload, nobody's fault).
    #[error(
        "the calls in flight hold the {limit} bytes of buffer_limit already; nothing was sent. Try again, or raise buffer_limit"
    )]
    #[non_exhaustive]
    Full {
        /// The limit, in bytes.
        limit: u64,
    },
    /// The request body broke off before its end: nothing was sent (the caller's fault).
    #[error("the request body broke off before its end; nothing was sent")]
    RequestBody(#[source] BoxError),
    /// The ledger could not take the record, and the policy is to refuse calls then.
    #[error("the ledger cannot record the call; nothing was sent")]
    Ledger(#[source] BoxError),
}

impl Error {
    /// An attempt that ended with `verdict` because of `source`.
    #[must_use]
    pub fn attempt(verdict: Verdict, source: impl Into<BoxError>) -> Self {
        Self::Attempt(Box::new(AttemptError { verdict, source: source.into() }))
    }

    /// The error of an attempt that the call's deadline cut off, or that it let not begin.
    #[must_use]
    pub fn past_deadline() -> Self {
        let verdict = Verdict::new(Class::Timeout).with_evidence(Evidence::Local);
        Self::attempt(verdict, TimedOut::Deadline)
    }

    /// A refusal for `reason`.
    #[must_use]
    pub fn refused(reason: impl Into<Cow<'static, str>>) -> Self {
        Self::Refused { reason: reason.into(), answered: false }
    }

    /// A refusal, for `reason`, of an answer that is there: it is thrown away.
    #[must_use]
    pub fn refused_answer(reason: impl Into<Cow<'static, str>>) -> Self {
        Self::Refused { reason: reason.into(), answered: true }
    }

    /// A call that the configuration does not serve.
    #[must_use]
    pub fn misconfigured(reason: impl Into<Cow<'static, str>>) -> Self {
        Self::Misconfigured { reason: reason.into() }
    }

    /// The error of a service below: ours as it is, anybody else's as a failed attempt.
    ///
    /// Ours is never wrapped a second time, whatever boxes it came through. Anybody else's is
    /// judged by its types alone ([`crate::transport::judge`]).
    #[must_use]
    pub fn from_inner(error: impl Into<BoxError>) -> Self {
        let error = error.into();
        match error.downcast::<Self>() {
            Ok(ours) => *ours,
            Err(theirs) => {
                let verdict = crate::transport::judge(theirs.as_ref());
                Self::attempt(verdict, theirs)
            }
        }
    }

    /// The HTTP status that tells a caller what happened.
    #[must_use]
    pub fn status(&self) -> StatusCode {
        match self {
            Self::Attempt(error) => match error.verdict.class() {
                Class::Timeout => StatusCode::GATEWAY_TIMEOUT,
                _ => StatusCode::BAD_GATEWAY,
            },
            Self::Exhausted(exhausted) => exhausted.status(),
            Self::Refused { .. } => StatusCode::FORBIDDEN,
            Self::Misconfigured { .. } => StatusCode::INTERNAL_SERVER_ERROR,
            Self::TooLarge { .. } => StatusCode::PAYLOAD_TOO_LARGE,
            Self::RequestBody(_) => StatusCode::BAD_REQUEST,
            Self::Full { .. } | Self::Ledger(_) => StatusCode::SERVICE_UNAVAILABLE,
        }
    }

    /// A word for the kind of error: `attempt`, `timeout`, `upstream`, `refused`, ...
    ///
    /// Giving up because of the guards is a `timeout`, as the callers of document C expect.
    #[must_use]
    pub fn kind(&self) -> &'static str {
        match self {
            Self::Attempt(_) => "attempt",
            Self::Exhausted(exhausted) => exhausted.kind(),
            Self::Refused { .. } => "refused",
            Self::Misconfigured { .. } => "misconfigured",
            Self::TooLarge { .. } => "too_large",
            Self::Full { .. } => "buffer_full",
            Self::RequestBody(_) => "request_body",
            Self::Ledger(_) => "ledger",
        }
    }

    /// The verdict of the attempt that failed, where it was one.
    #[must_use]
    pub fn verdict(&self) -> Option<&Verdict> {
        match self {
            Self::Attempt(error) => Some(&error.verdict),
            Self::Exhausted(exhausted) => Some(exhausted.verdict()),
            _ => None,
        }
    }
}

/// As readable as `Display`, and as safe: what an error below us prints of itself may hold a URL with a
/// key in it.
impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Attempt(error) => f.debug_tuple("Attempt").field(error).finish(),
            Self::Exhausted(error) => f.debug_tuple("Exhausted").field(error).finish(),
            Self::Refused { reason, answered } => f
                .debug_struct("Refused")
                .field("reason", reason)
                .field("answered", answered)
                .finish(),
            Self::Misconfigured { reason } => {
                f.debug_struct("Misconfigured").field("reason", reason).finish()
            }
            Self::TooLarge { limit } => f.debug_struct("TooLarge").field("limit", limit).finish(),
            Self::Full { limit } => f.debug_struct("Full").field("limit", limit).finish(),
            Self::RequestBody(source) => {
                f.debug_tuple("RequestBody").field(&Scrubbed(source.as_ref())).finish()
            }
            Self::Ledger(source) => {
                f.debug_tuple("Ledger").field(&Scrubbed(source.as_ref())).finish()
            }
        }
    }
}

/// Somebody else's error in our own `Debug`: its message, scrubbed.
pub(crate) struct Scrubbed<'a>(pub(crate) &'a (dyn StdError + 'static));

impl fmt::Debug for Scrubbed<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&scrub(&self.0.to_string(), MAX_MESSAGE), f)
    }
}

/// An attempt that ended without an answer, or whose answer broke off.
pub struct AttemptError {
    verdict: Verdict,
    source: BoxError,
}

impl AttemptError {
    /// What the failure amounts to.
    #[must_use]
    pub const fn verdict(&self) -> &Verdict {
        &self.verdict
    }

    /// The verdict, and the error below.
    #[must_use]
    pub fn into_parts(self) -> (Verdict, BoxError) {
        (self.verdict, self.source)
    }
}

impl fmt::Debug for AttemptError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { verdict, source } = self;
        f.debug_struct("AttemptError")
            .field("verdict", verdict)
            .field("source", &Scrubbed(source.as_ref()))
            .finish()
    }
}

impl fmt::Display for AttemptError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let class = self.verdict.class();
        let source = self.source.to_string();
        let source = scrub(&source, MAX_MESSAGE);
        match self.verdict.stream_end() {
            None => write!(f, "the attempt failed ({class}): {source}"),
            Some(_) => write!(f, "the answer broke off ({class}): {source}"),
        }
    }
}

impl StdError for AttemptError {
    fn source(&self) -> Option<&(dyn StdError + 'static)> {
        Some(self.source.as_ref())
    }
}

/// Marks an error as one of a request that provably was not processed, so that it may be sent
/// again at once without doing anything twice.
///
/// Put it around the error where that is known: an HTTP/2 stream that was refused, a pooled
/// connection found closed before a byte was written. Layers find it anywhere in the chain of
/// sources.
#[derive(Debug, thiserror::Error)]
#[error("not processed by the server: {0}")]
#[expect(clippy::exhaustive_structs, reason = "a mark around an error, and nothing else")]
pub struct Unprocessed(#[source] pub BoxError);

/// A setting that makes no sense; found when a layer is built, never at the first call.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{key}: {problem}; {mend}")]
pub struct ConfigError {
    key: Cow<'static, str>,
    problem: Cow<'static, str>,
    mend: Cow<'static, str>,
}

impl ConfigError {
    /// `problem` with the setting `key`, and how to mend it.
    #[must_use]
    pub fn new(
        key: impl Into<Cow<'static, str>>,
        problem: impl Into<Cow<'static, str>>,
        mend: impl Into<Cow<'static, str>>,
    ) -> Self {
        Self { key: key.into(), problem: problem.into(), mend: mend.into() }
    }

    /// The setting.
    #[must_use]
    pub fn key(&self) -> &str {
        &self.key
    }
}

/// What stops a wait or a body on our side rather than the server's.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, thiserror::Error)]
#[non_exhaustive]
pub enum TimedOut {
    /// The whole attempt took longer than `timeouts.attempt`.
    #[error("the attempt was not over within timeouts.attempt")]
    Attempt,
    /// The call's deadline came.
    #[error("the call's deadline came")]
    Deadline,
    /// No content within `timeouts.first_content`.
    #[error("no content came within timeouts.first_content")]
    FirstContent,
    /// The answer's head was not complete within `timeouts.head`.
    #[error("the answer's head was not complete within timeouts.head")]
    Head,
    /// No byte for `timeouts.idle`.
    #[error("no byte came for timeouts.idle")]
    Idle,
    /// No content for `timeouts.idle_content`.
    #[error("no content came for timeouts.idle_content")]
    IdleContent,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn our_own_error_is_never_wrapped_twice() {
        let ours = Error::refused("because");
        let boxed: BoxError = Box::new(ours);
        let twice: BoxError = Box::new(Error::from_inner(boxed));
        assert!(matches!(Error::from_inner(twice), Error::Refused { .. }));
    }

    #[test]
    fn neither_debug_nor_display_prints_what_looks_like_a_credential() {
        let leak = "dial https://llm.example/v1?key=AIzaSyA-abcdefg_hijklmn-op1234567abcd failed";
        let attempt = || Error::from_inner(BoxError::from(leak));
        let exhausted = Exhausted::new(
            &http::Uri::from_static("/v1"),
            crate::Guard::MaxRetries,
            Verdict::new(Class::Transient),
        )
        .with_source(Some(attempt().into()));
        let all = [
            attempt(),
            Error::RequestBody(leak.into()),
            Error::Ledger(leak.into()),
            Error::Exhausted(Box::new(exhausted)),
        ];
        for error in all {
            for text in [format!("{error:?}"), format!("{error:#?}"), error.to_string()] {
                assert!(!text.contains("abcdefg"), "{text}");
            }
        }
    }

    #[test]
    fn a_refusal_of_ours_is_not_taken_for_an_attempt_in_somebody_elses_wrapper() {
        let wrapped = Unprocessed(Box::new(Error::refused("because")));
        let error = Error::from_inner(wrapped);
        assert_eq!(error.verdict().map(Verdict::should_retry), Some(Some(false)));
        assert_eq!(error.verdict().map(Verdict::is_unprocessed), Some(false));
    }

    #[test]
    fn somebody_elses_error_keeps_its_source() {
        let error = Error::from_inner(std::io::Error::from(std::io::ErrorKind::ConnectionReset));
        let source = error.source().and_then(|e| e.downcast_ref::<std::io::Error>());
        assert_eq!(source.map(std::io::Error::kind), Some(std::io::ErrorKind::ConnectionReset));
        assert_eq!(error.status(), 502);
    }
}
