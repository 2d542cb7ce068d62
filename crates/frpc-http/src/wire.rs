//! The wire: connections that speak HTTP on the port of a server.

use std::{pin::pin, sync::Arc, time::Duration};

use frpc::{Drain, Endpoint, Peer, Raw, Recognized, Wire};
use hyper::{
    Request,
    body::Incoming,
    server::conn::{http1, http2},
    service::service_fn,
};
use hyper_util::rt::{TokioIo, TokioTimer};
use tracing::debug;

use crate::{
    activity::drive,
    cors::Cors,
    hosts::Hosts,
    http2::{Answers, Pieces, read_preface},
    mount::Mount,
    plain,
    serve::{self, Remainder, Site, Unended, Unread, UntilOver, Upgrading},
    settings::Settings,
    standstill::Standstill,
};

/// HTTP as a wire of a [`Server`](frpc::Server): its services for callers that speak gRPC, gRPC-Web, Connect or Twirp, over HTTP/2
/// and HTTP/1.1.
///
/// Which version a connection speaks is told by its first bytes, which protocol a request is of by its content type and path.
/// Everything that is not HTTP is left to the other wires of the server, and to frisbee.
///
/// ```
/// use std::time::Duration;
///
/// use frpc::Server;
/// use frpc_http::Http;
///
/// let http = Http::new().twirp(false).message_len_max(1024 * 1024).body_time_max(Duration::from_secs(10));
/// let server = Server::builder().wire(http);
/// # let _ = server;
/// ```
///
/// # Limits
///
/// The messages of a connection, those that are being received among them, take at most
/// [`connection_memory_max`](frpc::ServerBuilder::connection_memory_max) of memory, and those of all connections
/// [`server_memory_max`](frpc::ServerBuilder::server_memory_max). Besides, a peer can make a connection hold at most [`streams_max`](Self::streams_max) requests, each with a head of
/// [`head_len_max`](Self::head_len_max) and one message of [`message_len_max`](Self::message_len_max) that is being received. Bytes
/// that nobody has read yet are bounded by the windows of HTTP/2, 1 MiB for all requests of a connection, and on HTTP/1.1 by 64 KiB
/// behind the request that is being answered. The deadline that a caller sets, and [`Times`](frpc::Times), bound the handlers.
#[derive(Clone, Debug, Default)]
pub struct Http {
    pub(crate) settings: Settings,
}

impl Http {
    /// Serves all protocols, with the limits that each setting names as its default.
    pub fn new() -> Self {
        Self::default()
    }

    /// Switches gRPC on or off. Default on.
    pub fn grpc(mut self, is_on: bool) -> Self {
        self.settings.grpc = is_on;
        self
    }

    /// Switches gRPC-Web on or off. Default on.
    pub fn grpc_web(mut self, is_on: bool) -> Self {
        self.settings.grpc_web = is_on;
        self
    }

    /// Switches Connect on or off. Default on.
    pub fn connect(mut self, is_on: bool) -> Self {
        self.settings.connect = is_on;
        self
    }

    /// Switches Twirp on or off. Default on.
    pub fn twirp(mut self, is_on: bool) -> Self {
        self.settings.twirp = is_on;
        self
    }

    /// Sets the length that a message of a caller may have, compressed or not. Default 4 MiB. A longer one is answered with
    /// [`ResourceExhausted`](frpc::Code::ResourceExhausted).
    pub fn message_len_max(mut self, message_len_max: usize) -> Self {
        self.settings.message_len_max = message_len_max;
        self
    }

    /// Refuses requests in JSON with fields or enum names that the server does not know, with
    /// [`InvalidArgument`](frpc::Code::InvalidArgument) and the path of the first. Default off: they are ignored, as Connect asks, and the
    /// first of each method is logged. What is [mounted](Self::mount) has settings of its own.
    pub fn strict_json(mut self, is_strict: bool) -> Self {
        self.settings.strict_json = is_strict;
        self
    }

    /// Has answers compressed with gzip for every caller that accepts it. Default: for those that compress their requests.
    ///
    /// Whoever sees the length of compressed messages learns something of what is in them: do not compress secrets together with
    /// what others can choose.
    pub fn send_compressed(mut self, is_on: bool) -> Self {
        self.settings.send_compressed = is_on;
        self
    }

    /// Sets the length from which on messages are compressed. Default 1 KiB.
    pub fn compression_len_min(mut self, len_min: usize) -> Self {
        self.settings.compression_len_min = len_min;
        self
    }

    /// Sets how long the one message of a request may take to arrive. Default 30 s. A call whose message is late is answered with
    /// [`DeadlineExceeded`](frpc::Code::DeadlineExceeded). Streams of requests take as long as the deadline of their call.
    pub fn body_time_max(mut self, time_max: Duration) -> Self {
        self.settings.body_time_max = time_max;
        self
    }

    /// Sets how long the head of a request of HTTP/1.1 may take to arrive, and so how long a connection may wait for its next
    /// request. On HTTP/2 this is the time for the first request. Default 30 s. Then the connection is closed.
    pub fn head_time_max(mut self, time_max: Duration) -> Self {
        self.settings.head_time_max = time_max;
        self
    }

    /// Sets the size of the head of a request, as HTTP/2 counts header lists. Default 16 KiB. A larger one is answered with 431, and for
    /// gRPC with [`ResourceExhausted`](frpc::Code::ResourceExhausted). HTTP/2 announces eight times as much to callers, so that a head
    /// that is too large fails alone; one of more than 32 times as much ends its connection.
    /// The metadata of a call is bounded by [`metadata_len_max`](frpc::ServerBuilder::metadata_len_max) besides.
    pub fn head_len_max(mut self, len_max: u32) -> Self {
        self.settings.head_len_max = len_max;
        self
    }

    /// Sets how many requests may be under way on a connection of HTTP/2. Default 256. Callers are told, and wait.
    pub fn streams_max(mut self, streams_max: u32) -> Self {
        self.settings.streams_max = streams_max;
        self
    }

    /// Sets how many requests that were cancelled before anybody looked at them a connection of HTTP/2 may pile up. Default 256,
    /// as many as may be under way: on a busy server, all calls of an honest caller may run out of time before it looks at them. Beyond,
    /// the connection is closed: its peer asks for work only to take it back.
    pub fn resets_max(mut self, resets_max: usize) -> Self {
        self.settings.resets_max = resets_max;
        self
    }

    /// Sets how often a peer is asked whether it is still there, on HTTP/2 and on WebSocket. Default 60 s; `None` never asks.
    pub fn keepalive_interval(mut self, interval: impl Into<Option<Duration>>) -> Self {
        self.settings.keepalive_interval = interval.into();
        self
    }

    /// Sets how long a peer may take to say that it is still there. Default 20 s. Then the connection is closed.
    pub fn keepalive_timeout(mut self, timeout: Duration) -> Self {
        self.settings.keepalive_timeout = timeout;
        self
    }

    /// Has Connect refuse calls that do not say its version, which everything that was made for Connect does. Default off, so that
    /// curl can leave it out.
    pub fn connect_version_required(mut self, is_required: bool) -> Self {
        self.settings.connect_version_required = is_required;
        self
    }

    /// Sets what stands in front of the paths of Twirp. Default `/twirp`. With nothing, requests with `application/protobuf` are of
    /// Twirp, and those with `application/json` if Connect is off.
    pub fn twirp_prefix(mut self, prefix: impl Into<String>) -> Self {
        let prefix: String = prefix.into();
        let prefix = prefix.trim_matches('/');
        self.settings.twirp_prefix = if prefix.is_empty() { String::new() } else { format!("/{prefix}") };
        self
    }

    /// Allows scripts on web pages of other origins to call. Default: browsers keep them from it.
    pub fn cors(mut self, cors: Cors) -> Self {
        self.settings.cors = Some(cors);
        self
    }

    /// Answers requests for these hosts only, each with a port, such as `localhost:8080`, or with any. Default: for all hosts. Requests for
    /// others are answered with 421, whatever their protocol, and so are those for a WebSocket.
    ///
    /// A server that only programs on the same machine or network reach should set it if it asks for no credentials: a web page that anybody
    /// opens can have its own name point to that server (DNS rebinding), and is then of the same origin. The `Host` of its requests gives
    /// it away.
    ///
    /// # Panics
    ///
    /// If one is not a host.
    pub fn allowed_hosts(mut self, hosts: impl IntoIterator<Item = impl AsRef<str>>) -> Self {
        self.settings.hosts = Some(Hosts::new(hosts));
        self
    }

    /// Serves a page at `/` that lists the services and lets a person call their unary methods from a browser, with JSON and by
    /// Connect. Default off: it tells everybody who reaches the port what there is.
    pub fn page(mut self, is_on: bool) -> Self {
        self.settings.page = is_on;
        self
    }

    /// Switches frisbee over WebSocket on or off: the sub-protocol `frpc`, at every path. Default on. Scripts reach it from pages of the
    /// same host, and of the origins that [`cors`](Self::cors) allows.
    pub fn websocket(mut self, is_on: bool) -> Self {
        self.settings.websocket = is_on;
        self
    }

    /// Serves another protocol at a path, such as `/rpc`: all requests to exactly this path are for it. The last one at a path stands.
    /// Names of headers are then written as `Content-Length` over HTTP/1.1, for clients that take no other.
    pub fn mount(mut self, path: impl Into<String>, mount: impl Mount) -> Self {
        self.settings.mounts.add(path.into(), mount);
        self
    }

    /// Sets how long a peer may take none of the bytes that are there for it. Default 60 s. Then the connection is closed, and its
    /// handlers are dropped. On HTTP/2 it is also the time in which a peer has to take 32 KiB of an answer, or the rest of it, by its
    /// windows. Then the stream is reset, and its handler is dropped, whatever else the peer does.
    pub fn standstill_max(mut self, standstill_max: Duration) -> Self {
        self.settings.standstill_max = standstill_max;
        self
    }

    /// Sets how long a call of HTTP/1.1 may run after its peer has closed its side of the connection, behind a whole request. Default 30 s.
    ///
    /// Until then its answer is written, for callers that close their side and go on reading, as `nc` does. A caller that is gone looks the
    /// same, such as `curl` after Ctrl-C: its call is dropped, and [`Head::cancelled`](frpc::Head::cancelled) told, when this time is
    /// over, when its deadline is, or at the first write that fails. With zero, callers that close their side are taken for gone. On HTTP/2
    /// and on WebSocket the end of a connection always means that.
    pub fn half_closed_max(mut self, half_closed_max: Duration) -> Self {
        self.settings.half_closed_max = half_closed_max;
        self
    }

    async fn serve_http1(&self, site: Arc<Site>, socket: Standstill<Raw>, drain: Drain) {
        let socket = socket.with_half_closed_max(self.settings.half_closed_max);
        let Some(socket) = plain::serve(&site, socket, &drain).await else { return };
        let (unread, upgrading, activity) = (Unread::default(), Upgrading::default(), socket.activity().clone());
        let (upgraded, counting) = (upgrading.clone(), activity.clone());
        let service = service_fn(move |mut request: Request<Incoming>| {
            let (site, unread, upgrading) = (site.clone(), unread.clone(), upgrading.clone());
            let underway = counting.begin();
            async move {
                if let Some(response) = serve::refuse_http1(&site, &request) {
                    return Ok(response.map(|body| UntilOver::new(body, underway)));
                }
                if let Some(response) = upgrading.answer(&site, &mut request) {
                    return Ok(response.map(|body| UntilOver::new(body, underway)));
                }
                let (parts, body) = request.into_parts();
                let body = Remainder::of(body, unread.clone());
                let mut response = serve::respond(&site, parts, body).await;
                unread.mark(&mut response);
                Ok::<_, std::convert::Infallible>(response.map(|body| UntilOver::new(body, underway)))
            }
        });
        let connection = http1::Builder::new()
            .timer(TokioTimer::new())
            .header_read_timeout(self.settings.head_time_max)
            .max_header_size(usize::try_from(self.settings.head_len_max).unwrap_or(usize::MAX))
            .title_case_headers(self.settings.has_capitals())
            // The stream looks for the end of the connection instead.
            .half_close(true)
            .serve_connection(TokioIo::new(socket), service)
            .with_upgrades();
        let connection = pin!(connection);
        let ended =
            drive(connection, |ending| ending.graceful_shutdown(), &activity, self.settings.head_time_max, &drain);
        match ended.await {
            Some(Ok(())) => {}
            Some(Err(error)) => debug!(%error, "a connection of HTTP/1.1 ended"),
            None => return debug!("a connection of HTTP/1.1 ended without a request"),
        }
        if let Some(upgrade) = upgraded.take() {
            upgrade.serve(drain).await;
        }
    }

    async fn serve_http2(&self, mut site: Site, mut socket: Standstill<Raw>, drain: Drain) {
        let Settings { head_len_max, head_time_max, streams_max, resets_max, standstill_max, .. } = self.settings;
        let Some(greeting) = read_preface(&mut socket, head_time_max, &drain).await else {
            return debug!("a connection of HTTP/2 ended without a preface");
        };
        site.answer_head_len_max = greeting.head_len_max;
        let (site, activity) = (Arc::new(site), socket.activity().clone());
        let answers = Answers::new(activity.clone(), standstill_max);
        let beginning = answers.clone();
        let service = service_fn(move |request: Request<Incoming>| {
            let (site, progress) = (site.clone(), beginning.begin());
            let (parts, body) = request.into_parts();
            async move {
                let response = match serve::refuse_head(&site, &parts) {
                    Some(refusal) => refusal,
                    None => serve::respond(&site, parts, Unended::of(body)).await,
                };
                Ok::<_, std::convert::Infallible>(response.map(|body| Pieces::new(body, progress)))
            }
        });
        let connection = http2::Builder::new(answers)
            .timer(TokioTimer::new())
            .max_concurrent_streams(streams_max)
            .max_pending_accept_reset_streams(resets_max)
            // hyper ends connections on which larger heads come. Those that are a little too large are refused by themselves.
            .max_header_list_size(head_len_max.saturating_mul(HEAD_LEN_FACTOR))
            .keep_alive_interval(self.settings.keepalive_interval)
            .keep_alive_timeout(self.settings.keepalive_timeout)
            .serve_connection(TokioIo::new(socket), service);
        let connection = pin!(connection);
        let ended = drive(connection, |ending| ending.graceful_shutdown(), &activity, head_time_max, &drain);
        match ended.await {
            Some(Ok(())) => {}
            Some(Err(error)) => debug!(%error, "a connection of HTTP/2 ended"),
            None => debug!("a connection of HTTP/2 ended without a request"),
        }
    }
}

impl Wire for Http {
    fn recognize(&self, first: &[u8], _alpn: Option<&[u8]>) -> Recognized {
        match recognize(first) {
            Seen::Http1 | Seen::Http2 => Recognized::Yes,
            Seen::Undecided => Recognized::More,
            Seen::Other => Recognized::No,
        }
    }

    fn alpn(&self) -> &[&'static [u8]] {
        &[b"h2", b"http/1.1"]
    }

    async fn serve(&self, socket: Raw, endpoint: Endpoint, drain: Drain) {
        let peer = Some(Peer::of(&socket));
        let (account, settings) = (endpoint.connection_account(), self.settings.clone());
        let drained = Some(drain.clone());
        let site = Site { endpoint, settings, account, peer, drain: drained, answer_head_len_max: None };
        let seen = recognize(socket.unread());
        let socket = Standstill::new(socket, self.settings.standstill_max);
        match seen {
            Seen::Http2 => self.serve_http2(site, socket, drain).await,
            _ => self.serve_http1(Arc::new(site), socket, drain).await,
        }
    }
}

/// The version of HTTP that the first bytes of a connection are of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Seen {
    Http1,
    Http2,
    Undecided,
    Other,
}

/// Recognizes the preface of HTTP/2 by the three bytes that no method begins with, and HTTP/1.1 by a method in upper case with a
/// space behind it.
fn recognize(first: &[u8]) -> Seen {
    if first.starts_with(b"PRI") {
        return Seen::Http2;
    }
    let method_len = first.iter().position(|byte| *byte == b' ').unwrap_or(first.len());
    let method = &first[..method_len];
    let is_method = method.iter().all(|byte| matches!(byte, b'A'..=b'Z' | b'-' | b'_'));
    if !is_method || method.first() == Some(&b'-') || method_len > METHOD_LEN_MAX || first.first() == Some(&b' ') {
        Seen::Other
    } else if method_len < first.len() {
        Seen::Http1
    } else {
        Seen::Undecided
    }
}

/// A head that is so many times as large as it may be is refused by itself. Beyond that, up to four times as much, HTTP/2 answers with 431
/// before the head is looked at.
const HEAD_LEN_FACTOR: u32 = 8;

/// The longest registered method has 16 bytes.
const METHOD_LEN_MAX: usize = 32;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn http_is_recognized_byte_by_byte() {
        // The bytes, how many of them are needed, and what they are.
        let known: [(&[u8], usize, Seen); 12] = [
            (b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", 3, Seen::Http2),
            (b"GET / HTTP/1.1\r\n", 4, Seen::Http1),
            (b"POST /a.B/C HTTP/1.1\r\n", 5, Seen::Http1),
            (b"PROPFIND / HTTP/1.1\r\n", 9, Seen::Http1),
            (b"M-SEARCH * HTTP/1.1\r\n", 9, Seen::Http1),
            (b"Content-Length: 5\r\n", 2, Seen::Other),
            (b"\x00\x0f\x00\x00", 1, Seen::Other),
            (b"\x16\x03\x01", 1, Seen::Other),
            (b"{\"jsonrpc\"", 1, Seen::Other),
            (b" GET /", 1, Seen::Other),
            (b"get / HTTP/1.1", 1, Seen::Other),
            (b"GET\r\n", 4, Seen::Other),
        ];
        for (bytes, needed, seen) in known {
            for len in 0..=bytes.len() {
                let expected = if len < needed { Seen::Undecided } else { seen };
                assert_eq!(recognize(&bytes[..len]), expected, "{:?}", bytes[..len].escape_ascii().to_string());
            }
        }
        assert_eq!(recognize(&[b'A'; METHOD_LEN_MAX]), Seen::Undecided);
        assert_eq!(recognize(&[b'A'; METHOD_LEN_MAX + 1]), Seen::Other);
    }
}
