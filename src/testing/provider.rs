//! A provider on a real socket that does what its script says.

use std::{
    fmt, io,
    net::{Ipv4Addr, SocketAddr},
    sync::Arc,
    time::Duration,
};

use tokio::{
    net::{TcpListener, TcpSocket},
    sync::{oneshot, watch},
    task::{JoinHandle, JoinSet},
    time::sleep,
};

use super::{
    answer::Answer,
    connection::Connection,
    log::{SeenRequest, State},
    script::Script,
};

/// An HTTP/1.1 server on 127.0.0.1 that answers as scripted, misbehaves as scripted, and keeps its own log.
///
/// Its HTTP is written by hand on plain sockets, so that it can also do what no HTTP library would: reset, lie about
/// lengths, send half a head, fall silent. Each request takes the next [`Answer`] of the script, in the order in which
/// the request heads arrive, over all connections. What the tests then hold a client to is
/// [this log](Self::log), not the client's own view.
///
/// It runs on the tokio runtime it was started on, with real time: do not use it under a paused clock, where a wait
/// ends before bytes on a socket have had the time to arrive; that is what
/// [`ScriptedService`](super::ScriptedService) is for.
///
/// Dropping it stops it: port and connections are closed as soon as the runtime gets to it;
/// [`shutdown`](Self::shutdown) waits for that.
#[derive(Debug)]
#[must_use = "a provider stops when it is dropped"]
pub struct ScriptedProvider {
    addr: SocketAddr,
    shared: Arc<Shared>,
    stop: Option<oneshot::Sender<()>>,
    accepting: JoinHandle<()>,
}

/// Sets up a [`ScriptedProvider`].
#[derive(Debug)]
#[must_use = "a provider runs only once it is started"]
pub struct ProviderBuilder {
    addr: SocketAddr,
    config: Config,
}

#[derive(Debug)]
struct Config {
    script: Script<Answer>,
    routes: Vec<(String, Script<Answer>)>,
    function: Option<Function>,
    idle: Idle,
    max_body: usize,
}

struct Function(Box<Choose>);

type Choose = dyn Fn(&SeenRequest) -> Option<Answer> + Send + Sync;

/// What becomes of a connection that is not used after an answer.
#[derive(Debug, Clone, Copy)]
pub(super) enum Idle {
    Keep,
    CloseAfter(Duration),
    ResetAfter(Duration),
}

/// What the provider's handle and its connections share.
#[derive(Debug)]
pub(super) struct Shared {
    pub(super) script: Script<Answer>,
    routes: Vec<(String, Script<Answer>)>,
    function: Option<Function>,
    pub(super) idle: Idle,
    pub(super) max_body: usize,
    pub(super) state: watch::Sender<State>,
}

/// An address that refuses connections for as long as this value lives: its port is taken, but nobody listens on it.
#[derive(Debug)]
pub struct UnusedAddr {
    addr: SocketAddr,
    _socket: TcpSocket,
}

// === impl ScriptedProvider ===

impl ScriptedProvider {
    /// Starts a provider with this script. A request past its end gets a 500 that says so, and counts in
    /// [`exhausted`](Self::exhausted).
    ///
    /// # Errors
    /// When no port can be opened.
    pub async fn start(script: impl Into<Script<Answer>>) -> io::Result<Self> {
        Self::builder().script(script).start().await
    }

    /// A provider with more than a script: routes, a function, limits.
    pub fn builder() -> ProviderBuilder {
        ProviderBuilder {
            addr: (Ipv4Addr::LOCALHOST, 0).into(),
            config: Config {
                script: Script::default(),
                routes: Vec::new(),
                function: None,
                idle: Idle::Keep,
                max_body: MAX_BODY,
            },
        }
    }

    /// Where it listens.
    #[must_use]
    pub fn addr(&self) -> SocketAddr {
        self.addr
    }

    /// Its base URL, such as `http://127.0.0.1:40123`; without a slash at the end.
    #[must_use]
    pub fn url(&self) -> String {
        format!("http://{}", self.addr)
    }

    /// The requests seen so far, in the order of arrival, each as far as it has come.
    #[must_use]
    pub fn log(&self) -> Vec<SeenRequest> {
        self.shared.state.borrow().requests.clone()
    }

    /// How many requests were seen.
    #[must_use]
    pub fn requests(&self) -> usize {
        self.shared.state.borrow().requests.len()
    }

    /// How many connections were accepted.
    #[must_use]
    pub fn connections(&self) -> usize {
        self.shared.state.borrow().accepted
    }

    /// How many connections are open.
    #[must_use]
    pub fn open_connections(&self) -> usize {
        self.shared.state.borrow().open
    }

    /// How many requests came after the end of the script.
    #[must_use]
    pub fn exhausted(&self) -> usize {
        self.shared.state.borrow().exhausted
    }

    /// How many times something came that is not an HTTP/1.1 request, or one with a head over 64 KiB.
    #[must_use]
    pub fn malformed(&self) -> usize {
        self.shared.state.borrow().malformed
    }

    /// How many connections were reset under [`reset_idle_after`](ProviderBuilder::reset_idle_after).
    #[must_use]
    pub fn stale_resets(&self) -> usize {
        self.shared.state.borrow().stale_resets
    }

    /// Waits until at least `n` requests were seen.
    pub async fn wait_for_requests(&self, n: usize) {
        self.wait_for(|state| state.requests.len() >= n).await;
    }

    /// Waits until no exchange is under way: every request seen has come to its end. Before the first request that is
    /// so at once; [`wait_for_requests`](Self::wait_for_requests) comes first, where none may have arrived.
    pub async fn wait_until_idle(&self) {
        self.wait_for(|state| state.active == 0).await;
    }

    /// Waits until no connection is open.
    pub async fn wait_until_disconnected(&self) {
        self.wait_for(|state| state.open == 0).await;
    }

    /// Stops listening, ends every connection, and waits until that is done.
    pub async fn shutdown(mut self) {
        if let Some(stop) = self.stop.take() {
            let _ = stop.send(());
        }
        let _ = (&mut self.accepting).await;
    }

    async fn wait_for(&self, reached: impl FnMut(&State) -> bool) {
        // The sender lives in `self`, so the channel cannot close under this wait.
        let _ = self.shared.state.subscribe().wait_for(reached).await;
    }
}

impl Drop for ScriptedProvider {
    fn drop(&mut self) {
        self.accepting.abort();
    }
}

/// Accepts until told to stop. The connections live in its set, so they end with it.
async fn accept(listener: TcpListener, shared: Arc<Shared>, mut stop: oneshot::Receiver<()>) {
    let mut connections = JoinSet::new();
    loop {
        tokio::select! {
            _ = &mut stop => break,
            Some(_) = connections.join_next(), if !connections.is_empty() => {}
            accepted = listener.accept() => match accepted {
                Ok((stream, _)) => {
                    connections.spawn(Connection::accept(stream, &shared).serve());
                }
                // Out of file descriptors, most likely: they come back when something closes.
                Err(_) => sleep(ACCEPT_PAUSE).await,
            },
        }
    }
    drop(listener);
    connections.shutdown().await;
}

// === impl ProviderBuilder ===

impl ProviderBuilder {
    /// The answers to requests that nothing else answers. Default: an empty script.
    pub fn script(mut self, script: impl Into<Script<Answer>>) -> Self {
        self.config.script = script.into();
        self
    }

    /// A script of its own for paths that begin with `prefix`; the longest prefix that fits is taken.
    pub fn route(mut self, prefix: impl Into<String>, script: impl Into<Script<Answer>>) -> Self {
        self.config.routes.push((prefix.into(), script.into()));
        self
    }

    /// Asks `choose` for each answer, once the request is complete. Where it returns `None`, routes and script answer.
    ///
    /// If `choose` panics, the connection is closed without an answer.
    pub fn on_request<F, A>(mut self, choose: F) -> Self
    where
        F: Fn(&SeenRequest) -> A + Send + Sync + 'static,
        A: Into<Option<Answer>>,
    {
        self.config.function = Some(Function(Box::new(move |seen| choose(seen).into())));
        self
    }

    /// Closes a connection (FIN) on which no request comes for `limit` after an answer. Default: never.
    pub fn close_idle_after(mut self, limit: Duration) -> Self {
        self.config.idle = Idle::CloseAfter(limit);
        self
    }

    /// Resets a connection (RST) when a request comes on it that begins `limit` or more after the last answer; that
    /// request is not read, and not in the log. Default: never.
    pub fn reset_idle_after(mut self, limit: Duration) -> Self {
        self.config.idle = Idle::ResetAfter(limit);
        self
    }

    /// Keeps up to `bytes` of each request body; more is counted, and forgotten. Default: 64 MiB.
    pub fn max_body(mut self, bytes: usize) -> Self {
        self.config.max_body = bytes;
        self
    }

    /// Listens here. Default: a free port of 127.0.0.1.
    pub fn listen_on(mut self, addr: SocketAddr) -> Self {
        self.addr = addr;
        self
    }

    /// Starts it.
    ///
    /// # Errors
    /// When the address cannot be listened on.
    pub async fn start(self) -> io::Result<ScriptedProvider> {
        let Self { addr, config: Config { script, routes, function, idle, max_body } } = self;
        let listener = TcpListener::bind(addr).await?;
        let addr = listener.local_addr()?;
        let state = watch::Sender::new(State::default());
        let shared = Arc::new(Shared { script, routes, function, idle, max_body, state });
        let (stop, stopped) = oneshot::channel();
        let accepting = tokio::spawn(accept(listener, Arc::clone(&shared), stopped));
        Ok(ScriptedProvider { addr, shared, stop: Some(stop), accepting })
    }
}

// === impl Shared ===

impl Shared {
    /// Whether answers depend on the whole request.
    pub(super) fn asks(&self) -> bool {
        self.function.is_some()
    }

    pub(super) fn ask(&self, seen: &SeenRequest) -> Option<Answer> {
        self.function.as_ref().and_then(|Function(choose)| choose(seen))
    }

    pub(super) fn scripted(&self, seen: &SeenRequest, exhausted: &mut usize) -> Answer {
        let fitting =
            self.routes.iter().filter(|(prefix, _)| seen.path().starts_with(prefix.as_str()));
        let script = fitting
            .max_by_key(|(prefix, _)| prefix.len())
            .map_or(&self.script, |(_, script)| script);
        script.take().unwrap_or_else(|| {
            *exhausted += 1;
            Answer::exhausted(seen.index)
        })
    }
}

impl fmt::Debug for Function {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Function(..)")
    }
}

// === impl UnusedAddr ===

/// An address of this machine on which connections are refused.
///
/// # Errors
/// When no port is to be had.
pub fn unused_addr() -> io::Result<UnusedAddr> {
    let socket = TcpSocket::new_v4()?;
    socket.bind((Ipv4Addr::LOCALHOST, 0).into())?;
    let addr = socket.local_addr()?;
    Ok(UnusedAddr { addr, _socket: socket })
}

impl UnusedAddr {
    /// The address.
    #[must_use]
    pub fn addr(&self) -> SocketAddr {
        self.addr
    }

    /// Its base URL; without a slash at the end.
    #[must_use]
    pub fn url(&self) -> String {
        format!("http://{}", self.addr)
    }
}

/// Twice the largest body that the largest provider takes.
const MAX_BODY: usize = 64 * 1024 * 1024;

/// Long enough not to spin, short enough not to be noticed.
const ACCEPT_PAUSE: Duration = Duration::from_millis(10);
