use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use bytes::Bytes;
use http::header::{
    CONTENT_ENCODING, CONTENT_LENGTH, CONTENT_TYPE, HeaderValue, TRAILER, TRANSFER_ENCODING,
};
use http::{Response, StatusCode};

use crate::Verdict;

/// What became of one attempt: the one response extension by which our layers talk upwards.
///
/// The classifier puts it into the response and fills it *before* it yields the last frame or the
/// error, so that whoever wraps the body, or drops it early, finds it complete. Every field is
/// written once; later writes change nothing. Cloning shares the cell.
///
/// Times are counted from the start of the attempt.
#[derive(Clone)]
pub struct AttemptCell {
    inner: Arc<Inner>,
}

struct Inner {
    started: Instant,
    head: Moment,
    first_byte: Moment,
    first_content: Moment,
    end: Moment,
    bytes: AtomicU64,
    verdict: OnceLock<Verdict>,
    last_verdict: OnceLock<Verdict>,
    /// The verdict of the release is the last one, too.
    released_whole: AtomicBool,
    substitute: OnceLock<Substitute>,
    substituted: AtomicBool,
}

impl AttemptCell {
    /// A cell for the attempt that began at `started`.
    #[must_use]
    pub fn new(started: Instant) -> Self {
        Self {
            inner: Arc::new(Inner {
                started,
                head: Moment::default(),
                first_byte: Moment::default(),
                first_content: Moment::default(),
                end: Moment::default(),
                bytes: AtomicU64::new(0),
                verdict: OnceLock::new(),
                last_verdict: OnceLock::new(),
                released_whole: AtomicBool::new(false),
                substitute: OnceLock::new(),
                substituted: AtomicBool::new(false),
            }),
        }
    }

    /// The cell in `response`, if a classifier left one.
    #[must_use]
    pub fn of<B>(response: &Response<B>) -> Option<&Self> {
        response.extensions().get()
    }

    /// When the attempt began.
    #[must_use]
    pub fn started(&self) -> Instant {
        self.inner.started
    }

    /// The verdict with which the answer was released.
    #[must_use]
    pub fn verdict(&self) -> Option<&Verdict> {
        self.inner.verdict.get()
    }

    /// The verdict once the body had ended; `None` while it has not.
    ///
    /// It differs from [`AttemptCell::verdict`] where a stream was handed on before its end.
    #[must_use]
    pub fn last_verdict(&self) -> Option<&Verdict> {
        if self.inner.released_whole.load(Ordering::Acquire) {
            return self.inner.verdict.get();
        }
        self.inner.last_verdict.get()
    }

    /// When the answer's head was complete.
    #[must_use]
    pub fn head(&self) -> Option<Duration> {
        self.inner.head.get()
    }

    /// When the first byte of the answer's body came.
    #[must_use]
    pub fn first_byte(&self) -> Option<Duration> {
        self.inner.first_byte.get()
    }

    /// When the first event of a stream that carries content came.
    #[must_use]
    pub fn first_content(&self) -> Option<Duration> {
        self.inner.first_content.get()
    }

    /// When the body ended, well or not.
    #[must_use]
    pub fn end(&self) -> Option<Duration> {
        self.inner.end.get()
    }

    /// How many bytes of body came from the provider so far.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.inner.bytes.load(Ordering::Relaxed)
    }

    /// Writes the verdict with which the answer is released.
    pub fn set_verdict(&self, verdict: Verdict) {
        let _ = self.inner.verdict.set(verdict);
    }

    /// Writes the verdict at the body's end, and when that was.
    pub fn set_end(&self, verdict: Verdict, now: Instant) {
        self.inner.end.set(self.since_start(now));
        let _ = self.inner.last_verdict.set(verdict);
    }

    /// Writes the one verdict on an answer that is over when it is released, and when that was.
    pub fn set_whole(&self, verdict: Verdict, now: Instant) {
        if self.inner.verdict.set(verdict).is_ok() {
            self.inner.end.set(self.since_start(now));
            self.inner.released_whole.store(true, Ordering::Release);
        }
    }

    /// Writes when the head was complete.
    pub fn set_head(&self, now: Instant) {
        self.inner.head.set(self.since_start(now));
    }

    /// Counts `len` bytes of body that came at `now`.
    pub fn add_bytes(&self, len: usize, now: Instant) {
        if self.inner.bytes.fetch_add(len as u64, Ordering::Relaxed) == 0 && len > 0 {
            self.inner.first_byte.set(self.since_start(now));
        }
    }

    /// Writes when the first content came.
    pub fn set_first_content(&self, now: Instant) {
        self.inner.first_content.set(self.since_start(now));
    }

    /// Offers what stands for this answer if it is the last word of a call that failed, although
    /// its status says success. See [`AttemptCell::present_failure`].
    pub fn set_substitute(&self, substitute: Substitute) {
        let _ = self.inner.substitute.set(substitute);
    }

    /// Whether the substitute was chosen, and which it is: for the body that must yield it.
    #[must_use]
    pub fn chosen_substitute(&self) -> Option<&Substitute> {
        if self.inner.substituted.load(Ordering::Acquire) {
            self.inner.substitute.get()
        } else {
            None
        }
    }

    /// Makes a failed answer that is the last word of its call look like the failure it is.
    ///
    /// An SDK takes a 200 for an answer; so where the classifier found a failure inside a 2xx, the
    /// head gets the effective status and the headers of an error object in the dialect's
    /// non-streaming form, and the body, before its first poll, will yield that object. Everything
    /// else is left as the provider sent it: failed answers whose status says so, and answers
    /// whose own finish reason tells of the failure.
    ///
    /// Called by the layer that gives up; it must not be called after the body was polled.
    #[inline]
    pub fn present_failure<B>(response: &mut Response<B>) {
        if !response.extensions().is_empty() {
            Self::present_in(response);
        }
    }

    fn present_in<B>(response: &mut Response<B>) {
        let offers = |cell: &&Self| cell.inner.substitute.get().is_some();
        let Some(cell) = Self::of(response).filter(offers).cloned() else { return };
        let Some(substitute) = cell.inner.substitute.get() else { return };
        *response.status_mut() = substitute.status;
        let headers = response.headers_mut();
        // They describe the bytes that are replaced.
        for name in [CONTENT_ENCODING, TRANSFER_ENCODING, TRAILER] {
            headers.remove(name);
        }
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        headers.insert(CONTENT_LENGTH, HeaderValue::from(substitute.body.len()));
        cell.inner.substituted.store(true, Ordering::Release);
    }

    fn since_start(&self, now: Instant) -> Duration {
        now.saturating_duration_since(self.inner.started)
    }
}

impl fmt::Debug for AttemptCell {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AttemptCell")
            .field("verdict", &self.verdict())
            .field("last_verdict", &self.last_verdict())
            .field("head", &self.head())
            .field("first_content", &self.first_content())
            .field("end", &self.end())
            .field("bytes", &self.bytes())
            .finish_non_exhaustive()
    }
}

/// What a caller gets in place of a 2xx that was a failure: status and JSON body.
#[derive(Clone, PartialEq, Eq)]
pub struct Substitute {
    status: StatusCode,
    body: Bytes,
}

impl Substitute {
    /// `body`, a JSON document, under `status`.
    #[must_use]
    pub const fn new(status: StatusCode, body: Bytes) -> Self {
        Self { status, body }
    }

    /// The effective status.
    #[must_use]
    pub const fn status(&self) -> StatusCode {
        self.status
    }

    /// The error object in the dialect's non-streaming form.
    #[must_use]
    pub const fn body(&self) -> &Bytes {
        &self.body
    }
}

/// Without the provider's words.
impl fmt::Debug for Substitute {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { status, body } = self;
        f.debug_struct("Substitute").field("status", status).field("len", &body.len()).finish()
    }
}

/// A time since the attempt's start that is written once.
struct Moment(AtomicU64);

impl Moment {
    fn set(&self, at: Duration) {
        let nanos = u64::try_from(at.as_nanos()).unwrap_or(UNSET - 1).min(UNSET - 1);
        let _ = self.0.compare_exchange(UNSET, nanos, Ordering::Release, Ordering::Relaxed);
    }

    fn get(&self) -> Option<Duration> {
        match self.0.load(Ordering::Acquire) {
            UNSET => None,
            nanos => Some(Duration::from_nanos(nanos)),
        }
    }
}

impl Default for Moment {
    fn default() -> Self {
        Self(AtomicU64::new(UNSET))
    }
}

/// No attempt lasts the 584 years that this would mean.
const UNSET: u64 = u64::MAX;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Class;

    fn start() -> Instant {
        // Any instant will do; std's clock is read here and nowhere else in this crate.
        #[expect(clippy::disallowed_methods, reason = "a test needs some instant to count from")]
        Instant::now()
    }

    #[test]
    fn every_field_is_written_once() {
        let start = start();
        let cell = AttemptCell::new(start);
        assert_eq!((cell.head(), cell.end(), cell.bytes()), (None, None, 0));
        cell.set_head(start);
        cell.set_head(start + Duration::from_secs(1));
        assert_eq!(cell.head(), Some(Duration::ZERO), "zero is a time, not an absence");
        cell.add_bytes(0, start);
        assert_eq!(cell.first_byte(), None);
        cell.add_bytes(3, start + Duration::from_millis(2));
        cell.add_bytes(4, start + Duration::from_millis(9));
        assert_eq!((cell.bytes(), cell.first_byte()), (7, Some(Duration::from_millis(2))));
        cell.set_end(Verdict::new(Class::Success), start);
        cell.set_end(Verdict::new(Class::Transient), start);
        assert_eq!(cell.last_verdict().map(Verdict::class), Some(Class::Success));
    }

    #[test]
    fn a_failure_inside_a_200_is_presented_with_its_own_status_and_a_true_length() {
        let cell = AttemptCell::new(start());
        let body = Bytes::from_static(b"{\"error\":{}}");
        cell.set_substitute(Substitute::new(StatusCode::TOO_MANY_REQUESTS, body.clone()));
        let mut response = Response::builder()
            .header("content-encoding", "gzip")
            .header("content-length", "999")
            .header("x-request-id", "r1")
            .body(())
            .unwrap();
        response.extensions_mut().insert(cell.clone());
        assert_eq!(cell.chosen_substitute(), None);
        AttemptCell::present_failure(&mut response);
        assert_eq!(response.status(), 429);
        assert_eq!(response.headers()["content-length"], "12");
        assert!(!response.headers().contains_key("content-encoding"));
        assert_eq!(response.headers()["x-request-id"], "r1");
        assert_eq!(cell.chosen_substitute().map(Substitute::body), Some(&body));
    }

    #[test]
    fn an_answer_without_a_substitute_is_left_as_it_is() {
        let mut response = Response::builder().status(429).body(()).unwrap();
        AttemptCell::present_failure(&mut response);
        response.extensions_mut().insert(AttemptCell::new(start()));
        AttemptCell::present_failure(&mut response);
        assert_eq!(response.status(), 429);
        assert!(response.headers().is_empty());
    }
}
