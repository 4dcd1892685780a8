//! Whether a request continues state at the server.

use super::Dialect;
use super::deep::parse;
use super::facts::State;
use crate::json::{self, Value};

/// Whether the request with this body continues state at the server, at any provider, so that
/// repeating it after an attempt that may have been processed is not the same request again.
///
/// In doubt it does: any one of several members with the same key counts, and in an
/// object that cannot be read the quoted key alone. An upload (multipart, lines of JSON) continues
/// nothing.
#[must_use]
pub fn is_stateful(body: &[u8]) -> bool {
    let states = || Dialect::ALL.iter().flat_map(|dialect| dialect.facts().state);
    if states().next().is_none() || body.trim_ascii().is_empty() {
        return false;
    }
    let continues = |request: Value<'_>| {
        request.members().any(|(key, value)| {
            states().any(|state| match state {
                State::Present(name) => key.str_is(name) && !value.is_null(),
                State::True(name) => key.str_is(name) && value.as_bool() == Some(true),
            })
        })
    };
    parse(body, continues).unwrap_or_else(|_| {
        begins_an_object(body)
            && states().any(|state| {
                let (State::Present(name) | State::True(name)) = state;
                memchr::memmem::find(body, format!("\"{name}\"").as_bytes()).is_some()
            })
    })
}

fn begins_an_object(body: &[u8]) -> bool {
    body[json::start(body)..].trim_ascii_start().starts_with(b"{")
}
