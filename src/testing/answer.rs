//! What a scripted provider does with one request, down to the bytes.

use std::time::Duration;

use bytes::Bytes;

pub(super) use self::encode::Op;

mod encode;
mod memory;

/// One answer of a [`ScriptedProvider`](super::ScriptedProvider): a list of raw steps on a socket.
///
/// It begins with a head ([`status`](Self::status), [`sse`](Self::sse)) or without one ([`raw`](Self::raw),
/// [`nothing`](Self::nothing)); the steps follow in the order in which they are added. Nothing is checked: an answer
/// may break every rule of HTTP.
///
/// **Framing.** By default the body is what the steps write, under its true `content-length`.
/// [`content_length`](Self::content_length) lies about it; [`chunked`](Self::chunked) makes each write one chunk;
/// [`until_close`](Self::until_close) ends the body with the connection. A `content-length` or `transfer-encoding`
/// given as a [`header`](Self::header) takes the place of the one that would be added.
///
/// **The end.** After the last step the connection waits for the next request. [`reset`](Self::reset),
/// [`close`](Self::close), [`half_close`](Self::half_close) and [`silence`](Self::silence) end the answer where they
/// stand: what would complete its framing is not sent.
///
/// An answer turns into an [`Outcome`](super::Outcome) for the in-memory [`ScriptedService`](super::ScriptedService)
/// with the failures a client would see.
///
/// ```
/// use std::time::Duration;
/// use backstop::testing::Answer;
///
/// // Three events, a second apart, then a TCP reset.
/// let broken = Answer::sse()
///     .event(r#"{"n":1}"#)
///     .event(r#"{"n":2}"#)
///     .event(r#"{"n":3}"#)
///     .pause_between(Duration::from_secs(1))
///     .reset();
/// # let _ = broken;
/// ```
#[derive(Debug, Clone)]
#[must_use]
pub struct Answer {
    head: Option<Head>,
    framing: Framing,
    acts: Vec<Act>,
    after: Option<Duration>,
    trickle_head: Option<Duration>,
    interim: Vec<u16>,
    when: When,
    close: bool,
}

#[derive(Debug, Clone)]
struct Head {
    version: &'static str,
    status: u16,
    headers: Vec<(String, Bytes)>,
}

#[derive(Debug, Clone, Copy)]
enum Framing {
    /// Under a `content-length`: the true one, or this one.
    Length(Option<u64>),
    Chunked {
        last: bool,
    },
    UntilClose,
}

#[derive(Debug, Clone)]
enum Act {
    Write { bytes: Bytes, event: bool },
    Trickle { bytes: Bytes, every: Duration },
    Pause(Duration),
    End(Ending),
}

/// When an answer is given.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum When {
    AfterBody,
    BeforeBody,
    OnAccept,
}

/// How an answer ends other than by being complete.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Ending {
    Close,
    HalfClose,
    Reset,
    Silence,
}

// === impl Answer ===

impl Answer {
    /// A head with this status, and so far no header and no body. Statuses are not checked.
    pub fn status(status: u16) -> Self {
        let head = Head { version: "HTTP/1.1", status, headers: Vec::new() };
        Self { head: Some(head), ..Self::nothing() }
    }

    /// A 200 that streams server-sent events: `content-type: text/event-stream`, chunked.
    pub fn sse() -> Self {
        Self::status(200).header("content-type", "text/event-stream").chunked()
    }

    /// These bytes instead of an HTTP head, such as `"220 smtp ready\r\n"`. The connection stays open after them.
    pub fn raw(bytes: impl Into<Bytes>) -> Self {
        Self::nothing().act(Act::Write { bytes: bytes.into(), event: false })
    }

    /// Not a byte so far. To be followed by [`silence`](Self::silence), [`reset`](Self::reset) or
    /// [`close`](Self::close), which then come instead of an answer; alone it is the same as silence.
    pub fn nothing() -> Self {
        Self {
            head: None,
            framing: Framing::Length(None),
            acts: Vec::new(),
            after: None,
            trickle_head: None,
            interim: Vec::new(),
            when: When::AfterBody,
            close: false,
        }
    }

    /// Closes the connection as soon as it is accepted, unread: `nothing().close().on_accept()`.
    pub fn accept_then_close() -> Self {
        Self::nothing().close().on_accept()
    }

    /// Adds a header, spelled as given. No effect without a head.
    pub fn header(mut self, name: impl Into<String>, value: impl AsRef<[u8]>) -> Self {
        if let Some(head) = &mut self.head {
            head.headers.push((name.into(), Bytes::copy_from_slice(value.as_ref())));
        }
        self
    }

    /// Says HTTP/1.0 in the status line, and ends the body with the connection, as servers of that age do.
    pub fn http10(mut self) -> Self {
        if let Some(head) = &mut self.head {
            head.version = "HTTP/1.0";
        }
        self.until_close()
    }

    /// Sends an interim response (such as 103) before the head. A `100` for a request that expects one is sent anyway.
    pub fn interim(mut self, status: u16) -> Self {
        self.interim.push(status);
        self
    }

    /// Waits this long before the first byte. Default: not at all.
    pub fn after(mut self, delay: Duration) -> Self {
        self.after = Some(delay);
        self
    }

    /// Sends the head byte by byte, one every `every`.
    pub fn trickle_head(mut self, every: Duration) -> Self {
        self.trickle_head = Some(every);
        self
    }

    /// Answers as soon as the request's head is there, before its body is read. The body is read while and after the
    /// answer is written, so that the connection can be used again. No effect on answers from
    /// [`on_request`](super::ProviderBuilder::on_request), which sees the body.
    pub fn before_body(mut self) -> Self {
        self.when = When::BeforeBody;
        self
    }

    /// Is given to a connection when it is accepted, instead of to a request: a server that talks first, or hangs up.
    /// That connection serves no request. Only an answer of the main script whose turn it is when a connection arrives;
    /// an open connection's request may come first, and then gets it.
    pub fn on_accept(mut self) -> Self {
        self.when = When::OnAccept;
        self
    }

    /// Sends `connection: close`, and closes after the answer.
    pub fn connection_close(mut self) -> Self {
        self.close = true;
        self.header("connection", "close")
    }

    /// Announces `length` bytes, true or not.
    pub fn content_length(mut self, length: u64) -> Self {
        self.framing = Framing::Length(Some(length));
        self
    }

    /// Sends the body in chunks: each write (and each trickle) is one, an empty write none.
    pub fn chunked(mut self) -> Self {
        self.framing = Framing::Chunked { last: true };
        self
    }

    /// Sends the body in chunks, but never the last chunk: the reader waits for more until the connection ends.
    pub fn without_last_chunk(mut self) -> Self {
        self.framing = Framing::Chunked { last: false };
        self
    }

    /// Sends the body without a length; it ends where the connection does, which is right after the last step.
    pub fn until_close(mut self) -> Self {
        self.framing = Framing::UntilClose;
        self.close = true;
        self
    }

    /// Writes bytes of the body.
    pub fn body(self, bytes: impl Into<Bytes>) -> Self {
        self.act(Act::Write { bytes: bytes.into(), event: false })
    }

    /// Writes `json` as the body, under `content-type: application/json`.
    pub fn json(self, json: impl Into<Bytes>) -> Self {
        self.header("content-type", "application/json").body(json)
    }

    /// Writes one event without a name: `data: …`, one such line for each line of `data`, and a blank one.
    pub fn event(self, data: impl AsRef<str>) -> Self {
        let mut text = String::new();
        data_lines(&mut text, data.as_ref());
        self.event_bytes(text)
    }

    /// Writes one named event: `event: …`, then as [`event`](Self::event).
    pub fn named_event(self, name: &str, data: impl AsRef<str>) -> Self {
        let mut text = format!("event: {name}\n");
        data_lines(&mut text, data.as_ref());
        self.event_bytes(text)
    }

    /// Writes bytes that count as one event, whatever they are: for other formats than server-sent events.
    pub fn event_bytes(self, bytes: impl Into<Bytes>) -> Self {
        self.act(Act::Write { bytes: bytes.into(), event: true })
    }

    /// Writes a comment, `: …`, as providers send to keep a connection alive. Not an event.
    pub fn comment(self, text: &str) -> Self {
        self.body(format!(": {text}\n\n"))
    }

    /// Writes bytes of the body one by one, one every `every`.
    pub fn trickle(self, bytes: impl Into<Bytes>, every: Duration) -> Self {
        self.act(Act::Trickle { bytes: bytes.into(), every })
    }

    /// Waits. What was written before is on the wire.
    pub fn pause(self, duration: Duration) -> Self {
        self.act(Act::Pause(duration))
    }

    /// Resets the connection (RST). Bytes that the peer has not received yet are lost with it: put a pause before,
    /// where it may be slow and they matter.
    pub fn reset(self) -> Self {
        self.act(Act::End(Ending::Reset))
    }

    /// Closes the connection (FIN), complete or not.
    pub fn close(self) -> Self {
        self.act(Act::End(Ending::Close))
    }

    /// Ends our side of the connection (FIN), and goes on reading until the peer has ended its own.
    pub fn half_close(self) -> Self {
        self.act(Act::End(Ending::HalfClose))
    }

    /// Keeps the connection open and sends nothing more, until the peer goes away or the provider stops.
    pub fn silence(self) -> Self {
        self.act(Act::End(Ending::Silence))
    }

    /// Drops everything after the nth event of those added so far, an ending included. The rest ends as HTTP should, so
    /// that only the missing events show; add [`close`](Self::close), [`reset`](Self::reset) or
    /// [`silence`](Self::silence) for a rougher cut. No effect with fewer events than `n`.
    pub fn cut_after_events(mut self, n: usize) -> Self {
        let cut = match n.checked_sub(1) {
            None => Some(0),
            Some(nth) => {
                let mut events = self.acts.iter().enumerate().filter(|(_, act)| act.is_event());
                events.nth(nth).map(|(index, _)| index + 1)
            }
        };
        if let Some(cut) = cut {
            self.acts.truncate(cut);
        }
        self
    }

    /// Puts a pause between any two of the events added so far.
    pub fn pause_between(mut self, duration: Duration) -> Self {
        let mut seen = false;
        let acts = self.acts.into_iter().flat_map(|act| {
            let between = act.is_event() && seen;
            seen |= act.is_event();
            between.then_some(Act::Pause(duration)).into_iter().chain([act])
        });
        self.acts = acts.collect();
        self
    }

    pub(super) fn exhausted(index: usize) -> Self {
        // A test whose script is too short is to end, not to be retried for a minute.
        Self::status(500).header("x-should-retry", "false").json(format!(
            r#"{{"error":{{"type":"script_exhausted","message":"no scripted answer for request {index}"}}}}"#
        ))
    }

    pub(super) fn when(&self) -> When {
        self.when
    }

    /// Whether the connection is closed once the answer is complete.
    pub(super) fn closes(&self) -> bool {
        self.close
    }

    fn body_len(&self) -> u64 {
        self.acts.iter().map(|act| act.bytes().map_or(0, |bytes| bytes.len() as u64)).sum()
    }

    fn act(mut self, act: Act) -> Self {
        self.acts.push(act);
        self
    }
}

impl Act {
    fn is_event(&self) -> bool {
        matches!(self, Self::Write { event: true, .. })
    }

    fn bytes(&self) -> Option<&Bytes> {
        match self {
            Self::Write { bytes, .. } | Self::Trickle { bytes, .. } => Some(bytes),
            Self::Pause(_) | Self::End(_) => None,
        }
    }
}

fn data_lines(out: &mut String, data: &str) {
    for line in data.split('\n') {
        out.push_str("data: ");
        out.push_str(line);
        out.push('\n');
    }
    out.push('\n');
}
