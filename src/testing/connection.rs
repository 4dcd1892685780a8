//! One connection of a scripted provider: requests in, answers out, with all their misbehaviour.

use std::{future::pending, io, sync::Arc};

use bytes::{Bytes, BytesMut};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{
        TcpStream,
        tcp::{ReadHalf, WriteHalf},
    },
    time::{Instant, sleep, timeout},
};

use super::{
    answer::{Answer, Ending, Op, When},
    exchange::{Exchange, Record, RequestBody},
    log::ExchangeEnd,
    provider::{Idle, Shared},
    wire::Head,
};

/// A connection that is being served; counted as open while it lives.
#[derive(Debug)]
pub(super) struct Connection {
    stream: TcpStream,
    buf: BytesMut,
    number: usize,
    /// When the last answer was complete; `None` before the first.
    idle_since: Option<Instant>,
    shared: Arc<Shared>,
    _open: Open,
}

/// One up in the gauge of open connections, until it is dropped. Declared after the stream, so that the gauge goes down
/// only when the socket is closed.
#[derive(Debug)]
struct Open(Arc<Shared>);

/// What is to be done with the connection.
#[derive(Debug)]
enum Next {
    Request,
    Close,
    Drain,
    Reset,
}

/// How the writing of an answer went.
#[derive(Debug)]
enum Fate {
    Complete,
    Ended(Ending),
    PeerGone,
}

// === impl Connection ===

impl Connection {
    pub(super) fn accept(stream: TcpStream, shared: &Arc<Shared>) -> Self {
        // Every write is to be a packet of its own, as the script says; a failure only makes it less exact.
        let _ = stream.set_nodelay(true);
        let mut number = 0;
        shared.state.send_modify(|state| {
            number = state.accepted;
            state.accepted += 1;
            state.open += 1;
        });
        Self {
            stream,
            buf: BytesMut::new(),
            number,
            idle_since: None,
            shared: Arc::clone(shared),
            _open: Open(Arc::clone(shared)),
        }
    }

    /// Serves requests until either side ends the connection.
    pub(super) async fn serve(mut self) {
        let mut next = match self.shared.script.take_if(|answer| answer.when() == When::OnAccept) {
            Some(answer) => self.speak_first(&answer).await,
            None => Next::Request,
        };
        while let Next::Request = next {
            next = match self.read_head().await {
                Ok(head) => self.exchange(head).await,
                Err(next) => next,
            };
        }
        match next {
            Next::Request | Next::Close => self.close().await,
            Next::Drain => self.drain().await,
            Next::Reset => {
                // Closing a socket that lingers for no time is what sends the RST.
                let _ = self.stream.set_zero_linger();
            }
        }
    }

    async fn speak_first(&mut self, answer: &Answer) -> Next {
        let (mut reader, mut writer) = self.stream.split();
        let buf = &mut self.buf;
        let fate = tokio::select! {
            biased;
            fate = write(&mut writer, answer.ops(), None) => fate,
            () = watch(&mut reader, buf, None) => Fate::PeerGone,
        };
        match fate {
            Fate::Complete if !answer.closes() => Next::Drain,
            fate => fate.next(),
        }
    }

    /// The next request's head, or what is to be done for want of one.
    async fn read_head(&mut self) -> Result<Head, Next> {
        if self.buf.is_empty() {
            self.await_request().await?;
        }
        loop {
            match Head::take(&mut self.buf) {
                Ok(Some(head)) => return Ok(head),
                Ok(None) if self.buf.len() > MAX_HEAD => return Err(self.refuse(431).await),
                Ok(None) => {}
                Err(_) => return Err(self.refuse(400).await),
            }
            self.read().await?;
        }
    }

    /// Waits for a request's first bytes, as long as the provider keeps idle connections.
    async fn await_request(&mut self) -> Result<(), Next> {
        match (self.shared.idle, self.idle_since) {
            (Idle::Keep, _) | (_, None) => self.read().await,
            (Idle::CloseAfter(limit), Some(_)) => {
                timeout(limit, self.read()).await.unwrap_or(Err(Next::Close))
            }
            (Idle::ResetAfter(limit), Some(since)) => {
                self.read().await?;
                if since.elapsed() < limit {
                    return Ok(());
                }
                self.shared.state.send_modify(|state| state.stale_resets += 1);
                Err(Next::Reset)
            }
        }
    }

    async fn read(&mut self) -> Result<(), Next> {
        self.buf.reserve(READ);
        match self.stream.read_buf(&mut self.buf).await {
            Ok(0) | Err(_) => Err(Next::Close),
            Ok(_) => Ok(()),
        }
    }

    /// Tells the sender of something that is not a request, as far as it is still listening.
    async fn refuse(&mut self, status: u16) -> Next {
        self.shared.state.send_modify(|state| state.malformed += 1);
        let answer = Answer::status(status).connection_close();
        let (_, mut writer) = self.stream.split();
        write(&mut writer, answer.ops(), None).await;
        Next::Close
    }

    async fn exchange(&mut self, head: Head) -> Next {
        let (expects_continue, closes) = (head.expects_continue, head.closes);
        let (mut exchange, answer) = Exchange::open(&self.shared, self.number, head);
        let early = answer.as_ref().is_some_and(|answer| answer.when() != When::AfterBody);
        if !early {
            if expects_continue && !exchange.body.is_done() {
                let (_, mut writer) = self.stream.split();
                let go_on = vec![Op::Write(Bytes::from_static(b"HTTP/1.1 100 Continue\r\n\r\n"))];
                write(&mut writer, go_on, None).await;
            }
            if let Err(next) = self.read_body(&mut exchange.body).await {
                exchange.record.end(if exchange.body.is_malformed() {
                    ExchangeEnd::Closed
                } else {
                    ExchangeEnd::PeerGone
                });
                return next;
            }
        }
        let answer = answer.unwrap_or_else(|| exchange.record.choose());
        let fate = self.answer(&answer, &mut exchange).await;
        fate.log(&exchange.record);
        match fate {
            Fate::Complete => {}
            Fate::Ended(Ending::HalfClose) => {
                let _ = self.read_body(&mut exchange.body).await;
                return Next::Drain;
            }
            fate => return fate.next(),
        }
        // A client that was never told to go on may not send its body, so that the next request could not be told from
        // it.
        let unsent = early && expects_continue && !exchange.body.is_done();
        if closes || answer.closes() || unsent {
            return Next::Close;
        }
        if let Err(next) = self.read_body(&mut exchange.body).await {
            return next;
        }
        self.idle_since = Some(Instant::now());
        Next::Request
    }

    async fn read_body(&mut self, body: &mut RequestBody) -> Result<(), Next> {
        loop {
            if body.take(&mut self.buf).is_err() {
                return Err(self.refuse(400).await);
            }
            if body.is_done() {
                return Ok(());
            }
            self.read().await?;
        }
    }

    /// Writes the answer, and reads meanwhile: the rest of the body, the next request, the peer's going away.
    async fn answer(&mut self, answer: &Answer, exchange: &mut Exchange) -> Fate {
        let Exchange { record, body } = exchange;
        let (mut reader, mut writer) = self.stream.split();
        let buf = &mut self.buf;
        tokio::select! {
            biased;
            fate = write(&mut writer, answer.ops(), Some(record)) => fate,
            () = watch(&mut reader, buf, Some(body)) => Fate::PeerGone,
        }
    }

    /// Closes with a FIN. Bytes that came unasked are taken in first: with them unread, the close would be a reset. Not
    /// for ever, though: against a peer that keeps sending, a reset it is.
    async fn close(mut self) {
        for _ in 0..MAX_LAST_READS {
            self.buf.clear();
            self.buf.reserve(READ);
            match self.stream.try_read_buf(&mut self.buf) {
                Ok(0) | Err(_) => break,
                Ok(_) => {}
            }
        }
        let _ = self.stream.shutdown().await;
    }

    /// Reads on, for nothing, until the peer has gone.
    async fn drain(mut self) {
        while self.read().await.is_ok() {
            self.buf.clear();
        }
    }
}

impl Drop for Open {
    fn drop(&mut self) {
        self.0.state.send_modify(|state| state.open -= 1);
    }
}

// === impl Fate ===

impl Fate {
    fn log(&self, record: &Record) {
        match self {
            Self::Complete => record.end(ExchangeEnd::Answered),
            Self::Ended(Ending::Reset) => record.end(ExchangeEnd::Reset),
            Self::Ended(Ending::Close | Ending::HalfClose) => record.end(ExchangeEnd::Closed),
            Self::Ended(Ending::Silence) | Self::PeerGone => record.end(ExchangeEnd::PeerGone),
        }
    }

    fn next(self) -> Next {
        match self {
            Self::Ended(Ending::Reset) => Next::Reset,
            Self::Ended(Ending::HalfClose) => Next::Drain,
            Self::Complete | Self::Ended(Ending::Close | Ending::Silence) | Self::PeerGone => {
                Next::Close
            }
        }
    }
}

/// Does what an answer comes down to, up to its end.
async fn write(writer: &mut WriteHalf<'_>, ops: Vec<Op>, record: Option<&Record>) -> Fate {
    for op in ops {
        let written = match op {
            Op::Write(bytes) => write_all(writer, &bytes, record).await,
            Op::Trickle(bytes, every) => {
                let mut written = Ok(());
                for byte in bytes.chunks(1) {
                    written = write_all(writer, byte, record).await;
                    if written.is_err() {
                        break;
                    }
                    sleep(every).await;
                }
                written
            }
            Op::Pause(duration) => {
                sleep(duration).await;
                Ok(())
            }
            Op::End(Ending::Silence) => pending().await,
            Op::End(Ending::HalfClose) => {
                let _ = writer.shutdown().await;
                return Fate::Ended(Ending::HalfClose);
            }
            Op::End(ending) => return Fate::Ended(ending),
        };
        if written.is_err() {
            return Fate::PeerGone;
        }
    }
    Fate::Complete
}

async fn write_all(
    writer: &mut WriteHalf<'_>,
    mut bytes: &[u8],
    record: Option<&Record>,
) -> io::Result<()> {
    while !bytes.is_empty() {
        let len = writer.write(bytes).await?;
        if len == 0 {
            return Err(io::ErrorKind::WriteZero.into());
        }
        if let Some(record) = record {
            record.wrote(len);
        }
        bytes = &bytes[len..];
    }
    Ok(())
}

/// Reads until the peer has gone.
async fn watch(reader: &mut ReadHalf<'_>, buf: &mut BytesMut, mut body: Option<&mut RequestBody>) {
    loop {
        if let Some(body) = &mut body {
            // What does not parse here is found again, and refused, when the answer has been written.
            let _ = body.take(buf);
        }
        if buf.len() > MAX_AHEAD {
            // Somebody sends without end; let TCP hold it back.
            pending::<()>().await;
        }
        buf.reserve(READ);
        if let Ok(0) | Err(_) = reader.read_buf(buf).await {
            return;
        }
    }
}

/// Longest head of a request; a longer one is refused with a 431. Four times what common servers take.
const MAX_HEAD: usize = 64 * 1024;

/// Room for one read. A read into less would split what came at once.
const READ: usize = 16 * 1024;

/// How often a connection that is being closed is read from: 16 MiB at the most, more than socket buffers hold.
const MAX_LAST_READS: usize = 1024;

/// How far ahead of an unfinished answer bytes are read that are no part of its request.
const MAX_AHEAD: usize = 64 * 1024;
