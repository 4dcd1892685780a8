use std::error::Error as StdError;
use std::fmt;
use std::sync::Arc;

use backstop_core::Verdict;
use http::{HeaderMap, StatusCode};

/// A judgement of your own, over the built-in one.
///
/// It is asked once for every attempt, when the built-in verdict stands and before any byte of the
/// answer is handed on: `None` leaves that verdict as it is. Closures are classifiers too.
///
/// ```
/// use backstop_classify::{Answer, Classify, ClassifyLayer};
/// use backstop_core::{Class, Verdict};
///
/// /// Our proxy says 418 when it is overloaded.
/// fn teapot(answer: &Answer<'_>) -> Option<Verdict> {
///     (answer.status()?.as_u16() == 418).then(|| Verdict::new(Class::Overloaded))
/// }
/// /// Answers that are too short to be true.
/// fn too_short(answer: &Answer<'_>) -> Option<Verdict> {
///     let short = !answer.verdict().class().is_failure() && answer.body().len() < 2;
///     short.then(|| Verdict::new(Class::Transient))
/// }
/// let layer = ClassifyLayer::builder().classifier(teapot.or_else(too_short)).build()?;
/// # Ok::<(), backstop_core::ConfigError>(())
/// ```
pub trait Classify: Send + Sync {
    /// The verdict on `answer`, or `None` for the one that stands.
    ///
    /// Facts that a new verdict does not name (status, hint, model, ...) are not taken over: start
    /// from `answer.verdict().clone()` to keep them.
    fn classify(&self, answer: &Answer<'_>) -> Option<Verdict>;

    /// Asks `other` where this one has no opinion.
    fn or_else<C: Classify>(self, other: C) -> OrElse<Self, C>
    where
        Self: Sized,
    {
        OrElse { first: self, second: other }
    }

    /// Lets `next` judge what this one has judged: it sees this one's verdict in the answer.
    fn and_then<C: Classify>(self, next: C) -> AndThen<Self, C>
    where
        Self: Sized,
    {
        AndThen { first: self, second: next }
    }
}

/// What a [`Classify`] sees of an attempt.
#[derive(Clone, Copy)]
pub struct Answer<'a> {
    status: Option<StatusCode>,
    headers: Option<&'a HeaderMap>,
    body: &'a [u8],
    error: Option<&'a (dyn StdError + 'static)>,
    verdict: &'a Verdict,
}

impl<'a> Answer<'a> {
    pub(crate) const fn of_response(
        status: StatusCode,
        headers: &'a HeaderMap,
        body: &'a [u8],
        verdict: &'a Verdict,
    ) -> Self {
        Self { status: Some(status), headers: Some(headers), body, error: None, verdict }
    }

    pub(crate) const fn of_error(
        error: &'a (dyn StdError + 'static),
        verdict: &'a Verdict,
    ) -> Self {
        Self { status: None, headers: None, body: &[], error: Some(error), verdict }
    }

    const fn judged(self, verdict: &'a Verdict) -> Self {
        Self { verdict, ..self }
    }

    /// The status, if an answer came.
    #[must_use]
    pub const fn status(&self) -> Option<StatusCode> {
        self.status
    }

    /// The headers, if an answer came.
    #[must_use]
    pub const fn headers(&self) -> Option<&'a HeaderMap> {
        self.headers
    }

    /// What was held of the body, decoded: all of a document, the beginning of a stream; nothing under
    /// `hold = headers`, of a compressed stream, where the encoding cannot be read, or where no answer
    /// came.
    #[must_use]
    pub const fn body(&self) -> &'a [u8] {
        self.body
    }

    /// The error, if no answer came.
    #[must_use]
    pub const fn error(&self) -> Option<&'a (dyn StdError + 'static)> {
        self.error
    }

    /// The verdict as it stands.
    #[must_use]
    pub const fn verdict(&self) -> &'a Verdict {
        self.verdict
    }
}

impl fmt::Debug for Answer<'_> {
    /// Without headers and body, which may hold secrets and texts.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Answer")
            .field("status", &self.status)
            .field("body_len", &self.body.len())
            .field("verdict", &self.verdict)
            .finish_non_exhaustive()
    }
}

impl<F> Classify for F
where
    F: Fn(&Answer<'_>) -> Option<Verdict> + Send + Sync,
{
    fn classify(&self, answer: &Answer<'_>) -> Option<Verdict> {
        self(answer)
    }
}

impl Classify for Box<dyn Classify> {
    fn classify(&self, answer: &Answer<'_>) -> Option<Verdict> {
        (**self).classify(answer)
    }
}

impl Classify for Arc<dyn Classify> {
    fn classify(&self, answer: &Answer<'_>) -> Option<Verdict> {
        (**self).classify(answer)
    }
}

/// See [`Classify::or_else`].
#[derive(Clone, Copy, Debug)]
pub struct OrElse<A, B> {
    first: A,
    second: B,
}

impl<A: Classify, B: Classify> Classify for OrElse<A, B> {
    fn classify(&self, answer: &Answer<'_>) -> Option<Verdict> {
        self.first.classify(answer).or_else(|| self.second.classify(answer))
    }
}

/// See [`Classify::and_then`].
#[derive(Clone, Copy, Debug)]
pub struct AndThen<A, B> {
    first: A,
    second: B,
}

impl<A: Classify, B: Classify> Classify for AndThen<A, B> {
    fn classify(&self, answer: &Answer<'_>) -> Option<Verdict> {
        match self.first.classify(answer) {
            None => self.second.classify(answer),
            Some(verdict) => {
                let changed = self.second.classify(&answer.judged(&verdict));
                Some(changed.unwrap_or(verdict))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use backstop_core::Class;

    fn judge(classifier: &impl Classify) -> Option<Class> {
        let verdict = Verdict::new(Class::Success);
        let headers = HeaderMap::new();
        let answer = Answer::of_response(StatusCode::OK, &headers, b"body", &verdict);
        classifier.classify(&answer).map(|verdict| verdict.class())
    }

    fn always(class: Class) -> impl Classify {
        move |_: &Answer<'_>| Some(Verdict::new(class))
    }

    fn never(_: &Answer<'_>) -> Option<Verdict> {
        None
    }

    /// Turns a success into a failure, and knows nothing else.
    fn doubt(answer: &Answer<'_>) -> Option<Verdict> {
        (!answer.verdict().class().is_failure()).then(|| Verdict::new(Class::Upstream))
    }

    #[test]
    fn the_first_opinion_wins_with_or_else() {
        assert_eq!(judge(&never.or_else(always(Class::Auth))), Some(Class::Auth));
        assert_eq!(
            judge(&always(Class::Timeout).or_else(always(Class::Auth))),
            Some(Class::Timeout)
        );
        assert_eq!(judge(&never.or_else(never)), None);
    }

    #[test]
    fn the_second_sees_the_verdict_of_the_first_with_and_then() {
        assert_eq!(judge(&never.and_then(doubt)), Some(Class::Upstream));
        assert_eq!(judge(&always(Class::Auth).and_then(doubt)), Some(Class::Auth));
        assert_eq!(judge(&always(Class::Success).and_then(doubt)), Some(Class::Upstream));
    }

    #[test]
    fn boxed_and_shared_classifiers_are_classifiers() {
        let boxed: Box<dyn Classify> = Box::new(always(Class::Auth));
        assert_eq!(judge(&boxed), Some(Class::Auth));
        let shared: Arc<dyn Classify> = Arc::new(always(Class::Auth));
        assert_eq!(judge(&shared), Some(Class::Auth));
    }
}
