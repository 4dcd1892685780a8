use std::fmt;
use std::sync::Arc;

use bytes::Bytes;
use http::{HeaderValue, Uri};

use crate::dialect::Dialect;
use crate::error::ConfigError;
use crate::splice;

/// A named model configuration (`[models.<id>]`): who is asked, and under which name.
///
/// Nothing is inferred from the ID: a profile named after one model that declares another sends the
/// declared one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Profile {
    id: Arc<str>,
    model: Arc<str>,
    /// The model as a JSON string, which every call on a rung of this puts into its body.
    model_json: Bytes,
    provider: Arc<str>,
    dialect: Dialect,
    agent: Option<Arc<str>>,
    reasoning: Option<Arc<str>>,
    endpoint: Option<Uri>,
    credential: Option<Credential>,
}

/// What a profile shows its provider.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Credential {
    /// The value of the dialect's header, marked sensitive, so that `Debug` masks it.
    Key(HeaderValue),
    /// Nothing: the provider asks for none.
    NotNeeded,
}

impl Profile {
    /// The profile `id`, which sends `model` to `provider` in its `dialect`.
    ///
    /// # Errors
    /// [`ConfigError`] if `id`, `model` or `provider` is empty.
    pub fn new(
        id: impl Into<Arc<str>>,
        model: impl Into<Arc<str>>,
        provider: impl Into<Arc<str>>,
        dialect: Dialect,
    ) -> Result<Self, ConfigError> {
        let (id, model, provider) = (id.into(), model.into(), provider.into());
        for (key, value) in [("models.<id>", &id), ("model", &model), ("provider", &provider)] {
            if value.trim().is_empty() {
                return Err(ConfigError::new(key, "is empty", "give it a name"));
            }
        }
        let model_json = splice::json_string(&model);
        Ok(Self {
            id,
            model,
            model_json,
            provider,
            dialect,
            agent: None,
            reasoning: None,
            endpoint: None,
            credential: None,
        })
    }

    /// An opaque label, carried into the record.
    #[must_use]
    pub fn with_agent(mut self, agent: impl Into<Arc<str>>) -> Self {
        self.agent = Some(agent.into());
        self
    }

    /// The reasoning effort to ask for, as the dialect writes it.
    #[must_use]
    pub fn with_reasoning(mut self, reasoning: impl Into<Arc<str>>) -> Self {
        self.reasoning = Some(reasoning.into());
        self
    }

    /// Where the provider is: an origin with an optional prefix, to which the API's own part of the
    /// request's path is appended. A version that both have (`/v1`) is not doubled. Without an
    /// endpoint, calls go where the caller addressed them.
    ///
    /// # Errors
    /// [`ConfigError`] if it names no scheme or no host, or holds a user or a password.
    pub fn with_endpoint(mut self, endpoint: Uri) -> Result<Self, ConfigError> {
        let is_absolute = matches!(endpoint.scheme_str(), Some("http" | "https"));
        let authority = endpoint.authority();
        if !is_absolute || authority.is_none_or(|authority| authority.host().is_empty()) {
            let problem = format!("{endpoint} is no address of a server");
            return Err(ConfigError::new("base_url", problem, "write https://host/prefix"));
        }
        if authority.is_some_and(|authority| authority.as_str().contains('@')) {
            let problem = "holds a user or a password";
            return Err(ConfigError::new("base_url", problem, "give the key as the API key"));
        }
        self.endpoint = Some(endpoint);
        Ok(self)
    }

    /// The provider's API key, which is sent as the dialect has it. White space around it, such as the
    /// line end of a file, does not count.
    ///
    /// It replaces whatever credential the caller sent. `Debug` masks it.
    ///
    /// # Errors
    /// [`ConfigError`] if nothing is left of it, or it has bytes that no header can carry. The message
    /// does not repeat it.
    pub fn with_api_key(mut self, key: &str) -> Result<Self, ConfigError> {
        let key = key.trim();
        let refused =
            |problem| ConfigError::new("api_key", problem, "look at where it is read from");
        if key.is_empty() {
            return Err(refused("is empty"));
        }
        let value = self.dialect.credential(key).ok_or_else(|| {
            refused("has characters that no header can carry, such as a line end in its middle")
        })?;
        self.credential = Some(Credential::Key(value));
        Ok(self)
    }

    /// Says that the provider asks for no credential, as a server of one's own may not: requests go
    /// there without any, the caller's included.
    #[must_use]
    pub fn without_api_key(mut self) -> Self {
        self.credential = Some(Credential::NotNeeded);
        self
    }

    /// The ID.
    #[must_use]
    pub fn id(&self) -> &str {
        &self.id
    }

    /// The model that is sent.
    #[must_use]
    pub fn model(&self) -> &str {
        &self.model
    }

    /// The provider's ID.
    #[must_use]
    pub fn provider(&self) -> &str {
        &self.provider
    }

    /// The language that the provider speaks.
    #[must_use]
    pub const fn dialect(&self) -> Dialect {
        self.dialect
    }

    /// The opaque label.
    #[must_use]
    pub fn agent(&self) -> Option<&str> {
        self.agent.as_deref()
    }

    /// The reasoning effort.
    #[must_use]
    pub fn reasoning(&self) -> Option<&str> {
        self.reasoning.as_deref()
    }

    pub(crate) const fn model_json(&self) -> &Bytes {
        &self.model_json
    }

    pub(crate) const fn credential(&self) -> Option<&Credential> {
        self.credential.as_ref()
    }

    /// Whether an API key was set, or that none is needed.
    #[must_use]
    pub const fn has_credential(&self) -> bool {
        self.credential.is_some()
    }

    /// Where the provider is.
    #[must_use]
    pub const fn endpoint(&self) -> Option<&Uri> {
        self.endpoint.as_ref()
    }
}

/// One step of a [`Chain`]: a profile, and how many attempts it gets.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rung {
    profile: Arc<Profile>,
    attempts: u32,
}

impl Rung {
    /// `attempts` on `profile`, the first included.
    ///
    /// # Errors
    /// [`ConfigError`] for no attempt at all.
    pub fn new(profile: impl Into<Arc<Profile>>, attempts: u32) -> Result<Self, ConfigError> {
        if attempts == 0 {
            return Err(ConfigError::new(
                "same_agent_attempts",
                "is 0, so that the rung would never be asked",
                "use 1 or more; the first attempt counts",
            ));
        }
        Ok(Self { profile: profile.into(), attempts })
    }

    /// As many attempts on `profile` as the guards of a BackoffLayer allow.
    #[must_use]
    pub fn guarded(profile: impl Into<Arc<Profile>>) -> Self {
        Self { profile: profile.into(), attempts: u32::MAX }
    }

    /// The profile.
    #[must_use]
    pub fn profile(&self) -> &Profile {
        &self.profile
    }

    /// All attempts, the first included; `u32::MAX` where the guards alone bound them.
    #[must_use]
    pub const fn attempts(&self) -> u32 {
        self.attempts
    }
}

/// The ordered profiles planned for a call: rung 0 is the primary, every later one a fallback.
///
/// Cloning shares it.
#[derive(Clone, PartialEq, Eq)]
pub struct Chain {
    rungs: Arc<[Rung]>,
}

impl Chain {
    /// The chain of `rungs`.
    ///
    /// # Errors
    /// [`ConfigError`] for an empty chain, a profile that stands in it twice (by its ID, or by
    /// provider, endpoint, model and reasoning), or a rung of another dialect than the first: a body
    /// is never translated.
    pub fn new(rungs: impl IntoIterator<Item = Rung>) -> Result<Self, ConfigError> {
        let rungs: Arc<[Rung]> = rungs.into_iter().collect();
        let Some(primary) = rungs.first() else {
            return Err(ConfigError::new("agents", "is empty", "name at least the primary"));
        };
        for (i, rung) in rungs.iter().enumerate() {
            let profile = rung.profile();
            let same = rungs.iter().take(i).find(|earlier| is_same(earlier.profile(), profile));
            if let Some(earlier) = same {
                return Err(ConfigError::new(
                    "agents",
                    format!("{:?} asks the same as {:?}", profile.id(), earlier.profile().id()),
                    "leave it out; more tries on one profile are same_agent_attempts",
                ));
            }
            let (ours, theirs) = (profile.dialect(), primary.profile().dialect());
            if ours != theirs {
                return Err(ConfigError::new(
                    "agents",
                    format!(
                        "{:?} speaks {}, the primary {}",
                        profile.id(),
                        ours.name(),
                        theirs.name()
                    ),
                    "use profiles of one dialect; bodies are not translated",
                ));
            }
        }
        Ok(Self { rungs })
    }

    /// The chain of one profile, asked as often as the guards of a BackoffLayer allow.
    #[must_use]
    pub fn single(profile: impl Into<Arc<Profile>>) -> Self {
        Self { rungs: Arc::new([Rung::guarded(profile)]) }
    }

    /// The rungs in order; never empty.
    #[must_use]
    pub fn rungs(&self) -> &[Rung] {
        &self.rungs
    }

    /// Whether it has a fallback.
    #[must_use]
    pub fn has_fallback(&self) -> bool {
        self.rungs.len() > 1
    }

    /// All attempts that the chain plans: 3 + 1 is primary, primary, primary, fallback. A rung that only
    /// guards bound goes on and on.
    pub fn expanded(&self) -> impl Iterator<Item = &Profile> {
        self.rungs
            .iter()
            .flat_map(|rung| std::iter::repeat_n(rung.profile(), rung.attempts as usize))
    }
}

impl fmt::Debug for Chain {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list()
            .entries(self.rungs.iter().map(|rung| (rung.profile().id(), rung.attempts)))
            .finish()
    }
}

fn is_same(a: &Profile, b: &Profile) -> bool {
    a.id == b.id
        || (a.provider == b.provider
            && a.endpoint == b.endpoint
            && a.model == b.model
            && a.reasoning == b.reasoning)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn profile(id: &str, model: &str, dialect: Dialect) -> Profile {
        Profile::new(id, model, "p", dialect).unwrap()
    }

    fn rung(id: &str, attempts: u32) -> Rung {
        Rung::new(profile(id, id, Dialect::OPENAI), attempts).unwrap()
    }

    #[test]
    fn three_plus_one_is_primary_three_times_then_fallback() {
        let chain = Chain::new([rung("sol", 3), rung("gpt", 1)]).unwrap();
        let ids: Vec<_> = chain.expanded().map(Profile::id).collect();
        assert_eq!(ids, ["sol", "sol", "sol", "gpt"]);
        assert!(chain.has_fallback());
    }

    #[test]
    fn chains_that_make_no_sense_are_refused() {
        assert!(Chain::new([]).is_err());
        assert!(Chain::new([rung("a", 1), rung("b", 1), rung("a", 1)]).is_err());
        let other_name = Rung::new(profile("c", "a", Dialect::OPENAI), 1).unwrap();
        assert!(Chain::new([rung("a", 1), other_name]).is_err(), "same model under another ID");
        let other_dialect = Rung::new(profile("d", "d", Dialect::ANTHROPIC), 1).unwrap();
        let error = Chain::new([rung("a", 1), other_dialect]).unwrap_err();
        assert!(error.to_string().contains("anthropic"), "{error}");
        assert!(Rung::new(profile("a", "a", Dialect::OPENAI), 0).is_err());
        assert!(Profile::new("a", " ", "p", Dialect::OPENAI).is_err());
    }
}
