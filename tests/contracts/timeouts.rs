//! That every time bound ends exactly what it is for, exactly when it is due, and says so.

mod deadline;
mod options;
mod phases;
mod stateful;

use std::error::Error as StdError;

use backstop::testing::script::openai;
use backstop::testing::{Outcome, ScriptedBody, Step};
use backstop::vocabulary::TimedOut;
use backstop::{Error, Jitter, Limit, Schedule};

use crate::support::{exact_backoff, secs, sse};

/// What an error says ran out.
fn timed_out(error: &(dyn StdError + 'static)) -> Option<TimedOut> {
    let mut causes = std::iter::successors(Some(error), |error| (**error).source());
    causes.find_map(|cause| cause.downcast_ref().copied())
}

/// The same of a result that must be an error.
fn which<T: std::fmt::Debug>(result: Result<T, Error>) -> Option<TimedOut> {
    timed_out(&result.unwrap_err())
}

const ROLE: &str = "data: {\"choices\":[{\"index\":0,\"delta\":{\"role\":\"assistant\"}}]}\n\n";
const WORD: &str = "data: {\"choices\":[{\"index\":0,\"delta\":{\"content\":\"word \"}}]}\n\n";
const DONE: &str = "data: [DONE]\n\n";
const KEEP_ALIVE: &str = ": keep-alive\n\n";

/// A stream in which each piece comes a while after the one before.
fn stream(pieces: impl IntoIterator<Item = (u64, &'static str)>, last: Step) -> Outcome {
    let steps =
        pieces.into_iter().flat_map(|(after, piece)| [Step::pause(secs(after)), Step::data(piece)]);
    sse(ScriptedBody::new(steps.chain([last])).unknown_size())
}

fn good() -> Outcome {
    Outcome::from(openai::chat("m", "hello"))
}

/// Retries for ever, a second apart.
fn tireless() -> backstop::backoff::BackoffBuilder {
    exact_backoff()
        .schedule(Schedule::new(secs(1), secs(1)).with_jitter(Jitter::None))
        .max_retries(Limit::Unlimited)
        .max_retry_time(secs(1_000_000))
}
