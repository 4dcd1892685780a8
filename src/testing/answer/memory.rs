//! An answer without a socket.

use std::io;

use super::{Act, Answer, Ending, Framing, Head, When};
use crate::testing::{Outcome, ScriptedBody, Step};

/// The answer as an in-memory client would see it: the same head, the same pieces of body with the same pauses, and for
/// each ending the error (or the silence) that it causes in a reader.
///
/// What only a socket can show is lost: interim responses, a head's trickle, which connection is used.
impl From<Answer> for Outcome {
    fn from(answer: Answer) -> Self {
        let outcome = match &answer.head {
            Some(head) => head.outcome().body(answer.memory_body()),
            None => answer.headless(),
        };
        let outcome = match answer.after {
            Some(delay) => outcome.after(delay),
            None => outcome,
        };
        if answer.when == When::AfterBody { outcome } else { outcome.before_body() }
    }
}

impl Head {
    fn outcome(&self) -> Outcome {
        let outcome = Outcome::status(self.status);
        self.headers.iter().fold(outcome, |outcome, (name, value)| {
            outcome.header(name, &String::from_utf8_lossy(value))
        })
    }
}

impl Answer {
    /// Without a head there is no response, only what a client makes of it.
    fn headless(&self) -> Outcome {
        match self.acts.iter().find(|act| !matches!(act, Act::Pause(_))) {
            None | Some(Act::Pause(_) | Act::End(Ending::Silence)) => Outcome::never(),
            Some(Act::End(Ending::Reset)) => Outcome::io_error(io::ErrorKind::ConnectionReset),
            Some(Act::End(Ending::Close | Ending::HalfClose)) => {
                Outcome::io_error(io::ErrorKind::UnexpectedEof)
            }
            Some(Act::Write { .. } | Act::Trickle { .. }) => {
                Outcome::io_error(io::ErrorKind::InvalidData)
            }
        }
    }

    fn memory_body(&self) -> ScriptedBody {
        let mut steps = Vec::new();
        let mut ending = None;
        for act in &self.acts {
            match act {
                Act::Write { bytes, .. } => steps.push(Step::data(bytes.clone())),
                Act::Trickle { bytes, every } => {
                    for at in 0..bytes.len() {
                        steps.extend([Step::data(bytes.slice(at..=at)), Step::pause(*every)]);
                    }
                }
                Act::Pause(duration) => steps.push(Step::pause(*duration)),
                Act::End(end) => {
                    ending = Some(*end);
                    break;
                }
            }
        }
        let complete = match self.framing {
            Framing::Length(announced) => announced.is_none_or(|length| self.body_len() >= length),
            Framing::Chunked { last } => last && ending.is_none(),
            Framing::UntilClose => !matches!(ending, Some(Ending::Reset | Ending::Silence)),
        };
        match ending {
            _ if complete => {}
            Some(Ending::Reset) => steps.push(Step::io_error(io::ErrorKind::ConnectionReset)),
            Some(Ending::Close | Ending::HalfClose) => {
                steps.push(Step::io_error(io::ErrorKind::UnexpectedEof))
            }
            Some(Ending::Silence) | None => steps.push(Step::forever()),
        }
        let body = ScriptedBody::new(steps);
        match self.framing {
            Framing::Length(announced) => {
                body.content_length(announced.unwrap_or_else(|| self.body_len()))
            }
            Framing::Chunked { .. } | Framing::UntilClose => body.unknown_size(),
        }
    }
}
