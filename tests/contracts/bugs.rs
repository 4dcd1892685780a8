//! Failures that people reported of other software, and that must not exist here: each test bears the ID of its case.

mod backoff;
mod body;
mod cancel;
mod classify;
mod concurrency;
mod credentials;
mod guard;
mod hint;
mod memory;
mod stream;
