//! Limits of a connection, without a channel: real servers do not reach them.

use std::{
    future::poll_fn,
    io,
    pin::{Pin, pin},
    sync::Arc,
    task::{Context, Poll, Waker},
    time::Instant,
};

use bytes::Bytes;
use frpc::codec::Format;
use frpc_http2::{Connection, ErrorCode, Event, Field, Head, Header, Settings, StreamId};
use futures_util::FutureExt;
use http::{HeaderMap, HeaderName, HeaderValue, Method, uri::PathAndQuery};
use http_body_util::BodyExt;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, DuplexStream, ReadBuf, duplex};

use super::{
    call::{Http2Failure, ShortCall, ShortOutcome, ShortResponse},
    driver::{Http2Sender, core_settings},
    plain::PlainResponse,
    request::{AddedHeaders, CallHead, Http2Content, Http2Request, MethodHead, RequestHeads, ShortMessage},
};
use crate::client::{outgoing::OutgoingBody, settings::ClientSettings};

/// A server with answers on demand.
struct Peer {
    core: Connection,
    socket: DuplexStream,
    input: Vec<u8>,
    requests: Vec<StreamId>,
    /// The head of the latest request.
    head: Option<Arc<Head>>,
}

impl Peer {
    fn new(socket: DuplexStream, streams_max: u32) -> Self {
        let core = Connection::server(Settings { streams_max, ..Settings::default() }, Instant::now());
        Self { core, socket, input: Vec::new(), requests: Vec::new(), head: None }
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
                    Some(Event::Head { stream, head, .. }) => {
                        self.requests.push(stream);
                        self.head = Some(head);
                    }
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
        head: CallHead { method: head("/a", &Arc::default()), is_repeated: false, added: None },
        content: Http2Content::Body(Box::new(OutgoingBody::Whole(Some(Bytes::from_static(b"hi"))))),
    }
}

fn head(path: &'static str, headers: &Arc<HeaderMap>) -> Arc<MethodHead> {
    let (path, headers) = (PathAndQuery::from_static(path), headers.clone());
    Arc::new(MethodHead { method: Method::POST, path, headers })
}

fn plain() -> PlainResponse {
    PlainResponse::new(Format::Proto, 100)
}

/// Starts a connection with `first` as the id of its first stream.
fn connect(first: u32, streams_max: u32) -> (Http2Sender, Peer) {
    let (ours, theirs) = duplex(64 << 10);
    let settings = ClientSettings::default();
    let mut core = Connection::client(core_settings(&settings), Instant::now());
    core.skip_ids(first);
    let heads = RequestHeads::new(false, "test".parse().unwrap());
    let (sender, connection) = Http2Sender::with_core(core, ours, &settings, heads, plain());
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

/// Awaits the outcome of a call with a short message.
async fn outcome(mut response: ShortResponse) -> ShortOutcome {
    poll_fn(|cx| response.poll(cx)).await
}

/// Sends a short message.
fn send_short(sender: &Http2Sender, path: &'static str) -> ShortResponse {
    let (Http2Request { head, content }, _) = repeated(path, &Arc::default(), None);
    let Http2Content::Short(message) = content else { unreachable!("the message is short") };
    sender.send_short(ShortCall::new(head, message, None), Waker::noop())
}

/// Sends a response of gRPC in parts. Returns `true` if the response is a plain one.
async fn is_plain(head: &[Field<'_>], message: &[u8], trailers: &[Field<'_>]) -> bool {
    let (sender, mut peer) = connect(1, 100);
    let mut called = pin!(outcome(send_short(&sender, "/a")));
    let stream = peer.request().await;
    peer.core.send_head(stream, Header::fields(head), false).unwrap();
    peer.core.send_slice(stream, message, false).unwrap();
    peer.core.send_trailers(stream, Header::fields(trailers)).unwrap();
    peer.write().await;
    match called.as_mut().await {
        ShortOutcome::Plain(data, _) => {
            assert_eq!(data, message);
            true
        }
        ShortOutcome::Other(response, Some(_)) => {
            let body = response.await.unwrap().into_body().collect().await.unwrap();
            assert_eq!(body.trailers().map(HeaderMap::len), Some(trailers.len()));
            assert_eq!(body.to_bytes(), message);
            false
        }
        _ => panic!("the response has arrived"),
    }
}

#[tokio::test]
async fn plain_responses_are_one_message_without_metadata() {
    let head = [Field::new(":status", "200"), Field::new("content-type", "application/grpc")];
    let (success, message) = ([Field::new("grpc-status", "0")], b"\0\0\0\0\x02hi");
    assert!(is_plain(&head, message, &success).await);
    assert!(is_plain(&head, message, &[success[0], Field::new("grpc-message", "")]).await);
    let other_type = [head[0], Field::new("content-type", "application/grpc+json")];
    let with_metadata = [head[0], head[1], Field::new("x", "y")];
    let failed = [Field::new(":status", "503"), head[1]];
    for head in [&other_type[..], &with_metadata, &failed, &head[..1]] {
        assert!(!is_plain(head, message, &success).await, "{head:?}");
    }
    let long = [&[0, 0, 0, 0, 101][..], &[7; 101]].concat();
    for message in [&b"\x01\0\0\0\x02hi"[..], b"\0\0\0\0\x03hi", b"\0\0\0\0\x01hi", b"\0\0\0\0", &long] {
        assert!(!is_plain(&head, message, &success).await, "{message:?}");
    }
    let longest = [&[0, 0, 0, 0, 100][..], &[7; 100]].concat();
    assert!(is_plain(&head, &longest, &success).await);
    for trailers in [&[Field::new("grpc-status", "5")][..], &[success[0], Field::new("x", "y")]] {
        assert!(!is_plain(&head, message, trailers).await, "{trailers:?}");
    }
}

#[tokio::test]
async fn a_dropped_short_call_is_cancelled_before_and_after_it_is_sent() {
    let (sender, mut peer) = connect(1, 1);
    let first = send_short(&sender, "/a");
    let stream = peer.request().await;
    // Above the limit of the server, so it waits.
    let second = send_short(&sender, "/b");
    tokio::task::yield_now().await;
    drop(second);
    drop(first);
    let third = send_short(&sender, "/c");
    let next = peer.request().await;
    assert_eq!(next.get(), stream.get() + 2, "a call dropped before it is sent takes no stream");
    assert!(!peer.core.is_open(stream), "the client has reset the stream of the first call");
    drop(third);
}

#[tokio::test]
async fn a_response_that_proves_long_is_read_in_parts() {
    let (sender, mut peer) = connect(1, 100);
    for is_reset in [false, true] {
        let mut called = pin!(outcome(send_short(&sender, "/a")));
        assert!(called.as_mut().now_or_never().is_none());
        let stream = peer.request().await;
        peer.core.send_head(stream, Header::fields(&[Field::new(":status", "200")]), false).unwrap();
        peer.core.send_slice(stream, b"hel", false).unwrap();
        peer.write().await;
        // The client reads those frames before it writes another request.
        let next = send_short(&sender, "/b");
        let later = peer.request().await;
        assert!(called.as_mut().now_or_never().is_none(), "the caller awaits the whole response");
        if is_reset {
            peer.core.reset(stream, ErrorCode::INTERNAL_ERROR);
        } else {
            peer.core.send_slice(stream, b"lo", true).unwrap();
        }
        peer.write().await;
        let ShortOutcome::Other(response, Some(_)) = called.await else { panic!("it is no plain response") };
        let mut body = response.await.unwrap().into_body();
        let mut data = Vec::new();
        let failure = loop {
            match body.frame().await {
                Some(Ok(frame)) => data.extend_from_slice(&frame.into_data().unwrap()),
                Some(Err(failure)) => break Some(failure),
                None => break None,
            }
        };
        assert_eq!(data, if is_reset { &b"hel"[..] } else { b"hello" });
        assert_eq!(failure.is_some(), is_reset, "{failure:?}");
        let fields = [Field::new(":status", "200"), Field::new("content-type", "application/grpc")];
        peer.core.send_head(later, Header::fields(&fields), false).unwrap();
        peer.core.send_slice(later, b"\0\0\0\0\x05hello", false).unwrap();
        peer.core.send_trailers(later, Header::fields(&[Field::new("grpc-status", "0")])).unwrap();
        peer.write().await;
        assert!(matches!(outcome(next).await, ShortOutcome::Plain(data, _) if data.ends_with(b"hello")));
    }
}

#[tokio::test]
async fn the_arrived_start_of_a_response_outlives_its_connection() {
    let (sender, mut peer) = connect(1, 100);
    let call = send_short(&sender, "/a");
    let stream = peer.request().await;
    peer.core.send_head(stream, Header::fields(&[Field::new(":status", "200")]), false).unwrap();
    peer.core.send_slice(stream, b"hel", false).unwrap();
    peer.write().await;
    drop(peer);
    let ShortOutcome::Other(response, Some(_)) = outcome(call).await else { panic!("it is no plain response") };
    // A response with a head is not repeated on another connection.
    let mut body = response.await.unwrap().into_body();
    assert_eq!(body.frame().await.unwrap().unwrap().into_data().unwrap(), "hel");
    assert!(matches!(body.frame().await, Some(Err(Http2Failure::Lost(_)))));
}

/// A socket to a stalled server: no write ends, and neither does a shutdown.
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
    let (sender, connection) = Http2Sender::new(StuckSocket(ours), &settings, false, "test".parse().unwrap(), plain());
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
    let (sender, connection) = Http2Sender::new(ours, &settings, false, "test".parse().unwrap(), plain());
    let call = sender.send(request());
    drop(connection);
    assert!(call.await.is_err());
    let refused = sender.send(request()).await.err().unwrap();
    assert!(matches!(refused, Http2Failure::Closed), "{refused:?}");
}

/// Returns a request with headers of many calls, and its fields.
fn repeated(
    path: &'static str,
    headers: &Arc<HeaderMap>,
    timeout: Option<&'static str>,
) -> (Http2Request, Vec<String>) {
    let timeout = timeout.map(|timeout| (HeaderName::from_static("grpc-timeout"), HeaderValue::from_static(timeout)));
    let added = timeout.iter().map(|(name, value)| (name, value));
    let fields = headers.iter().chain(added).map(|(name, value)| format!("{name}={}", value.to_str().unwrap()));
    let fields = [format!(":path={path}")].into_iter().chain(fields).collect();
    let content = Http2Content::Short(ShortMessage::new(Bytes::from_static(b"hi")).unwrap());
    let added = timeout.map(|timeout| Box::new(AddedHeaders { timeout: Some(timeout), head: frpc::Head::default() }));
    let head = CallHead { method: head(path, headers), is_repeated: true, added };
    (Http2Request { head, content }, fields)
}

#[tokio::test]
async fn prepared_heads_stay_true_as_headers_and_tables_change() {
    let headers = |pairs: &[(&'static str, &str)]| {
        let pair = |(name, value): &(&'static str, &str)| (HeaderName::from_static(name), value.parse().unwrap());
        Arc::new(pairs.iter().map(pair).collect::<HeaderMap>())
    };
    let long = "v".repeat(6000);
    let usual = headers(&[("te", "trailers"), ("user-agent", "test")]);
    let mut secret = HeaderMap::clone(&usual);
    secret.insert("x-key", "secret-1".parse().unwrap());
    secret.get_mut("x-key").unwrap().set_sensitive(true);
    let (secret, large) = (Arc::new(secret), headers(&[("x-large", &long)]));
    let (sender, mut peer) = connect(1, 100);
    for round in 0..8 {
        if round == 4 {
            // SETTINGS_HEADER_TABLE_SIZE of 0, then of 4096: the client forgets its table in between.
            peer.socket.write_all(&[0, 0, 6, 4, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0]).await.unwrap();
        }
        if round == 6 {
            peer.socket.write_all(&[0, 0, 6, 4, 0, 0, 0, 0, 0, 0, 1, 0, 0, 16, 0]).await.unwrap();
        }
        let changing = headers(&[("te", "trailers"), ("x-round", &round.to_string())]);
        for (request, expected) in [
            repeated("/a", &usual, None),
            repeated("/b", &usual, None),
            repeated("/a", &usual, Some("5S")),
            repeated("/a", &changing, None),
            repeated("/a", &secret, None),
            repeated("/a", &large, None),
        ] {
            let call = tokio::spawn(sender.send(request));
            let stream = peer.request().await;
            let head = peer.head.take().unwrap();
            let fields = head.iter().map(|(name, value)| format!("{}={}", text(name), text(value)));
            let path = format!(":path={}", head.path().unwrap());
            assert_eq!([path].into_iter().chain(fields).collect::<Vec<_>>(), expected, "round {round}");
            assert_eq!((head.method(), head.authority()), (Some("POST"), Some("test")));
            peer.answer(stream).await;
            assert!(call.await.unwrap().is_ok());
        }
    }
}

fn text(bytes: &[u8]) -> &str {
    str::from_utf8(bytes).unwrap()
}
