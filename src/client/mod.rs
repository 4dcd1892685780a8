//! HTTP clients below and above a stack of layers, each behind a feature of its own.
//!
//! | feature | module | for |
//! |---|---|---|
//! | `async-openai` | `client::async_openai` | programs that use async-openai: a stack below its typed calls |
//! | `hyper-client` | `client::hyper` | programs without a client of their own: the lowest service of a stack, with rustls |
//! | `reqwest` | `client::reqwest` | programs that use reqwest: as the lowest service of a stack, and above it |
//!
//! None of them repeats a request, follows a redirect or hides an answer by itself: what a provider sees is what the
//! layers decided. Their errors are [`Error`], judged by types, without the request's URL.

#[cfg(feature = "async-openai")]
pub mod async_openai;
#[cfg(feature = "hyper-client")]
pub mod hyper;
#[cfg(feature = "reqwest")]
pub mod reqwest;

use backstop_core::Error;
use http::Uri;

/// Without a scheme and a host there is nowhere to send a request to, and with another scheme nobody who understands
/// it. Clients say so in errors that look like a failed attempt, which would be repeated in vain.
fn absolute(uri: &Uri) -> Result<(), Error> {
    match (uri.scheme_str(), uri.authority()) {
        (Some("http" | "https"), Some(_)) => Ok(()),
        (Some(_), Some(_)) => Err(Error::misconfigured(
            "the request's URI has a scheme that is neither http nor https",
        )),
        _ => Err(Error::misconfigured(
            "the request's URI is relative: give it a scheme and a host, or send it through a rung with a base URL",
        )),
    }
}
