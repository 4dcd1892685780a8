use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use backstop_core::TimedOut;
use backstop_core::error::ConfigError;
use tokio::time::{Instant, Sleep, sleep_until};

/// How long each phase of an attempt may take. No total timeout cuts a healthy stream by default.
///
/// The connect timeout belongs to the client below.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub struct Timeouts {
    head: Option<Duration>,
    first_content: Option<Duration>,
    idle: Option<Duration>,
    idle_content: Option<Duration>,
    attempt: Option<Duration>,
}

impl Timeouts {
    /// 10 minutes for the head and 5 minutes between two bytes of a body; nothing else.
    pub const fn new() -> Self {
        Self {
            head: Some(DEFAULT_HEAD),
            first_content: None,
            idle: Some(DEFAULT_IDLE),
            idle_content: None,
            attempt: None,
        }
    }

    /// No timeout at all: a server that falls silent is waited for until the caller leaves.
    pub const fn none() -> Self {
        Self { head: None, first_content: None, idle: None, idle_content: None, attempt: None }
    }

    /// Until the answer's head is complete, from the start of the attempt (its first poll). Header bytes that
    /// trickle in do not restart it. Default 10 minutes, as the official SDKs have it.
    pub const fn head(mut self, timeout: Option<Duration>) -> Self {
        self.head = timeout;
        self
    }

    /// Until the first content of a stream, from the start of the attempt. A stream whose encoding cannot
    /// be read is not judged by its content. Default off.
    pub const fn first_content(mut self, timeout: Option<Duration>) -> Self {
        self.first_content = timeout;
        self
    }

    /// Between two bytes of the body; every byte restarts it, a keep-alive too. Default 5 minutes.
    pub const fn idle(mut self, timeout: Option<Duration>) -> Self {
        self.idle = timeout;
        self
    }

    /// Between two events of a stream that carry content; keep-alives do not restart it. Default
    /// off.
    pub const fn idle_content(mut self, timeout: Option<Duration>) -> Self {
        self.idle_content = timeout;
        self
    }

    /// For the whole attempt, its body included. Default off: it would cut healthy streams.
    pub const fn attempt(mut self, timeout: Option<Duration>) -> Self {
        self.attempt = timeout;
        self
    }

    /// Whether no timeout can come once the head is there.
    pub(crate) const fn are_off_in_bodies(&self) -> bool {
        let Self { head: _, first_content, idle, idle_content, attempt } = self;
        first_content.is_none() && idle.is_none() && idle_content.is_none() && attempt.is_none()
    }

    pub(crate) fn check(&self) -> Result<(), ConfigError> {
        let Self { head, first_content, idle, idle_content, attempt } = self;
        for (key, timeout) in [
            ("timeouts.head", head),
            ("timeouts.first_content", first_content),
            ("timeouts.idle", idle),
            ("timeouts.idle_content", idle_content),
            ("timeouts.attempt", attempt),
        ] {
            if timeout.is_some_and(|timeout| timeout.is_zero()) {
                return Err(ConfigError::new(key, "is zero", "leave it out for no timeout"));
            }
        }
        Ok(())
    }
}

impl Default for Timeouts {
    fn default() -> Self {
        Self::new()
    }
}

/// The timer of one attempt, made when something is first waited for. In a box, since it has a hundred
/// bytes, and attempts are moved.
pub(crate) type Timer = Option<Pin<Box<Sleep>>>;

/// Which timeouts of one attempt are running, and since when. Knows no timer: it is told `now` and
/// answers which is due next.
#[derive(Debug)]
pub(crate) struct Clocks {
    timeouts: Timeouts,
    deadline: Option<Instant>,
    started: Instant,
    phase: Phase,
}

#[derive(Debug)]
enum Phase {
    /// The head is not there yet.
    Head,
    /// A body that is no stream, or whose stream is not read.
    Body { last_byte: Instant },
    /// A stream before its first content.
    Preamble { last_byte: Instant },
    /// A stream after its first content.
    Content { last_byte: Instant, last_content: Instant },
    /// The answer's own end was seen; only silence can still be met.
    Over { last_byte: Instant },
}

impl Clocks {
    pub(crate) const fn new(timeouts: Timeouts, deadline: Option<Instant>, now: Instant) -> Self {
        Self { timeouts, deadline, started: now, phase: Phase::Head }
    }

    pub(crate) const fn started(&self) -> Instant {
        self.started
    }

    pub(crate) const fn head_came(&mut self, is_stream: bool, now: Instant) {
        self.phase = if is_stream {
            Phase::Preamble { last_byte: now }
        } else {
            Phase::Body { last_byte: now }
        };
    }

    pub(crate) const fn bytes_came(&mut self, now: Instant) {
        match &mut self.phase {
            Phase::Head => {}
            Phase::Body { last_byte }
            | Phase::Preamble { last_byte }
            | Phase::Content { last_byte, .. }
            | Phase::Over { last_byte } => *last_byte = now,
        }
    }

    pub(crate) const fn content_came(&mut self, now: Instant) {
        match self.phase {
            Phase::Preamble { .. } | Phase::Content { .. } => {
                self.phase = Phase::Content { last_byte: now, last_content: now };
            }
            Phase::Head | Phase::Body { .. } | Phase::Over { .. } => {}
        }
    }

    pub(crate) const fn end_came(&mut self, now: Instant) {
        self.phase = Phase::Over { last_byte: now };
    }

    /// The next timeout that is due if nothing happens until then.
    pub(crate) fn due(&self) -> Option<(Instant, TimedOut)> {
        let Self { timeouts, deadline: _, started, phase } = self;
        let after = |since: Instant, timeout: Option<Duration>, which: TimedOut| {
            since.checked_add(timeout?).map(|at| (at, which))
        };
        let idle = |last_byte| after(last_byte, timeouts.idle, TimedOut::Idle);
        let (own, other) = match *phase {
            Phase::Head => (after(*started, timeouts.head, TimedOut::Head), None),
            Phase::Body { last_byte } | Phase::Over { last_byte } => (idle(last_byte), None),
            Phase::Preamble { last_byte } => {
                (idle(last_byte), after(*started, timeouts.first_content, TimedOut::FirstContent))
            }
            Phase::Content { last_byte, last_content } => {
                (idle(last_byte), after(last_content, timeouts.idle_content, TimedOut::IdleContent))
            }
        };
        [own, other, self.whole_due()].into_iter().flatten().min_by_key(|(at, _)| *at)
    }

    /// The end of the attempt's time or of the call's, whichever comes first.
    fn whole_due(&self) -> Option<(Instant, TimedOut)> {
        let attempt = match self.phase {
            // What comes after a whole answer cannot make it late.
            Phase::Over { .. } => None,
            _ => self.timeouts.attempt.and_then(|timeout| self.started.checked_add(timeout)),
        };
        let attempt = attempt.map(|at| (at, TimedOut::Attempt));
        let call = self.deadline.map(|at| (at, TimedOut::Deadline));
        [attempt, call].into_iter().flatten().min_by_key(|(at, _)| *at)
    }

    /// The timeout that had come before the last byte did. A body that always has something to give
    /// never lets a timer be looked at; it is late all the same.
    pub(crate) fn overdue(&self) -> Option<TimedOut> {
        self.is_past(self.due()?)
    }

    /// As [`overdue`](Self::overdue), for a body that somebody else reads: the other timeouts are of
    /// silence, and a slow reader makes that too.
    pub(crate) fn overdue_whole(&self) -> Option<TimedOut> {
        self.is_past(self.whole_due()?)
    }

    fn is_past(&self, (at, which): (Instant, TimedOut)) -> Option<TimedOut> {
        match self.phase {
            Phase::Body { last_byte }
            | Phase::Preamble { last_byte }
            | Phase::Content { last_byte, .. } => (last_byte > at).then_some(which),
            Phase::Head | Phase::Over { .. } => None,
        }
    }

    /// Ready with the timeout that has come. `timer` is made when it is first needed, and set anew
    /// only when it fires: most attempts never touch it.
    pub(crate) fn poll_due(&self, timer: &mut Timer, cx: &mut Context<'_>) -> Poll<TimedOut> {
        let Some((at, which)) = self.due() else { return Poll::Pending };
        poll_no_later(timer, at, cx).map(|()| which)
    }

    /// The same, but ready with `None` at `moment` if no timeout comes before it.
    pub(crate) fn poll_due_or(
        &self,
        moment: Option<Instant>,
        timer: &mut Timer,
        cx: &mut Context<'_>,
    ) -> Poll<Option<TimedOut>> {
        match (self.due(), moment) {
            (Some((at, _)), Some(moment)) if moment < at => {
                poll_no_later(timer, moment, cx).map(|()| None)
            }
            (None, Some(moment)) => poll_no_later(timer, moment, cx).map(|()| None),
            _ => self.poll_due(timer, cx).map(Some),
        }
    }
}

fn poll_no_later(timer: &mut Timer, at: Instant, cx: &mut Context<'_>) -> Poll<()> {
    let sleep = timer.get_or_insert_with(|| Box::pin(sleep_until(at)));
    if sleep.deadline() > at {
        // Due earlier than the timer stands, which would fire too late.
        sleep.as_mut().reset(at);
    }
    loop {
        ready!(sleep.as_mut().poll(cx));
        if sleep.deadline() >= at {
            return Poll::Ready(());
        }
        // Bytes have come since the timer was set, and moved what is due.
        sleep.as_mut().reset(at);
    }
}

/// The official SDKs' whole timeout, which most of a request's time goes into.
const DEFAULT_HEAD: Duration = Duration::from_secs(600);
/// Long enough for the silence of a reasoning model between two events.
const DEFAULT_IDLE: Duration = Duration::from_secs(300);

#[cfg(test)]
mod tests {
    use super::*;

    const fn secs(n: u64) -> Duration {
        Duration::from_secs(n)
    }

    fn all() -> Timeouts {
        Timeouts::none()
            .head(Some(secs(10)))
            .first_content(Some(secs(20)))
            .idle(Some(secs(5)))
            .idle_content(Some(secs(7)))
            .attempt(Some(secs(100)))
    }

    #[tokio::test(start_paused = true)]
    async fn each_phase_has_its_own_timeouts() {
        let t0 = Instant::now();
        let mut clocks = Clocks::new(all(), None, t0);
        assert_eq!(clocks.due(), Some((t0 + secs(10), TimedOut::Head)));
        clocks.head_came(true, t0 + secs(1));
        assert_eq!(clocks.due(), Some((t0 + secs(6), TimedOut::Idle)));
        for n in 2..=16 {
            clocks.bytes_came(t0 + secs(n));
        }
        assert_eq!(clocks.due(), Some((t0 + secs(20), TimedOut::FirstContent)), "keep-alives");
        clocks.content_came(t0 + secs(18));
        clocks.bytes_came(t0 + secs(22));
        assert_eq!(
            clocks.due(),
            Some((t0 + secs(25), TimedOut::IdleContent)),
            "not by keep-alives"
        );
        clocks.content_came(t0 + secs(97));
        assert_eq!(clocks.due(), Some((t0 + secs(100), TimedOut::Attempt)));
        clocks.end_came(t0 + secs(98));
        assert_eq!(
            clocks.due(),
            Some((t0 + secs(103), TimedOut::Idle)),
            "a whole answer is not late"
        );
    }

    #[tokio::test(start_paused = true)]
    async fn the_deadline_counts_in_every_phase() {
        let t0 = Instant::now();
        let mut clocks = Clocks::new(Timeouts::none(), Some(t0 + secs(3)), t0);
        let deadline = Some((t0 + secs(3), TimedOut::Deadline));
        assert_eq!(clocks.due(), deadline);
        clocks.head_came(false, t0);
        assert_eq!(clocks.due(), deadline);
        assert_eq!(Clocks::new(Timeouts::none(), None, t0).due(), None);
    }

    #[tokio::test(start_paused = true)]
    async fn a_slow_reader_makes_no_body_late_but_the_attempts_end_does() {
        let t0 = Instant::now();
        let mut clocks = Clocks::new(all(), None, t0);
        clocks.head_came(true, t0);
        clocks.content_came(t0 + secs(1));
        clocks.bytes_came(t0 + secs(30));
        assert_eq!(clocks.overdue(), Some(TimedOut::IdleContent));
        assert_eq!(clocks.overdue_whole(), None);
        clocks.bytes_came(t0 + secs(101));
        assert_eq!(clocks.overdue_whole(), Some(TimedOut::Attempt));
    }

    #[tokio::test(start_paused = true)]
    async fn a_timer_that_was_outrun_by_bytes_is_set_anew_and_fires_on_time() {
        let t0 = Instant::now();
        let mut clocks = Clocks::new(Timeouts::none().idle(Some(secs(5))), None, t0);
        clocks.head_came(false, t0);
        let mut timer = None;
        let mut fired = None;
        std::future::poll_fn(|cx| {
            if clocks.poll_due(&mut timer, cx).is_ready() {
                fired = Some(Instant::now());
                return Poll::Ready(());
            }
            // The first poll sets the timer to 5 s; then bytes come at 0 s + 3.
            clocks.bytes_came(t0 + secs(3));
            Poll::Pending
        })
        .await;
        assert_eq!(fired, Some(t0 + secs(8)));
    }
}
