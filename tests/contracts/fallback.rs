//! The router: which profile is asked when, with what, and when no other is.

mod credentials;
mod forbidden;
mod order;
mod walk;

use backstop::dialect::Dialect;
use backstop::{Chain, Profile, Rung};

/// A profile of the OpenAI dialect, at a provider of its own.
pub(crate) fn profile(id: &str, url: &str) -> Profile {
    Profile::new(id, format!("model-{id}"), format!("provider-{id}"), Dialect::OPENAI)
        .unwrap()
        .with_endpoint(url.parse().unwrap())
        .unwrap()
        .with_api_key(&format!("key-{id}"))
        .unwrap()
}

pub(crate) fn chain(rungs: impl IntoIterator<Item = (Profile, u32)>) -> Chain {
    let rungs = rungs.into_iter().map(|(profile, attempts)| Rung::new(profile, attempts).unwrap());
    Chain::new(rungs).unwrap()
}
