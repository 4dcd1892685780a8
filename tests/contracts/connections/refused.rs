//! Real sockets, HTTP/2 by hand: streams that the server refuses, or breaks.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use backstop::testing::script::openai;
use backstop::vocabulary::Guard;
use backstop::{BackoffLayer, Class, ClassifyLayer, Error, Jitter, Schedule, Verdict};
use bytes::Bytes;
use h2::Reason;
use h2::server::SendResponse;
use http::Response;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::time::Instant;
use tower::{ServiceBuilder, ServiceExt};

use super::{ask, client};
use crate::support::{millis, read};

const WAIT: Duration = millis(400);

/// What is done with one request.
#[derive(Clone, Copy, Debug)]
enum Do {
    Answer,
    /// The head is read, and the stream reset with this reason.
    Reset(Reason),
    /// The connection goes away, and says that it never looked at this one.
    GoAway,
}

type Log = watch::Sender<Vec<(Instant, usize)>>;

struct Server {
    addr: SocketAddr,
    /// When each request came, and on which connection.
    log: Arc<Log>,
}

impl Server {
    async fn start(script: impl IntoIterator<Item = Do>) -> Self {
        let script: Arc<[Do]> = script.into_iter().collect();
        let listener = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
        let addr = listener.local_addr().unwrap();
        let log = Arc::new(watch::Sender::new(Vec::new()));
        let seen = Arc::clone(&log);
        tokio::spawn(async move {
            let mut connection = 0;
            while let Ok((stream, _)) = listener.accept().await {
                tokio::spawn(serve(stream, connection, Arc::clone(&script), Arc::clone(&seen)));
                connection += 1;
            }
        });
        Self { addr, log }
    }

    fn url(&self) -> String {
        format!("http://{}", self.addr)
    }

    /// The times between the requests.
    fn gaps(&self) -> Vec<Duration> {
        self.log.borrow().windows(2).map(|pair| pair[1].0 - pair[0].0).collect()
    }

    fn connections(&self) -> Vec<usize> {
        self.log.borrow().iter().map(|(_, connection)| *connection).collect()
    }
}

async fn serve(stream: TcpStream, number: usize, script: Arc<[Do]>, log: Arc<Log>) {
    let Ok(mut connection) = h2::server::handshake(stream).await else { return };
    while let Some(Ok((request, mut respond))) = connection.accept().await {
        let mut what = Do::Answer;
        log.send_modify(|log| {
            what = script.get(log.len()).copied().unwrap_or(Do::Answer);
            log.push((Instant::now(), number));
        });
        drop(request);
        match what {
            Do::Answer => answer(&mut respond),
            Do::Reset(reason) => respond.send_reset(reason),
            Do::GoAway => {
                connection.abrupt_shutdown(Reason::NO_ERROR);
                respond.send_reset(Reason::REFUSED_STREAM);
            }
        }
    }
}

fn answer(respond: &mut SendResponse<Bytes>) {
    let head = Response::builder().header("content-type", "text/event-stream").body(()).unwrap();
    let events = openai::chat_events("m", ["a"], Default::default());
    let body: String = events.iter().map(|data| format!("data: {data}\n\n")).collect();
    let mut stream = respond.send_response(head, false).unwrap();
    stream.send_data(body.into(), true).unwrap();
}

/// One call: the gaps between its attempts, and what it came to.
async fn call(script: Vec<Do>, retries: u32) -> (Server, Result<Option<Verdict>, Error>) {
    let server = Server::start(script).await;
    // Long beside what an idle machine needs, so that "at once" can be told from "after a wait" on a busy one.
    let waits = Schedule::new(WAIT, WAIT * 2).with_jitter(Jitter::None);
    let stack = ServiceBuilder::new()
        .layer(BackoffLayer::builder().schedule(waits).max_retries(retries).build().unwrap())
        .layer(ClassifyLayer::new())
        .service(client(true));
    let result = match stack.oneshot(ask(&server.url())).await {
        Ok(response) => {
            let verdict = Verdict::of(&response).cloned();
            assert!(read(response.into_body()).await.end.is_ok());
            Ok(verdict)
        }
        Err(error) => Err(error),
    };
    (server, result)
}

#[tokio::test]
async fn a_refused_stream_is_repeated_at_once_and_takes_no_retry() {
    // One retry is allowed, and is still there for the ordinary failure after it.
    let script = vec![Do::Reset(Reason::REFUSED_STREAM), Do::Reset(Reason::INTERNAL_ERROR)];
    let (server, result) = call(script, 1).await;
    assert_eq!(result.unwrap().map(|verdict| verdict.class()), Some(Class::Success));
    let gaps = server.gaps();
    assert_eq!(gaps.len(), 2);
    assert!(gaps[0] < WAIT, "at once: {gaps:?}");
    assert!(gaps[1] >= WAIT, "after the first wait: {gaps:?}");
    assert_eq!(server.connections(), [0, 0, 0]);
}

#[tokio::test]
async fn the_second_refusal_of_a_call_waits_like_any_failure() {
    let script = vec![Do::Reset(Reason::REFUSED_STREAM); 4];
    let (server, result) = call(script, 2).await;
    let gaps = server.gaps();
    assert_eq!(gaps.len(), 3, "one at once, and two retries");
    assert!(gaps[0] < WAIT, "{gaps:?}");
    assert!(gaps[1] >= WAIT && gaps[2] >= WAIT * 2, "{gaps:?}");
    let error = result.unwrap_err();
    let Error::Exhausted(exhausted) = &error else { panic!("{error:?}") };
    assert_eq!((exhausted.retries(), exhausted.stopped_by()), (2, Guard::MaxRetries));
    assert!(exhausted.verdict().is_unprocessed(), "{:?}", exhausted.verdict());
}

#[tokio::test]
async fn a_stream_that_breaks_inside_the_server_is_an_ordinary_failure() {
    for reason in [Reason::INTERNAL_ERROR, Reason::CANCEL, Reason::ENHANCE_YOUR_CALM] {
        let (server, result) = call(vec![Do::Reset(reason); 2], 1).await;
        let gaps = server.gaps();
        assert_eq!(gaps.len(), 1, "{reason:?}");
        assert!(gaps[0] >= WAIT, "{reason:?}: not at once: {gaps:?}");
        let error = result.unwrap_err();
        let verdict = error.verdict().unwrap();
        assert_eq!(verdict.class(), Class::Transient, "{reason:?}");
        assert!(!verdict.is_unprocessed(), "{reason:?}: it proves nothing");
    }
}

#[tokio::test]
async fn a_refusal_of_a_connection_that_goes_away_is_repeated_on_a_new_one() {
    let (server, result) = call(vec![Do::GoAway], 1).await;
    assert_eq!(result.unwrap().map(|verdict| verdict.class()), Some(Class::Success));
    assert_eq!(server.connections(), [0, 1]);
}
