//! The HTTP wire: HTTP connections on the port of a server.

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

/// HTTP as a wire of a [`Server`](frpc::Server): its services for callers of gRPC, gRPC-Web, Connect and Twirp, over
/// HTTP/2 and HTTP/1.1.
///
/// The first bytes of a connection decide its HTTP version. The content type and the path of a request decide its
/// protocol. Connections other than HTTP are left to the other wires of the server and to frisbee.
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
/// The messages of a connection, including partly received ones, use at most
/// [`connection_memory_max`](frpc::ServerBuilder::connection_memory_max) of memory. All connections together use at
/// most [`server_memory_max`](frpc::ServerBuilder::server_memory_max).
///
/// A connection holds at most [`streams_max`](Self::streams_max) requests, each with a head of
/// [`head_len_max`](Self::head_len_max) and one partly received message of [`message_len_max`](Self::message_len_max).
/// Unread bytes are limited by the HTTP/2 windows to 1 MiB for all requests of a connection, and on HTTP/1.1 to 64 KiB
/// after the request in progress. The deadline of the caller and [`Times`](frpc::Times) limit the handlers.
#[derive(Clone, Debug, Default)]
pub struct Http {
    pub(crate) settings: Settings,
}

impl Http {
    /// Creates a wire with all protocols enabled and the default limits.
    pub fn new() -> Self {
        Self::default()
    }

    /// Enables or disables gRPC. Default on.
    pub fn grpc(mut self, is_on: bool) -> Self {
        self.settings.grpc = is_on;
        self
    }

    /// Enables or disables gRPC-Web. Default on.
    pub fn grpc_web(mut self, is_on: bool) -> Self {
        self.settings.grpc_web = is_on;
        self
    }

    /// Enables or disables Connect. Default on.
    pub fn connect(mut self, is_on: bool) -> Self {
        self.settings.connect = is_on;
        self
    }

    /// Enables or disables Twirp. Default on.
    pub fn twirp(mut self, is_on: bool) -> Self {
        self.settings.twirp = is_on;
        self
    }

    /// Sets the maximum length of a request message, before and after decompression. Default 4 MiB. Calls with a longer
    /// message fail with [`ResourceExhausted`](frpc::Code::ResourceExhausted).
    pub fn message_len_max(mut self, message_len_max: usize) -> Self {
        self.settings.message_len_max = message_len_max;
        self
    }

    /// Refuses JSON requests with unknown fields or enum names. Default off.
    ///
    /// Such a call fails with [`InvalidArgument`](frpc::Code::InvalidArgument) and the path of the first unknown name.
    /// By default they are ignored, as Connect requires, and the first one of each method is logged. A
    /// [mounted](Self::mount) protocol has its own setting.
    pub fn strict_json(mut self, is_strict: bool) -> Self {
        self.settings.strict_json = is_strict;
        self
    }

    /// Compresses responses with gzip for every caller that accepts it. Default: only for callers that compress their
    /// requests.
    ///
    /// The length of a compressed message reveals something about its content. Do not compress secrets together with
    /// data that an attacker can choose.
    pub fn send_compressed(mut self, is_on: bool) -> Self {
        self.settings.send_compressed = is_on;
        self
    }

    /// Sets the minimum length of messages to compress. Default 1 KiB.
    pub fn compression_len_min(mut self, len_min: usize) -> Self {
        self.settings.compression_len_min = len_min;
        self
    }

    /// Sets how long the message of a request may take to arrive. Default 30 s. A late call fails with
    /// [`DeadlineExceeded`](frpc::Code::DeadlineExceeded). Request streams are limited only by the deadline of their
    /// call.
    pub fn body_time_max(mut self, time_max: Duration) -> Self {
        self.settings.body_time_max = time_max;
        self
    }

    /// Sets how long the head of an HTTP/1.1 request may take to arrive, including the idle time before it. Default 30
    /// s.
    ///
    /// On HTTP/2, this is the time until the first request. The connection is closed when the time is over.
    pub fn head_time_max(mut self, time_max: Duration) -> Self {
        self.settings.head_time_max = time_max;
        self
    }

    /// Sets the maximum size of a request head, as HTTP/2 counts header lists. Default 16 KiB.
    ///
    /// A larger head is answered with 431, and for gRPC with [`ResourceExhausted`](frpc::Code::ResourceExhausted).
    /// HTTP/2 announces eight times this limit to callers, so that only the request with the large head fails. A head
    /// of more than 32 times the limit ends its connection. [`metadata_len_max`](frpc::ServerBuilder::metadata_len_max)
    /// also limits the metadata of a call.
    pub fn head_len_max(mut self, len_max: u32) -> Self {
        self.settings.head_len_max = len_max;
        self
    }

    /// Sets the maximum number of requests in flight on an HTTP/2 connection. Default 256. Callers know the limit and
    /// wait.
    pub fn streams_max(mut self, streams_max: u32) -> Self {
        self.settings.streams_max = streams_max;
        self
    }

    /// Sets the maximum number of requests on an HTTP/2 connection that were cancelled before they were processed.
    /// Default 20.
    ///
    /// The connection is closed above this limit. It protects from peers that start requests only to cancel them.
    pub fn resets_max(mut self, resets_max: usize) -> Self {
        self.settings.resets_max = resets_max;
        self
    }

    /// Sets the interval of keepalive pings on HTTP/2 and WebSocket. Default 60 s; `None` disables them.
    pub fn keepalive_interval(mut self, interval: impl Into<Option<Duration>>) -> Self {
        self.settings.keepalive_interval = interval.into();
        self
    }

    /// Sets how long a peer may take to answer a keepalive ping before its connection is closed. Default 20 s.
    pub fn keepalive_timeout(mut self, timeout: Duration) -> Self {
        self.settings.keepalive_timeout = timeout;
        self
    }

    /// Refuses Connect calls without the protocol version. All Connect clients send it. Default off, so that curl can
    /// omit it.
    pub fn connect_version_required(mut self, is_required: bool) -> Self {
        self.settings.connect_version_required = is_required;
        self
    }

    /// Sets the path prefix of Twirp. Default `/twirp`.
    ///
    /// With an empty prefix, requests with `application/protobuf` belong to Twirp. Those with `application/json` belong
    /// to it only if Connect is off.
    pub fn twirp_prefix(mut self, prefix: impl Into<String>) -> Self {
        let prefix: String = prefix.into();
        let prefix = prefix.trim_matches('/');
        self.settings.twirp_prefix = if prefix.is_empty() { String::new() } else { format!("/{prefix}") };
        self
    }

    /// Allows scripts on web pages of other origins to make calls. By default, browsers block them.
    pub fn cors(mut self, cors: Cors) -> Self {
        self.settings.cors = Some(cors);
        self
    }

    /// Accepts requests for these hosts only, with a port such as `localhost:8080`, or without one for any port.
    /// Default: all hosts.
    ///
    /// Requests for other hosts are answered with 421 in every protocol, including WebSocket upgrades.
    ///
    /// Use this setting for a server without credentials that only programs on the same machine or network can reach.
    /// Any web page can otherwise point its own host name to that server (DNS rebinding) and count as the same origin.
    /// The `Host` header of its requests reveals the attack.
    ///
    /// # Panics
    ///
    /// If a value is not a host with an optional port.
    pub fn allowed_hosts(mut self, hosts: impl IntoIterator<Item = impl AsRef<str>>) -> Self {
        self.settings.hosts = Some(Hosts::new(hosts));
        self
    }

    /// Serves a page at `/` to browse the services and call their unary methods from a browser, with Connect and JSON.
    /// Default off, because the page lists all services to everyone with access to the port.
    pub fn page(mut self, is_on: bool) -> Self {
        self.settings.page = is_on;
        self
    }

    /// Enables or disables frisbee over WebSocket: the subprotocol `frpc`, at every path. Default on. Scripts may
    /// connect from pages of the same host and of origins allowed by [`cors`](Self::cors).
    pub fn websocket(mut self, is_on: bool) -> Self {
        self.settings.websocket = is_on;
        self
    }

    /// Serves another protocol at a path, such as `/rpc`. It receives all requests for exactly this path.
    ///
    /// A second mount at the same path replaces the first. With any mount, HTTP/1.1 header names are written with
    /// capitals as in `Content-Length`, for clients that accept no other spelling.
    pub fn mount(mut self, path: impl Into<String>, mount: impl Mount) -> Self {
        self.settings.mounts.add(path.into(), mount);
        self
    }

    /// Sets how long a peer may accept no bytes although some are ready to be sent. Default 60 s. The connection is
    /// then closed, and its handlers are dropped.
    ///
    /// On HTTP/2, a peer must also open its windows for 32 KiB of a response, or for the rest of it, within this time.
    /// The stream is reset otherwise, and its handler is dropped, even if the peer is active on other streams.
    pub fn standstill_max(mut self, standstill_max: Duration) -> Self {
        self.settings.standstill_max = standstill_max;
        self
    }

    /// Sets how long an HTTP/1.1 call may continue after its caller has closed its side of the connection. Default 30
    /// s.
    ///
    /// The setting applies once the whole request has arrived. Some callers, such as `nc`, close their side and still
    /// read the response. A caller that has gone, such as `curl` after Ctrl-C, looks the same. Its call is dropped, and
    /// [`Head::cancelled`](frpc::Head::cancelled) completes, after this time, at its deadline, or at the first failed
    /// write. With zero, callers that close their side count as gone. On HTTP/2 and on WebSocket, the end of a
    /// connection always means that its caller is gone.
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
            // The socket wrapper checks for a half-closed connection itself.
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
            // hyper closes connections with larger heads. A head slightly above our limit must fail only its own
            // request.
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

/// The HTTP version recognized from the first bytes of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Seen {
    Http1,
    Http2,
    Undecided,
    Other,
}

/// Recognizes HTTP/2 by `PRI`, three bytes that start no HTTP method, and HTTP/1.1 by an uppercase method and a space.
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

/// A head of up to this many times the limit is refused on its own, by us. Between that and four times as much, the
/// HTTP/2 implementation answers with 431 before we see the head.
const HEAD_LEN_FACTOR: u32 = 8;

/// The longest registered method has 16 bytes.
const METHOD_LEN_MAX: usize = 32;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn http_is_recognized_byte_by_byte() {
        // Bytes, the number of bytes needed to recognize them, and the result.
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
