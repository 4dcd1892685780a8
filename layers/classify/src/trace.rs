use backstop_core::error::Error;
use backstop_core::{AttemptCell, Class, Verdict};
use http::{HeaderMap, Request, Response};
use tower_http::classify::{ClassifiedResponse, ClassifyEos, ClassifyResponse, MakeClassifier};

/// Lets tower-http's `TraceLayer` log what an attempt was judged to be, in place of its status.
///
/// ```
/// use backstop_classify::ByVerdict;
/// use tower_http::trace::TraceLayer;
///
/// let trace = TraceLayer::new(ByVerdict);
/// ```
///
/// Put it above a [`ClassifyLayer`](crate::ClassifyLayer). A stream that was handed on before its end is
/// judged again at its end; an answer without a verdict is judged by its status.
#[derive(Clone, Copy, Debug, Default)]
#[expect(clippy::exhaustive_structs, reason = "it has nothing to configure")]
pub struct ByVerdict;

/// Judges a stream at its end.
#[derive(Clone, Debug)]
pub struct VerdictAtEnd {
    cell: AttemptCell,
}

impl MakeClassifier for ByVerdict {
    type Classifier = Self;
    type FailureClass = Class;
    type ClassifyEos = VerdictAtEnd;

    fn make_classifier<B>(&self, _: &Request<B>) -> Self {
        *self
    }
}

impl ClassifyResponse for ByVerdict {
    type FailureClass = Class;
    type ClassifyEos = VerdictAtEnd;

    fn classify_response<B>(
        self,
        response: &Response<B>,
    ) -> ClassifiedResponse<Class, VerdictAtEnd> {
        let Some(cell) = AttemptCell::of(response) else {
            let now = || std::time::SystemTime::UNIX_EPOCH;
            let verdict = Verdict::of_head(response.status(), response.headers(), now);
            return ClassifiedResponse::Ready(failure(&verdict));
        };
        match (cell.last_verdict(), cell.verdict()) {
            (Some(verdict), _) => ClassifiedResponse::Ready(failure(verdict)),
            (None, Some(verdict)) if verdict.class().is_failure() => {
                ClassifiedResponse::Ready(Err(verdict.class()))
            }
            _ => ClassifiedResponse::RequiresEos(VerdictAtEnd { cell: cell.clone() }),
        }
    }

    fn classify_error<E>(self, error: &E) -> Class
    where
        E: std::fmt::Display + 'static,
    {
        let error: &dyn std::any::Any = error;
        match error.downcast_ref::<Error>().and_then(Error::verdict) {
            Some(verdict) => verdict.class(),
            None => Class::Transient,
        }
    }
}

impl ClassifyEos for VerdictAtEnd {
    type FailureClass = Class;

    fn classify_eos(self, _: Option<&HeaderMap>) -> Result<(), Class> {
        self.cell.last_verdict().map_or(Ok(()), failure)
    }

    fn classify_error<E>(self, error: &E) -> Class
    where
        E: std::fmt::Display + 'static,
    {
        match self.cell.last_verdict() {
            Some(verdict) if verdict.class().is_failure() => verdict.class(),
            _ => ByVerdict.classify_error(error),
        }
    }
}

fn failure(verdict: &Verdict) -> Result<(), Class> {
    if verdict.class().is_failure() { Err(verdict.class()) } else { Ok(()) }
}
