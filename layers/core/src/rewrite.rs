//! Makes the caller's request one for a rung of a chain: model, reasoning, endpoint and credentials
//! change, and nothing else does.
//!
//! ```
//! use backstop_core::dialect::Dialect;
//! use backstop_core::rewrite::{self, Place};
//! use backstop_core::{Profile, RequestBody};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let profile = Profile::new("gpt55", "gpt-5.5", "openai", Dialect::OPENAI)?
//!     .with_endpoint("https://api.openai.com/v1".parse()?)?
//!     .with_api_key("sk-example")?;
//! let mut request = http::Request::post("https://llm.example/v1/chat/completions")
//!     .header("authorization", "Bearer the-callers-own")
//!     .body(RequestBody::from(r#"{"model":"judge","temperature":1.0}"#))?;
//!
//! rewrite::apply(&mut request, &profile, Place::Fallback)?;
//!
//! assert_eq!(request.uri(), "https://api.openai.com/v1/chat/completions");
//! assert_eq!(request.headers()["authorization"], "Bearer sk-example");
//! assert_eq!(request.body().to_bytes(), r#"{"model":"gpt-5.5","temperature":1.0}"#);
//! # Ok(())
//! # }
//! ```

mod address;
mod content;

use http::header::{CONTENT_LENGTH, HOST, HeaderValue};
use http::{Extensions, HeaderMap, Method, Request, Uri, Version};
use thiserror::Error;

use crate::dialect::Dialect;
use crate::profile::Credential;
use crate::{CallContext, Profile, RequestBody};

/// Where a rung stands in its chain.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(clippy::exhaustive_enums, reason = "a rung is the first or it is not")]
pub enum Place {
    /// Rung 0: a body whose model cannot be told is sent as it is.
    Primary,
    /// A later rung: a body whose model cannot be changed is not sent.
    Fallback,
}

/// Makes `request` one for `profile`.
///
/// - The model stands in the request as the dialect has it: at the top of the body, or in the path.
///   A declared reasoning effort too. Every other byte of the body stays; `content-length`, where there
///   is one, is set right, and digests of a body that was changed are left out.
/// - Where the profile has an endpoint other than the one that the caller addressed, the request goes
///   there, without any credential of the caller's and with the profile's own.
/// - A profile that has a credential of its own sends that one, wherever it is.
///
/// # Errors
/// [`Unfit`]; the request is to be thrown away then.
pub fn apply(
    request: &mut Request<RequestBody>,
    profile: &Profile,
    place: Place,
) -> Result<(), Unfit> {
    let moved = match profile.endpoint() {
        Some(endpoint) => address::differs(request.uri(), endpoint),
        None => false,
    };
    if request.method() != Method::GET && request.method() != Method::HEAD {
        content::apply(request, profile, place)?;
    }
    let credential = match (profile.credential(), moved) {
        (Some(credential), _) => Some(credential),
        (None, true) => {
            return Err(Unfit::NoCredential {
                profile: profile.id().into(),
                provider: profile.provider().into(),
            });
        }
        (None, false) => None,
    };
    if credential.is_some() {
        strip(request.headers_mut());
    }
    if let (Some(endpoint), true) = (profile.endpoint(), moved) {
        let uri = address::at(request.uri(), endpoint, profile.dialect())
            .ok_or_else(|| Unfit::NoAddress { profile: profile.id().into() })?;
        *request.uri_mut() = uri;
        // The client writes the new one.
        request.headers_mut().remove(HOST);
    } else if credential.is_some()
        && let Some(uri) = address::without_credentials(request.uri())
    {
        *request.uri_mut() = uri;
    }
    if let Some(Credential::Key(value)) = credential {
        request.headers_mut().insert(profile.dialect().credential_header(), value.clone());
    }
    Ok(())
}

/// Whether `profile` could not be asked for want of a credential: its endpoint is not the one that
/// `uri` addresses, and it has none of its own.
#[must_use]
pub fn lacks_credential(uri: &Uri, profile: &Profile) -> bool {
    let endpoint = profile.endpoint().filter(|_| !profile.has_credential());
    endpoint.is_some_and(|endpoint| address::differs(uri, endpoint))
}

/// Takes every credential out, of any provider.
fn strip(headers: &mut HeaderMap) {
    for name in Dialect::credential_headers() {
        headers.remove(*name);
    }
    // What somebody has marked as a secret is one, whatever its name.
    while let Some(secret) =
        headers.iter().find(|(_, value)| value.is_sensitive()).map(|(name, _)| name.clone())
    {
        headers.remove(secret);
    }
}

/// Sets the length that a changed body has, and leaves out what described the old one.
fn describe(headers: &mut HeaderMap, len: u64) {
    if headers.contains_key(CONTENT_LENGTH) {
        headers.insert(CONTENT_LENGTH, HeaderValue::from(len));
    }
    if headers.keys().any(|name| DIGESTS.contains(&name.as_str())) {
        for name in DIGESTS {
            headers.remove(*name);
        }
    }
}

/// Headers that are about the body's very bytes (RFC 9530, and what came before it).
const DIGESTS: &[&str] = &["content-digest", "repr-digest", "digest", "content-md5"];

/// Why a request cannot be made one for a profile.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
#[non_exhaustive]
pub enum Unfit {
    /// The profile's endpoint makes no address with the request's path.
    #[error("the path of the request makes no address at the endpoint of profile {profile:?}")]
    #[non_exhaustive]
    NoAddress {
        /// The profile's ID.
        profile: Box<str>,
    },
    /// The profile's endpoint is not the one that the caller addressed, and it has no credential. The
    /// caller's is never sent there.
    #[error(
        "profile {profile:?} has no credential for {provider:?}; set its API key, or say that it needs none"
    )]
    #[non_exhaustive]
    NoCredential {
        /// The profile's ID.
        profile: Box<str>,
        /// The provider's ID.
        provider: Box<str>,
    },
    /// The body has no model that could be changed: it is not a JSON object, or names no model, or two.
    #[error("the request names no model that could be changed to that of profile {profile:?}")]
    #[non_exhaustive]
    NoModel {
        /// The profile's ID.
        profile: Box<str>,
    },
}

/// A request as its caller sent it, kept so that an attempt on any rung can be made from it.
#[derive(Clone, Debug)]
pub struct Original {
    method: Method,
    uri: Uri,
    version: Version,
    headers: HeaderMap,
    extensions: Extensions,
    body: RequestBody,
}

impl Original {
    /// A copy of `request`, but for the context of its call. The body is shared.
    #[must_use]
    pub fn of(request: &Request<RequestBody>) -> Self {
        Self {
            method: request.method().clone(),
            uri: request.uri().clone(),
            version: request.version(),
            headers: request.headers().clone(),
            extensions: without_context(request.extensions()),
            body: request.body().clone(),
        }
    }

    /// The request once more.
    #[must_use]
    pub fn request(&self) -> Request<RequestBody> {
        let mut request = Request::new(self.body.clone());
        *request.method_mut() = self.method.clone();
        *request.uri_mut() = self.uri.clone();
        *request.version_mut() = self.version;
        *request.headers_mut() = self.headers.clone();
        *request.extensions_mut() = self.extensions.clone();
        request
    }

    /// The body.
    #[must_use]
    pub const fn body(&self) -> &RequestBody {
        &self.body
    }
}

/// A context that held a request that held the context would never go away.
fn without_context(extensions: &Extensions) -> Extensions {
    let has_context = extensions.get::<CallContext>().is_some();
    if extensions.is_empty() || (has_context && extensions.len() == 1) {
        return Extensions::new();
    }
    let mut rest = extensions.clone();
    rest.remove::<CallContext>();
    rest
}

#[cfg(test)]
mod tests;
