use std::fmt;

/// What one attempt, or a whole call, amounts to: success, or one class of failure.
///
/// The class says what happened, never what to do about it: that is the [`Action`](crate::Action)
/// which an [`ActionTable`](crate::ActionTable) holds for the class.
///
/// `Display` and [`Class::as_str`] give the word used in configs, logs and records (`rate_limited`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[non_exhaustive]
pub enum Class {
    /// The credentials were missing, wrong, or not allowed to do this (401, 403 and their codes).
    Auth,
    /// The caller went away before the attempt ended.
    Cancelled,
    /// The provider's policy refused the prompt or the answer, as an error or inside a 2xx.
    ContentRefused,
    /// The prompt does not fit this model's context window; another model's may be larger.
    ContextWindowExceeded,
    /// The request itself is at fault (400, 405, 415, 422, 501); the same bytes will fail again.
    InvalidRequest,
    /// No such model, deployment or path (404, 410).
    NotFound,
    /// The provider lacks capacity at the moment (529, 503, capacity codes).
    Overloaded,
    /// Money or a long window (a day, a month) is used up; waiting a minute does not help.
    QuotaExhausted,
    /// The caller's rate over a short window; it passes by itself.
    RateLimited,
    /// A whole answer came, also one cut short by the caller's own token limit.
    Success,
    /// Something took too long: 408, 504, 522, 524, deadline codes, our own timeouts.
    Timeout,
    /// The request is larger than the provider, or we, accept (413 and size codes); or an answer larger
    /// than may be held, where it must not be handed on in part.
    TooLarge,
    /// A fault of the provider or of the transport that is likely gone next time: 500, a reset, a
    /// truncated stream, an empty or undecodable 2xx.
    Transient,
    /// Something between us and the model spoke for it: 502, CDN pages, relayed errors.
    Upstream,
}

impl Class {
    /// Every class, in alphabetical order: for tables and for configs.
    pub const ALL: [Self; 14] = [
        Self::Auth,
        Self::Cancelled,
        Self::ContentRefused,
        Self::ContextWindowExceeded,
        Self::InvalidRequest,
        Self::NotFound,
        Self::Overloaded,
        Self::QuotaExhausted,
        Self::RateLimited,
        Self::Success,
        Self::Timeout,
        Self::TooLarge,
        Self::Transient,
        Self::Upstream,
    ];

    /// The word for this class in configs, logs and records.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Auth => "auth",
            Self::Cancelled => "cancelled",
            Self::ContentRefused => "content_refused",
            Self::ContextWindowExceeded => "context_window_exceeded",
            Self::InvalidRequest => "invalid_request",
            Self::NotFound => "not_found",
            Self::Overloaded => "overloaded",
            Self::QuotaExhausted => "quota_exhausted",
            Self::RateLimited => "rate_limited",
            Self::Success => "success",
            Self::Timeout => "timeout",
            Self::TooLarge => "too_large",
            Self::Transient => "transient",
            Self::Upstream => "upstream",
        }
    }

    /// The class that a config or a record calls `word`; `None` for an unknown word.
    #[must_use]
    pub fn from_word(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|class| class.as_str() == word)
    }

    /// Whether this is any class but [`Class::Success`].
    #[must_use]
    pub const fn is_failure(self) -> bool {
        !matches!(self, Self::Success)
    }

    /// The HTTP status that stands for this class where the wire carried none, or a 2xx although
    /// the answer was a failure.
    ///
    /// Overload becomes 503, which every HTTP client knows; a dialect with a status of its own for it
    /// (Anthropic: 529) overrides this.
    #[must_use]
    pub const fn status(self) -> http::StatusCode {
        use http::StatusCode;
        match self {
            Self::Auth => StatusCode::UNAUTHORIZED,
            Self::Cancelled | Self::Transient => StatusCode::INTERNAL_SERVER_ERROR,
            Self::ContentRefused | Self::ContextWindowExceeded | Self::InvalidRequest => {
                StatusCode::BAD_REQUEST
            }
            Self::NotFound => StatusCode::NOT_FOUND,
            Self::Overloaded => StatusCode::SERVICE_UNAVAILABLE,
            Self::QuotaExhausted | Self::RateLimited => StatusCode::TOO_MANY_REQUESTS,
            Self::Success => StatusCode::OK,
            Self::Timeout => StatusCode::GATEWAY_TIMEOUT,
            Self::TooLarge => StatusCode::PAYLOAD_TOO_LARGE,
            Self::Upstream => StatusCode::BAD_GATEWAY,
        }
    }
}

impl fmt::Display for Class {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_class_has_a_word_of_its_own_that_reads_back() {
        for class in Class::ALL {
            assert_eq!(Class::from_word(class.as_str()), Some(class));
        }
        assert_eq!(Class::from_word("permanent"), None);
        assert!(Class::ALL.is_sorted(), "as_str and ALL are alphabetical");
    }

    #[test]
    fn only_success_is_no_failure() {
        let good: Vec<_> = Class::ALL.into_iter().filter(|class| !class.is_failure()).collect();
        assert_eq!(good, [Class::Success]);
    }
}
