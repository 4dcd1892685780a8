//! What a transport error means, by its types alone: prose is never matched.

use std::error::Error as StdError;
use std::io;

use crate::{Class, Error, Evidence, TimedOut, Unprocessed, Verdict};

/// The verdict on an attempt that ended without an answer.
///
/// `timeout` for [`TimedOut`] and for I/O errors of that kind; `transient` for everything else,
/// since a request without an answer says nothing about itself. [`Unprocessed`] anywhere in the
/// chain of sources marks the verdict as such. With the feature `hyper`, hyper's and h2's own errors
/// are recognised too (REFUSED_STREAM, GOAWAY before the stream, a request that was never written).
#[must_use]
pub fn judge(error: &(dyn StdError + 'static)) -> Verdict {
    let mut verdict = Verdict::new(Class::Transient).with_evidence(Evidence::Transport);
    for cause in chain(error) {
        // Our own word, in somebody else's wrapper: it was said already what this is.
        match cause.downcast_ref::<Error>() {
            Some(Error::Attempt(attempt)) => return attempt.verdict().clone(),
            Some(Error::Exhausted(exhausted)) => {
                return exhausted.verdict().clone().with_should_retry(false);
            }
            Some(_) => {
                return Verdict::new(Class::InvalidRequest)
                    .with_evidence(Evidence::Local)
                    .with_should_retry(false);
            }
            None => {}
        }
        if cause.is::<Unprocessed>() || is_unprocessed(cause) {
            verdict = verdict.with_unprocessed();
        }
        if cause.is::<TimedOut>() {
            verdict = verdict.with_class(Class::Timeout, Evidence::Local);
        } else if is_timeout(cause) {
            verdict = verdict.with_class(Class::Timeout, Evidence::Transport);
        }
    }
    verdict
}

fn is_timeout(cause: &(dyn StdError + 'static)) -> bool {
    cause.downcast_ref::<io::Error>().is_some_and(|e| e.kind() == io::ErrorKind::TimedOut)
}

#[cfg(not(feature = "hyper"))]
fn is_unprocessed(_: &(dyn StdError + 'static)) -> bool {
    false
}

/// hyper: a request that was taken back from the queue of a dead connection, unwritten. h2: a stream
/// that the server refused, or that lies past the last one it says it processed (RFC 9113, 8.7).
#[cfg(feature = "hyper")]
fn is_unprocessed(cause: &(dyn StdError + 'static)) -> bool {
    if let Some(error) = cause.downcast_ref::<hyper::Error>() {
        return error.is_canceled();
    }
    cause.downcast_ref::<h2::Error>().is_some_and(|error| {
        error.is_remote()
            && ((error.is_reset() && error.reason() == Some(h2::Reason::REFUSED_STREAM))
                || (error.is_go_away() && error.reason() == Some(h2::Reason::NO_ERROR)))
    })
}

fn chain<'a>(
    error: &'a (dyn StdError + 'static),
) -> impl Iterator<Item = &'a (dyn StdError + 'static)> {
    // A chain this long is a cycle or a joke; it must not hang us.
    // Dereferenced, lest `source` be that of the reference.
    let next = |error: &&'a (dyn StdError + 'static)| -> Option<&'a (dyn StdError + 'static)> {
        (**error).source()
    };
    std::iter::successors(Some(error), next).take(64)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::BoxError;

    #[derive(Debug, thiserror::Error)]
    #[error("outer")]
    struct Outer(#[source] BoxError);

    #[test]
    fn a_reset_is_transient_and_a_timeout_deep_in_the_chain_is_a_timeout() {
        let reset = io::Error::from(io::ErrorKind::ConnectionReset);
        assert_eq!(judge(&reset).class(), Class::Transient);
        let deep = Outer(Box::new(Outer(Box::new(io::Error::from(io::ErrorKind::TimedOut)))));
        assert_eq!(judge(&deep).class(), Class::Timeout);
        assert_eq!(judge(&TimedOut::Head).class(), Class::Timeout);
    }

    #[test]
    fn a_marked_error_is_unprocessed_wherever_the_mark_is() {
        let io = io::Error::from(io::ErrorKind::BrokenPipe);
        assert!(!judge(&io).is_unprocessed());
        assert!(judge(&Outer(Box::new(Unprocessed(Box::new(io))))).is_unprocessed());
    }
}
