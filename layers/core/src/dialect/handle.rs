use std::borrow::Cow;
use std::fmt;

use http::{HeaderName, HeaderValue, StatusCode, Uri};

use super::facts::Facts;
use super::{Endpoint, ModelPlace, ReasoningPlace};
use super::{anthropic, credentials, error_body, gemini, openai, route};
use crate::json;

/// One provider's API, as a table of facts.
///
/// A small handle: copy it freely. Dialects are made here only; users choose one by name.
///
/// ```
/// use backstop_core::dialect::Dialect;
///
/// assert_eq!(Dialect::from_name("gemini"), Some(Dialect::GEMINI));
/// assert_eq!(Dialect::GEMINI.credential_header(), "x-goog-api-key");
/// ```
#[derive(Clone, Copy)]
pub struct Dialect {
    facts: &'static Facts,
}

impl Dialect {
    /// Anthropic's Messages API.
    pub const ANTHROPIC: Self = Self { facts: &anthropic::FACTS };
    /// Google's Gemini API.
    pub const GEMINI: Self = Self { facts: &gemini::FACTS };
    /// OpenAI's API (Chat Completions, Responses, Embeddings), and servers that speak it.
    pub const OPENAI: Self = Self { facts: &openai::FACTS };

    /// Every dialect, in alphabetical order.
    pub const ALL: &'static [Self] = &[Self::ANTHROPIC, Self::GEMINI, Self::OPENAI];

    /// The word for this dialect in configs and records.
    #[must_use]
    pub const fn name(self) -> &'static str {
        self.facts.name
    }

    /// The dialect that a config calls `name`; `None` for an unknown one.
    #[must_use]
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.iter().copied().find(|dialect| dialect.name() == name)
    }

    /// Which part of this API `uri` names, if something is posted there; [`Endpoint::Other`] if none
    /// that is known.
    #[must_use]
    pub fn endpoint(self, uri: &Uri) -> Endpoint {
        self.endpoint_of(uri).unwrap_or_default()
    }

    /// Where the model stands in a request.
    #[must_use]
    pub const fn model_place(self) -> ModelPlace {
        self.facts.model
    }

    /// The model that a request asks for. `None` where there is none, and where the body names two.
    #[must_use]
    pub fn requested_model<'a>(self, uri: &'a Uri, body: &'a [u8]) -> Option<Cow<'a, str>> {
        match self.facts.model {
            ModelPlace::Path => route::model_in_path(uri),
            ModelPlace::Body => {
                let request = json::parse(body).ok()?;
                let mut models = request.members().filter(|(key, _)| key.str_is("model"));
                let (_, model) = models.next()?;
                if models.next().is_some() { None } else { model.as_str() }
            }
        }
    }

    /// `uri` with `model` in the place of the model that its path names, percent-encoded.
    ///
    /// `None` where the model does not stand in the path, or the path names none.
    #[must_use]
    pub fn with_model_in_path(self, uri: &Uri, model: &str) -> Option<Uri> {
        match self.facts.model {
            ModelPlace::Path => route::with_model_in_path(uri, model),
            ModelPlace::Body => None,
        }
    }

    /// Where a reasoning effort stands in a request to `endpoint`; `None` if there is no place.
    #[must_use]
    pub fn reasoning_place(self, endpoint: Endpoint) -> Option<ReasoningPlace> {
        (self.facts.reasoning)(endpoint)
    }

    /// Every request header that carries a credential or names an account, at any provider, in lower
    /// case: what has to be stripped where a request goes to an endpoint other than the one that
    /// its caller addressed.
    #[must_use]
    pub const fn credential_headers() -> &'static [&'static str] {
        credentials::HEADERS
    }

    /// Every query parameter that carries a credential, at any provider.
    #[must_use]
    pub const fn credential_query() -> &'static [&'static str] {
        credentials::QUERY
    }

    /// Whether a query parameter carries a credential, in whatever case it is written.
    #[must_use]
    pub fn is_credential_query(name: &str) -> bool {
        credentials::QUERY.iter().any(|secret| secret.eq_ignore_ascii_case(name))
    }

    /// The header in which this dialect carries its credential.
    #[must_use]
    pub const fn credential_header(self) -> HeaderName {
        HeaderName::from_static(self.facts.credential)
    }

    /// What stands before the key in [`Dialect::credential_header`], for example `Bearer`.
    #[must_use]
    pub const fn credential_scheme(self) -> Option<&'static str> {
        self.facts.scheme
    }

    /// The value of [`Dialect::credential_header`] for `key`, marked sensitive; `None` if the key
    /// has bytes that no header can carry.
    #[must_use]
    pub fn credential(self, key: &str) -> Option<HeaderValue> {
        let mut value = match self.facts.scheme {
            Some(scheme) => HeaderValue::try_from(format!("{scheme} {key}")),
            None => HeaderValue::from_str(key),
        }
        .ok()?;
        value.set_sensitive(true);
        Some(value)
    }

    /// An error of our own, as this dialect would write it in a document with `status`: official
    /// SDKs raise their usual exception for it. `kind` is our word for what happened, in snake case.
    #[must_use]
    pub fn error_body(self, status: StatusCode, kind: &str, message: &str) -> bytes::Bytes {
        error_body::of(Some(self), status, kind, message)
    }

    pub(super) const fn facts(self) -> &'static Facts {
        self.facts
    }

    pub(super) fn endpoint_of(self, uri: &Uri) -> Option<Endpoint> {
        self.endpoint_of_path(uri.path(), uri.query().unwrap_or_default())
    }

    /// Which part of this API a path names; `None` if it is not this API's.
    pub(crate) fn endpoint_of_path(self, path: &str, query: &str) -> Option<Endpoint> {
        (self.facts.endpoint)(path, query)
    }
}

impl PartialEq for Dialect {
    fn eq(&self, other: &Self) -> bool {
        self.facts.name == other.facts.name
    }
}

impl Eq for Dialect {}

impl std::hash::Hash for Dialect {
    fn hash<H: std::hash::Hasher>(&self, state: &mut H) {
        self.facts.name.hash(state);
    }
}

impl fmt::Debug for Dialect {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Dialect").field(&self.facts.name).finish()
    }
}

impl fmt::Display for Dialect {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.facts.name)
    }
}
