//! The HTTP wire: HTTP connections on the port of a server.

use std::{error::Error, pin::pin, sync::Arc};

use frpc::{CallCounter, Drain, Endpoint, ProtocolMatch, Raw, Wire, WirePeer};
use futures_util::future::BoxFuture;
use hyper::{Request, body::Incoming, server::conn::http1, service::service_fn};
use hyper_util::rt::{TokioIo, TokioTimer};
use tracing::debug;

use crate::{
    activity::drive,
    cors::Cors,
    hosts::AllowedHosts,
    http2::{self, read_preface},
    mount::Mount,
    plain,
    rest_routes::RestRoutes,
    serve::{self, DiscardOnDrop, GuardedBody, ServeContext, UnreadFlag, UpgradeSlot},
    settings::{Additions, HttpSettings},
    write_timeout::WriteTimeout,
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
/// use frpc_http::{Http, HttpSettings};
///
/// let settings = HttpSettings { twirp: false, body_time_max: Duration::from_secs(10), ..HttpSettings::default() };
/// let server = Server::builder().wire(Http::new().settings(settings));
/// # let _ = server;
/// ```
///
/// # Limits
///
/// The messages of a connection, including partly received ones, use at most
/// [`connection_memory_max`](frpc::CallSettings::connection_memory_max) of memory. All connections together use at
/// most [`server_memory_max`](frpc::CallSettings::server_memory_max).
///
/// A connection holds at most [`streams_max`](HttpSettings::streams_max) requests, each with a head of
/// [`head_len_max`](HttpSettings::head_len_max) and one partly received message of [`message_len_max`](HttpSettings::message_len_max).
/// Unread bytes are limited by the HTTP/2 windows to 1 MiB for a request and 4 MiB for all requests of a connection, and
/// on HTTP/1.1 to 64 KiB after the request in progress. The server limits the unary handlers of frisbee and HTTP together, with
/// [`handlers_max`](frpc::ServerLimits::handlers_max), and the unary calls of a connection with
/// [`calls_max`](frpc::CallSettings::calls_max). The deadline of the caller and [`TimeLimits`](frpc::TimeLimits) limit the handlers.
#[derive(Clone, Debug, Default)]
pub struct Http {
    /// Shared by all connections.
    pub(crate) settings: Arc<HttpSettings>,
    pub(crate) additions: Additions,
}

impl Http {
    /// Creates a wire with all protocols enabled and the default limits.
    pub fn new() -> Self {
        Self::default()
    }

    /// Replaces all settings.
    pub fn settings(mut self, settings: HttpSettings) -> Self {
        self.settings = Arc::new(settings.within_bounds());
        self
    }

    /// Allows scripts on web pages of other origins to make calls. By default, browsers block them.
    pub fn cors(mut self, cors: Cors) -> Self {
        self.additions.cors = Some(cors);
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
        self.additions.hosts = Some(AllowedHosts::new(hosts));
        self
    }

    /// Serves the HTTP methods and paths in the option `google.api.http` of methods, with JSON. Default: off.
    ///
    /// The messages need JSON, so generate them with `frpc_build::configure().rest(true)`. A stream of responses is sent
    /// as JSON lines, `{"result": …}` and at the end of a failed call `{"error": …}`, or as server-sent events if the caller
    /// accepts `text/event-stream`. Errors are JSON of `google.rpc.Status`; the codes have the HTTP statuses of Connect.
    ///
    /// The server does not start if two methods have the same HTTP method and path. Paths of other protocols and mounts
    /// take precedence.
    pub fn rest(mut self) -> Self {
        self.additions.rest = RestRoutes::Wanted;
        self
    }

    /// Serves another protocol at a path, such as `/rpc`. It receives all requests for exactly this path.
    ///
    /// A second mount at the same path replaces the first. With any mount, HTTP/1.1 header names are written with
    /// capitals as in `Content-Length`, for clients that accept no other spelling.
    pub fn mount(mut self, path: impl Into<String>, mount: impl Mount) -> Self {
        self.additions.mounts.add(path.into(), mount);
        self
    }

    async fn serve_http1(&self, site: Arc<ServeContext>, socket: WriteTimeout<Raw>, drain: Drain) {
        let socket = socket.with_half_closed_max(self.settings.half_closed_max);
        let Some(socket) = plain::serve(&site, socket, &drain).await else { return };
        let (unread, upgrading, activity) = (UnreadFlag::default(), UpgradeSlot::default(), socket.activity().clone());
        let (upgraded, counting) = (upgrading.clone(), activity.clone());
        let service = service_fn(move |mut request: Request<Incoming>| {
            let (site, unread, upgrading) = (site.clone(), unread.clone(), upgrading.clone());
            let underway = counting.begin();
            async move {
                if let Some(response) = serve::refuse_http1(&site, &request) {
                    return Ok(response.map(|body| GuardedBody::new(body, underway)));
                }
                if let Some(response) = upgrading.answer(&site, &mut request) {
                    return Ok(response.map(|body| GuardedBody::new(body, underway)));
                }
                let (parts, body) = request.into_parts();
                let body = DiscardOnDrop::of(body, unread.clone());
                let mut response = serve::respond(&site, parts, body).await;
                unread.mark(&mut response);
                Ok::<_, std::convert::Infallible>(response.map(|body| GuardedBody::new(body, underway)))
            }
        });
        let connection = http1::Builder::new()
            .timer(TokioTimer::new())
            .header_read_timeout(self.settings.head_time_max)
            .max_header_size(usize::try_from(self.settings.head_len_max).unwrap_or(usize::MAX))
            .title_case_headers(self.additions.has_capitals())
            // The socket wrapper checks for a half-closed connection itself.
            .half_close(true)
            .serve_connection(TokioIo::new(socket), service)
            .with_upgrades();
        // An upgrade waits until the connection is dropped, or forever if it was lost during its last response.
        let ended = {
            let connection = pin!(connection);
            drive(connection, |ending| ending.graceful_shutdown(), &activity, self.settings.head_time_max, &drain).await
        };
        match ended {
            Some(Ok(())) => {}
            Some(Err(error)) => debug!(%error, "an HTTP/1.1 connection ended"),
            None => return debug!("closed an idle HTTP/1.1 connection"),
        }
        if let Some(upgrade) = upgraded.take() {
            upgrade.serve(drain).await;
        }
    }

    // Arguments are captured, because an `async fn` holds them twice.
    #[cfg(feature = "http2")]
    #[expect(clippy::manual_async_fn, reason = "the future would be larger")]
    fn serve_http2(
        &self,
        mut context: ServeContext,
        mut socket: WriteTimeout<Raw>,
        drain: Drain,
    ) -> impl Future<Output = ()> + Send {
        async move {
            let Some(greeting) = read_preface(&mut socket, self.settings.head_time_max, &drain).await else {
                return debug!("an HTTP/2 connection ended without a preface");
            };
            context.answer_head_len_max = greeting.head_len_max;
            http2::serve(&Arc::new(context), socket, &drain).await;
        }
    }

    #[cfg(not(feature = "http2"))]
    async fn serve_http2(&self, mut site: ServeContext, mut socket: WriteTimeout<Raw>, drain: Drain) {
        let HttpSettings { head_len_max, head_time_max, streams_max, resets_max, write_stall_max, .. } = *self.settings;
        let Some(greeting) = read_preface(&mut socket, head_time_max, &drain).await else {
            return debug!("an HTTP/2 connection ended without a preface");
        };
        site.answer_head_len_max = greeting.head_len_max;
        let (site, activity) = (Arc::new(site), socket.activity().clone());
        let answers = http2::ResponseExecutor::new(activity.clone(), write_stall_max);
        let beginning = answers.clone();
        let service = service_fn(move |request: Request<Incoming>| {
            let (site, progress) = (site.clone(), beginning.begin());
            let (parts, body) = request.into_parts();
            async move {
                let response = match serve::refuse_head(&site, &parts) {
                    Some(refusal) => refusal,
                    None => serve::respond(&site, parts, serve::CompleteBody::of(body)).await,
                };
                Ok::<_, std::convert::Infallible>(response.map(|body| http2::PiecewiseBody::new(body, progress)))
            }
        });
        let connection = hyper::server::conn::http2::Builder::new(answers)
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
            Some(Err(error)) => debug!(%error, "an HTTP/2 connection ended"),
            None => debug!("closed an idle HTTP/2 connection"),
        }
    }
}

impl Wire for Http {
    fn recognize(&self, first: &[u8], _alpn: Option<&[u8]>) -> ProtocolMatch {
        match recognize(first) {
            DetectedVersion::Http1 | DetectedVersion::Http2 => ProtocolMatch::Yes,
            DetectedVersion::Undecided => ProtocolMatch::More,
            DetectedVersion::Other => ProtocolMatch::No,
        }
    }

    fn alpn(&self) -> &[&'static [u8]] {
        &[b"h2", b"http/1.1"]
    }

    fn name(&self) -> &'static str {
        "http"
    }

    fn prepare(&mut self, endpoint: &Endpoint) -> Result<(), Box<dyn Error + Send + Sync>> {
        self.settings.check()?;
        Ok(self.additions.rest.prepare(endpoint)?)
    }

    // Boxed by version: otherwise each connection would take the memory of the largest version.
    fn serve(&self, socket: Raw, endpoint: Endpoint, drain: Drain) -> impl Future<Output = ()> + Send {
        let peer = Some(WirePeer::of(&socket));
        let (account, settings) = (endpoint.connection_account(), self.settings.clone());
        let additions = self.additions.clone();
        let (calls, drained) = (Some(CallCounter::default()), Some(drain.clone()));
        let site = ServeContext {
            endpoint,
            settings,
            additions,
            account,
            peer,
            calls,
            drain: drained,
            answer_head_len_max: None,
        };
        let seen = recognize(socket.unread());
        let socket = WriteTimeout::new(socket, self.settings.write_stall_max);
        let serving: BoxFuture<'_, ()> = match seen {
            DetectedVersion::Http2 => Box::pin(self.serve_http2(site, socket, drain)),
            _ => Box::pin(self.serve_http1(Arc::new(site), socket, drain)),
        };
        serving
    }
}

/// The HTTP version recognized from the first bytes of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum DetectedVersion {
    Http1,
    Http2,
    Undecided,
    Other,
}

/// Recognizes HTTP/2 by `PRI`, three bytes that start no HTTP method, and HTTP/1.1 by an uppercase method and a space.
fn recognize(first: &[u8]) -> DetectedVersion {
    if first.starts_with(b"PRI") {
        return DetectedVersion::Http2;
    }
    let method_len = first.iter().position(|byte| *byte == b' ').unwrap_or(first.len());
    let method = &first[..method_len];
    let is_method = method.iter().all(|byte| matches!(byte, b'A'..=b'Z' | b'-' | b'_'));
    if !is_method || method.first() == Some(&b'-') || method_len > METHOD_LEN_MAX || first.first() == Some(&b' ') {
        DetectedVersion::Other
    } else if method_len < first.len() {
        DetectedVersion::Http1
    } else {
        DetectedVersion::Undecided
    }
}

#[cfg(not(feature = "http2"))]
/// A request with a head of up to this many times the limit reaches us, and only this request is refused. The HTTP/2
/// implementation itself answers heads of up to four times that size with 431.
const HEAD_LEN_FACTOR: u32 = 8;

/// The longest registered method has 16 bytes.
const METHOD_LEN_MAX: usize = 32;

#[cfg(test)]
mod tests {
    use super::*;

    #[cfg(feature = "http2")]
    #[test]
    fn the_future_of_an_http2_connection_is_small() {
        fn size_of_future<A, B, C, D, F>(_: impl FnOnce(A, B, C, D) -> F) -> usize {
            size_of::<F>()
        }
        let len = size_of_future(Http::serve_http2);
        assert!(len <= 2_576, "{len} bytes per connection");
    }

    #[test]
    fn http_is_recognized_byte_by_byte() {
        // Bytes, the number of bytes needed to recognize them, and the result.
        let known: [(&[u8], usize, DetectedVersion); 12] = [
            (b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", 3, DetectedVersion::Http2),
            (b"GET / HTTP/1.1\r\n", 4, DetectedVersion::Http1),
            (b"POST /a.B/C HTTP/1.1\r\n", 5, DetectedVersion::Http1),
            (b"PROPFIND / HTTP/1.1\r\n", 9, DetectedVersion::Http1),
            (b"M-SEARCH * HTTP/1.1\r\n", 9, DetectedVersion::Http1),
            (b"Content-Length: 5\r\n", 2, DetectedVersion::Other),
            (b"\x00\x0f\x00\x00", 1, DetectedVersion::Other),
            (b"\x16\x03\x01", 1, DetectedVersion::Other),
            (b"{\"jsonrpc\"", 1, DetectedVersion::Other),
            (b" GET /", 1, DetectedVersion::Other),
            (b"get / HTTP/1.1", 1, DetectedVersion::Other),
            (b"GET\r\n", 4, DetectedVersion::Other),
        ];
        for (bytes, needed, seen) in known {
            for len in 0..=bytes.len() {
                let expected = if len < needed { DetectedVersion::Undecided } else { seen };
                assert_eq!(recognize(&bytes[..len]), expected, "{:?}", bytes[..len].escape_ascii().to_string());
            }
        }
        assert_eq!(recognize(&[b'A'; METHOD_LEN_MAX]), DetectedVersion::Undecided);
        assert_eq!(recognize(&[b'A'; METHOD_LEN_MAX + 1]), DetectedVersion::Other);
    }
}
