//! What the dialects make of answers: the wire cases of `tests/data/wire-cases.jsonl`, cut in every
//! way, in both modes; and input of the hostile kind.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on panics")]

mod agnostic;
mod answers;
mod cases;
mod ends;
mod hostile;
mod presented;
mod requests;
mod rules;
mod support;
