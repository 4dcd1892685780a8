//! A body scripted poll by poll.

use std::{
    pin::Pin,
    sync::{Arc, atomic::Ordering},
    task::{Context, Poll, ready},
};

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use tokio::time::Sleep;

use self::step::Kind;
pub use self::{probe::BodyProbe, step::Step};
use super::error::BoxError;

mod probe;
mod step;

/// A body that does what its script says, step by step, and remembers how it was treated.
///
/// After the last [`Step`] it ends. It is `Send`, `Sync` and `Unpin`, and its error is a boxed one, so it stands in for
/// any client's body. Pauses use tokio's clock and are therefore exact and instant under a paused one.
///
/// By default [`size_hint`](Body::size_hint) and [`is_end_stream`](Body::is_end_stream) are honest: the hint is exact
/// when the script has nothing but data and trailers left, and the end is announced as soon as nothing is left. See
/// [`unknown_size`](Self::unknown_size) and [`content_length`](Self::content_length) for bodies that know less or lie.
///
/// ```
/// use backstop::testing::{ScriptedBody, Step};
///
/// let body = ScriptedBody::new([Step::data("half an ans"), Step::error("connection reset")]);
/// let probe = body.probe();
/// drop(body);
/// assert_eq!((probe.polls(), probe.bytes(), probe.drops()), (0, 0, 1));
/// ```
#[derive(Debug)]
#[must_use]
pub struct ScriptedBody {
    plan: Plan,
    next: usize,
    sleep: Option<Pin<Box<Sleep>>>,
    yielded: u64,
    ended: bool,
    /// A body that only lends its plan to a script was never anybody's body: its drop is not counted.
    counted: bool,
}

/// What a [`ScriptedBody`] will do, before any of it is done: what a script keeps, to make bodies from.
#[derive(Debug, Clone)]
pub(super) struct Plan {
    steps: Arc<[Step]>,
    size: Size,
    probe: BodyProbe,
}

/// What `size_hint` and `is_end_stream` go by.
#[derive(Debug, Clone, Copy)]
enum Size {
    /// By what is left of the script.
    Honest,
    /// No bound, and the end comes as a surprise.
    Unknown,
    /// By a length that was announced, true or not.
    Announced(u64),
}

// === impl ScriptedBody ===

impl ScriptedBody {
    /// A body that goes through `steps` and then ends.
    pub fn new(steps: impl IntoIterator<Item = Step>) -> Self {
        Self::from_plan(Plan {
            steps: steps.into_iter().collect(),
            size: Size::Honest,
            probe: BodyProbe::default(),
        })
    }

    /// A body without a frame, known to be at its end from the start.
    pub fn empty() -> Self {
        Self::new([])
    }

    /// A body of one data frame, of known length.
    pub fn full(bytes: impl Into<Bytes>) -> Self {
        Self::new([Step::data(bytes)])
    }

    /// Announces `length` bytes, true or not: the size hint is what of them is still to come, and the end is announced
    /// when none is. This is how hyper's client body behaves under a `content-length`.
    pub fn content_length(mut self, length: u64) -> Self {
        self.plan.size = Size::Announced(length);
        self
    }

    /// Announces neither its size nor its end: the reader learns of the end by polling to `None`. This is how hyper's
    /// client body behaves under chunked framing.
    pub fn unknown_size(mut self) -> Self {
        self.plan.size = Size::Unknown;
        self
    }

    /// A handle that reads how this body was treated.
    #[must_use]
    pub fn probe(&self) -> BodyProbe {
        self.plan.probe.clone()
    }

    pub(super) fn from_plan(plan: Plan) -> Self {
        Self { plan, next: 0, sleep: None, yielded: 0, ended: false, counted: true }
    }

    pub(super) fn into_plan(mut self) -> Plan {
        self.counted = false;
        self.plan.clone()
    }

    fn rest(&self) -> &[Step] {
        self.plan.steps.get(self.next..).unwrap_or_default()
    }

    fn finish(&mut self) {
        self.ended = true;
        self.plan.probe.0.finished.store(true, Ordering::Relaxed);
    }
}

impl Body for ScriptedBody {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        let this = &mut *self;
        let plan = this.plan.clone();
        let counts = &plan.probe.0;
        counts.polls.fetch_add(1, Ordering::Relaxed);
        if this.ended {
            counts.polls_after_end.fetch_add(1, Ordering::Relaxed);
            return Poll::Ready(None);
        }
        loop {
            let Some(Step(kind)) = plan.steps.get(this.next) else {
                this.finish();
                return Poll::Ready(None);
            };
            match kind {
                Kind::Data(bytes) => {
                    this.next += 1;
                    this.yielded += bytes.len() as u64;
                    counts.bytes.fetch_add(bytes.len() as u64, Ordering::Relaxed);
                    return Poll::Ready(Some(Ok(Frame::data(bytes.clone()))));
                }
                Kind::End => {
                    this.finish();
                    return Poll::Ready(None);
                }
                Kind::Error(fault) => {
                    this.finish();
                    return Poll::Ready(Some(Err(fault.make())));
                }
                Kind::Forever => return Poll::Pending,
                Kind::Pause(duration) => {
                    let sleep =
                        this.sleep.get_or_insert_with(|| Box::pin(tokio::time::sleep(*duration)));
                    ready!(sleep.as_mut().poll(cx));
                    this.sleep = None;
                    this.next += 1;
                }
                Kind::Pending => {
                    this.next += 1;
                    cx.waker().wake_by_ref();
                    return Poll::Pending;
                }
                Kind::Trailers(trailers) => {
                    this.next += 1;
                    return Poll::Ready(Some(Ok(Frame::trailers(trailers.clone()))));
                }
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        if self.ended {
            return true;
        }
        match self.plan.size {
            Size::Honest => matches!(self.rest(), [] | [Step(Kind::End), ..]),
            Size::Unknown => false,
            Size::Announced(length) => self.yielded >= length,
        }
    }

    fn size_hint(&self) -> SizeHint {
        match self.plan.size {
            Size::Honest => honest_hint(self.rest()),
            Size::Unknown => SizeHint::default(),
            Size::Announced(length) => SizeHint::with_exact(length.saturating_sub(self.yielded)),
        }
    }
}

impl Default for ScriptedBody {
    fn default() -> Self {
        Self::empty()
    }
}

impl Drop for ScriptedBody {
    fn drop(&mut self) {
        if self.counted {
            self.plan.probe.0.drops.fetch_add(1, Ordering::Relaxed);
        }
    }
}

impl From<Bytes> for ScriptedBody {
    fn from(bytes: Bytes) -> Self {
        if bytes.is_empty() { Self::empty() } else { Self::full(bytes) }
    }
}

impl From<String> for ScriptedBody {
    fn from(text: String) -> Self {
        Bytes::from(text).into()
    }
}

impl From<Vec<u8>> for ScriptedBody {
    fn from(bytes: Vec<u8>) -> Self {
        Bytes::from(bytes).into()
    }
}

impl From<&'static str> for ScriptedBody {
    fn from(text: &'static str) -> Self {
        Bytes::from(text).into()
    }
}

/// The bounds that the remaining steps allow. Exact only if nothing but frames is left: whoever trusts an exact hint
/// stops reading there, and would never meet a pause, an error or a silence.
fn honest_hint(rest: &[Step]) -> SizeHint {
    let mut total = 0;
    let mut hint = SizeHint::new();
    for Step(kind) in rest {
        match kind {
            Kind::Data(bytes) => total += bytes.len() as u64,
            Kind::Trailers(_) => {}
            Kind::End => break,
            Kind::Error(_) | Kind::Forever | Kind::Pause(_) | Kind::Pending => return hint,
        }
    }
    hint.set_exact(total);
    hint
}
