//! Limits of a connection that no server of a test reaches through a channel.

use std::{
    io,
    pin::Pin,
    task::{Context, Poll},
    time::Instant,
};

use bytes::Bytes;
use frpc_http2::{Connection, Event, Field, Header, Settings, StreamId};
use http::{HeaderMap, Method, uri::PathAndQuery};
use http_body_util::BodyExt;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, DuplexStream, ReadBuf, duplex};

use super::{
    call::Http2Failure,
    driver::{Http2Sender, core_settings},
    request::{Http2Request, RequestHeads},
};
use crate::client::{outgoing::OutgoingBody, settings::ClientSettings};

/// A server that answers requests on demand.
struct Peer {
    core: Connection,
    socket: DuplexStream,
    input: Vec<u8>,
    requests: Vec<StreamId>,
}

impl Peer {
    fn new(socket: DuplexStream, streams_max: u32) -> Self {
        let core = Connection::server(Settings { streams_max, ..Settings::default() }, Instant::now());
        Self { core, socket, input: Vec::new(), requests: Vec::new() }
    }

    async fn write(&mut self) {
        let mut output = Vec::new();
        self.core.take_output(&mut output);
        self.socket.write_all(&output).await.unwrap();
    }

    /// Waits for more requests.
    async fn request(&mut self) -> StreamId {
        loop {
            self.write().await;
            if !self.requests.is_empty() {
                return self.requests.remove(0);
            }
            assert!(self.socket.read_buf(&mut self.input).await.unwrap() > 0, "the client has closed");
            let input = std::mem::take(&mut self.input);
            let mut rest = &input[..];
            loop {
                let received = self.core.receive(rest, Instant::now()).unwrap();
                rest = &rest[received.consumed..];
                match received.event {
                    Some(Event::Head { stream, .. }) => self.requests.push(stream),
                    Some(_) => {}
                    None => break,
                }
            }
            self.input = rest.to_vec();
        }
    }

    async fn answer(&mut self, stream: StreamId) {
        self.core.send_head(stream, Header::fields(&[Field::new(":status", "200")]), false).unwrap();
        self.core.send_slice(stream, b"hello", true).unwrap();
        self.write().await;
    }
}

fn request() -> Http2Request {
    Http2Request {
        method: Method::POST,
        path: PathAndQuery::from_static("/a"),
        headers: HeaderMap::new().into(),
        is_repeated: false,
        timeout: None,
        body: OutgoingBody::Whole(Some(Bytes::from_static(b"hi"))),
    }
}

/// Starts a connection whose first stream has the id `first`.
fn connect(first: u32, streams_max: u32) -> (Http2Sender, Peer) {
    let (ours, theirs) = duplex(64 << 10);
    let settings = ClientSettings::default();
    let mut core = Connection::client(core_settings(&settings), Instant::now());
    core.skip_ids(first);
    let heads = RequestHeads::new(false, "test".parse().unwrap());
    let (sender, connection) = Http2Sender::with_core(core, ours, &settings, heads);
    tokio::spawn(connection);
    (sender, Peer::new(theirs, streams_max))
}

#[tokio::test]
async fn requests_above_the_limit_of_the_server_wait_for_capacity() {
    let (sender, mut peer) = connect(1, 1);
    let first = tokio::spawn(sender.send(request()));
    let stream = peer.request().await;
    assert_eq!(sender.streams_max(), 1, "the server has announced its limit");
    // Submitted against the limit, as calls in a race with SETTINGS are.
    let dropped = sender.send(request());
    let second = tokio::spawn(sender.send(request()));
    tokio::task::yield_now().await;
    drop(dropped);
    peer.answer(stream).await;
    let body = first.await.unwrap().unwrap().into_body();
    assert_eq!(body.collect().await.unwrap().to_bytes(), "hello");
    let stream = peer.request().await;
    assert_eq!(stream.get(), 3, "a dropped call takes no stream");
    peer.answer(stream).await;
    assert!(second.await.unwrap().is_ok());
}

#[tokio::test]
async fn a_connection_without_ids_closes_after_its_calls() {
    let (sender, mut peer) = connect((1 << 31) - 1, 100);
    let last = tokio::spawn(sender.send(request()));
    let stream = peer.request().await;
    assert_eq!(stream.get(), (1 << 31) - 1);
    let refused = sender.send(request()).await.err().unwrap();
    assert!(matches!(refused, Http2Failure::Closed) && refused.is_unsent(), "{refused:?}");
    assert!(sender.is_closed());
    peer.answer(stream).await;
    let body = last.await.unwrap().unwrap().into_body();
    assert_eq!(body.collect().await.unwrap().to_bytes(), "hello");
    drop(sender);
    let mut rest = Vec::new();
    peer.socket.read_to_end(&mut rest).await.unwrap();
}

/// A socket of a server that reads nothing: no write ends, and neither does a shutdown.
struct StuckSocket(DuplexStream);

impl AsyncRead for StuckSocket {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_read(cx, buf)
    }
}

impl AsyncWrite for StuckSocket {
    fn poll_write(self: Pin<&mut Self>, _: &mut Context<'_>, _: &[u8]) -> Poll<io::Result<usize>> {
        Poll::Pending
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Pending
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Pending
    }
}

#[tokio::test(start_paused = true)]
async fn a_connection_to_a_server_that_reads_nothing_ends() {
    let (ours, mut theirs) = duplex(1024);
    let settings = ClientSettings::default();
    let (sender, connection) = Http2Sender::new(StuckSocket(ours), &settings, false, "test".parse().unwrap());
    let ended = tokio::spawn(connection);
    let call = sender.send(request());
    theirs.write_all(b"this is not HTTP/2").await.unwrap();
    assert!(call.await.is_err());
    assert!(ended.await.unwrap().contains("FRAME_SIZE_ERROR"));
}

#[tokio::test]
async fn calls_end_with_the_task_of_their_connection() {
    let (ours, _theirs) = duplex(1024);
    let settings = ClientSettings::default();
    let (sender, connection) = Http2Sender::new(ours, &settings, false, "test".parse().unwrap());
    let call = sender.send(request());
    drop(connection);
    assert!(call.await.is_err());
    let refused = sender.send(request()).await.err().unwrap();
    assert!(matches!(refused, Http2Failure::Closed), "{refused:?}");
}
