use std::fmt;
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use backstop_core::{AttemptCell, CallContext, CallId, Chain, Decision, Labels, Profile, Verdict};
use http::Response;

use crate::record::Outcome;

/// What is known of a call: who was to be asked, who was, and how it ended.
///
/// An answer carries it ([`Provenance::of`]). An error cannot: whoever wants to know the same of a call
/// that failed puts one of his own into the request's extensions, and keeps a clone. It serves the
/// first call that takes it.
///
/// ```
/// use backstop_provenance::{Outcome, Provenance, ProvenanceLayer};
/// use backstop_core::RequestBody;
/// use http::{Request, Response};
/// use tower::{ServiceBuilder, ServiceExt};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let service = ServiceBuilder::new().layer(ProvenanceLayer::new()).service_fn(
///     |_: Request<RequestBody>| async { Err::<Response<RequestBody>, _>("no route to the host") },
/// );
/// let provenance = Provenance::new();
/// let mut request = Request::post("https://llm.example/v1/messages").body(RequestBody::from("{}"))?;
/// request.extensions_mut().insert(provenance.clone());
///
/// service.oneshot(request).await.unwrap_err();
/// assert_eq!(provenance.outcome(), Some(Outcome::Incomplete));
/// # Ok(())
/// # }
/// ```
///
/// Cloning shares it. While the call goes on, it tells what is known so far.
#[derive(Clone, Default)]
pub struct Provenance {
    inner: Arc<OnceLock<Told>>,
}

/// What a call tells.
pub(crate) struct Told {
    pub(crate) context: CallContext,
    pub(crate) started: Instant,
    pub(crate) requested_model: OnceLock<Option<Box<str>>>,
    pub(crate) answer: OnceLock<Answer>,
    pub(crate) outcome: OnceLock<Outcome>,
}

/// The answer that the caller got.
pub(crate) struct Answer {
    /// The rung that gave it.
    pub(crate) rung: u32,
    pub(crate) cell: Option<AttemptCell>,
}

impl Answer {
    /// The last verdict on it, else the one with which it was handed on.
    pub(crate) fn verdict(&self) -> Option<&Verdict> {
        let cell = self.cell.as_ref()?;
        cell.last_verdict().or_else(|| cell.verdict())
    }
}

impl Provenance {
    /// One that no call has taken yet.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// What is known of the call that `response` answers; `None` where no ProvenanceLayer stands above.
    #[must_use]
    pub fn of<B>(response: &Response<B>) -> Option<&Self> {
        response.extensions().get()
    }

    /// The call's ID; `None` where no call has taken this yet.
    #[must_use]
    pub fn id(&self) -> Option<CallId> {
        self.told()?.context.id()
    }

    /// The caller's names for the call.
    #[must_use]
    pub fn labels(&self) -> Option<&Labels> {
        Some(self.told()?.context.labels())
    }

    /// The chain that was planned; `None` where there is no router.
    #[must_use]
    pub fn planned_chain(&self) -> Option<&Chain> {
        self.told()?.context.chain()
    }

    /// How many attempts left, on all rungs. Without an AttemptLayer: how many were announced.
    #[must_use]
    pub fn attempts(&self) -> u32 {
        self.told().map_or(0, |told| told.context.attempts())
    }

    /// The rung that answered; while there is no answer, the one that is asked.
    #[must_use]
    pub fn rung(&self) -> u32 {
        self.told().map_or(0, Told::rung)
    }

    /// The profile that answered, or is asked; `None` where there is no router.
    #[must_use]
    pub fn profile(&self) -> Option<&Profile> {
        self.told()?.profile()
    }

    /// The model that the caller asked for. `None` where the request names none, or two; and where
    /// neither a ledger nor a span nor an answer header wants to know it, since a prompt is not read
    /// for nothing.
    #[must_use]
    pub fn requested_model(&self) -> Option<&str> {
        self.told()?.requested_model.get()?.as_deref()
    }

    /// The model that the answer names; `None` while it has not, and without a ClassifyLayer.
    #[must_use]
    pub fn reported_model(&self) -> Option<&str> {
        self.told()?.answer.get()?.verdict()?.model()
    }

    /// Whether a rung other than the primary answered, or is asked.
    #[must_use]
    pub fn fallback_used(&self) -> bool {
        self.rung() != 0
    }

    /// The waits between attempts, added up.
    #[must_use]
    pub fn waited(&self) -> Duration {
        self.told().map_or(Duration::ZERO, |told| told.context.waited_through())
    }

    /// What was decided without an attempt, in order.
    #[must_use]
    pub fn decisions(&self) -> Vec<Decision> {
        self.told().map_or_else(Vec::new, |told| told.context.decisions().cloned().collect())
    }

    /// How the call ended; `None` while it has not, which for a stream is until its last byte was
    /// handed on.
    #[must_use]
    pub fn outcome(&self) -> Option<Outcome> {
        self.told()?.outcome.get().copied()
    }

    pub(crate) fn told(&self) -> Option<&Told> {
        self.inner.get()
    }

    /// Takes this for one call; `false` where one has it.
    pub(crate) fn take(&self, context: CallContext, started: Instant) -> bool {
        self.inner.set(Told::new(context, started)).is_ok()
    }

    /// One for a call.
    pub(crate) fn taken(context: CallContext, started: Instant) -> Self {
        Self { inner: Arc::new(Told::new(context, started).into()) }
    }
}

impl Told {
    const fn new(context: CallContext, started: Instant) -> Self {
        Self {
            context,
            started,
            requested_model: OnceLock::new(),
            answer: OnceLock::new(),
            outcome: OnceLock::new(),
        }
    }

    pub(crate) fn rung(&self) -> u32 {
        self.answer.get().map_or_else(|| self.context.rung(), |answer| answer.rung)
    }

    pub(crate) fn profile(&self) -> Option<&Profile> {
        Some(self.context.chain()?.rungs().get(self.rung() as usize)?.profile())
    }
}

impl fmt::Debug for Provenance {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Provenance")
            .field("id", &self.id())
            .field("outcome", &self.outcome())
            .field("attempts", &self.attempts())
            .field("rung", &self.rung())
            .field("waited", &self.waited())
            .field("planned_chain", &self.planned_chain())
            .field("requested_model", &self.requested_model())
            .field("reported_model", &self.reported_model())
            .finish_non_exhaustive()
    }
}
