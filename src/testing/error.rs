//! Failures that a script can carry and repeat.

use std::{error::Error, fmt, io, sync::Arc};

/// The error type of every double in this module: what `tower` and `http-body` users box everything into.
pub type BoxError = Box<dyn Error + Send + Sync>;

/// The error that a script hands out where it was given a text, such as [`Step::error`](super::Step::error).
///
/// A test finds it again by downcasting, however deep a layer has wrapped it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ScriptedError {
    message: String,
}

/// Makes the same failure as often as it is asked to. Errors cannot be cloned, and a script can be repeated.
#[derive(Clone)]
pub(super) struct Fault(Arc<dyn Fn() -> BoxError + Send + Sync>);

// === impl ScriptedError ===

impl ScriptedError {
    /// An error that displays as `message`.
    pub fn new(message: impl Into<String>) -> Self {
        Self { message: message.into() }
    }

    /// The text it was made with.
    #[must_use]
    pub fn message(&self) -> &str {
        &self.message
    }
}

impl fmt::Display for ScriptedError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl Error for ScriptedError {}

// === impl Fault ===

impl Fault {
    pub(super) fn message(message: impl Into<String>) -> Self {
        let error = ScriptedError::new(message);
        Self::from_fn(move || error.clone().into())
    }

    pub(super) fn io(kind: io::ErrorKind) -> Self {
        Self::from_fn(move || io::Error::from(kind).into())
    }

    pub(super) fn from_fn(make: impl Fn() -> BoxError + Send + Sync + 'static) -> Self {
        Self(Arc::new(make))
    }

    pub(super) fn make(&self) -> BoxError {
        (self.0)()
    }
}

impl fmt::Debug for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Fault").field(&self.make()).finish()
    }
}
