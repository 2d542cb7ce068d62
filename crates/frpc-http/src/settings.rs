//! The settings of the HTTP wire.

use std::time::Duration;

pub(crate) use frpc::frisbee::clock::TIME_MAX;

use frpc::InvalidSetting;

use crate::{cors::Cors, hosts::AllowedHosts, mount::MountTable, rest_routes::RestRoutes};

/// Settings of [`Http`](crate::Http).
///
/// A time above a year counts as a year. Fields may be added, so `..HttpSettings::default()` belongs at the end of a
/// literal.
#[derive(Clone, Debug)]
pub struct HttpSettings {
    /// Serves gRPC. Default true.
    pub grpc: bool,
    /// Serves gRPC-Web. Default true.
    pub grpc_web: bool,
    /// Serves Connect. Default true.
    pub connect: bool,
    /// Serves Twirp. Default true.
    pub twirp: bool,
    /// Serves frisbee over WebSocket: the subprotocol `frpc`, at every path. Default true. Scripts may connect from
    /// pages of the same host and of origins allowed by [`cors`](crate::Http::cors).
    pub websocket: bool,
    /// Serves a page at `/` to browse the services and call their unary methods from a browser, with Connect and JSON.
    /// Default false, because the page lists all services to everyone with access to the port.
    pub page: bool,
    /// The path prefix of Twirp. Default `/twirp`.
    ///
    /// With an empty prefix, requests with `application/protobuf` belong to Twirp. Those with `application/json` belong
    /// to it only if Connect is off.
    pub twirp_prefix: String,
    /// Refuses Connect calls without the protocol version. All Connect clients send it. Default false, so that curl can
    /// omit it.
    pub connect_version_required: bool,
    /// Refuses JSON requests with unknown fields or enum names. Default false.
    ///
    /// Such a call fails with [`InvalidArgument`](frpc::Code::InvalidArgument) and the path of the first unknown name.
    /// By default they are ignored, as Connect requires, and the first one of each method is logged. A
    /// [mounted](crate::Http::mount) protocol has its own setting.
    pub strict_json: bool,
    /// Compresses responses with gzip for every caller that accepts it. Default: only for callers that compress their
    /// requests.
    ///
    /// The length of a compressed message reveals something about its content. Do not compress secrets together with
    /// data that an attacker can choose.
    pub send_compressed: bool,
    /// The minimum length of messages to compress. Default 1 KiB.
    pub compression_len_min: usize,
    /// The maximum length of a request message, before and after decompression. Default 4 MiB. Calls with a longer
    /// message fail with [`ResourceExhausted`](frpc::Code::ResourceExhausted).
    pub message_len_max: usize,
    /// The maximum size of a request head, as HTTP/2 counts header lists. Default 16 KiB.
    ///
    /// A larger head is answered with 431, and for gRPC with [`ResourceExhausted`](frpc::Code::ResourceExhausted).
    /// HTTP/2 announces eight times this limit to callers. A larger head is answered with 431 in every protocol, and a
    /// compressed head above that ends its connection.
    /// [`metadata_len_max`](frpc::MessageSettings::metadata_len_max) also limits the metadata of a call.
    pub head_len_max: u32,
    /// The maximum time for the head of an HTTP/1.1 request to arrive, including the idle time before it. Default 30 s.
    ///
    /// On HTTP/2, this is the time until the first request. The connection is closed when the time is over.
    pub head_time_max: Duration,
    /// The maximum time for the message of a request to arrive. Default 30 s. A late call fails with
    /// [`DeadlineExceeded`](frpc::Code::DeadlineExceeded). Request streams are limited only by the deadline of their
    /// call.
    pub body_time_max: Duration,
    /// The maximum number of requests in flight on an HTTP/2 connection. Default 256. Callers know the limit and wait.
    pub streams_max: u32,
    /// The maximum number of requests on an HTTP/2 connection that were cancelled before they were processed. Default
    /// 256.
    ///
    /// The connection is closed above this limit. It protects from peers that start requests only to cancel them.
    pub resets_max: usize,
    /// The interval of keepalive pings on HTTP/2 and WebSocket. Default 60 s; `None` disables them.
    pub keepalive_interval: Option<Duration>,
    /// The maximum time for a peer to answer a keepalive ping before its connection is closed. Default 20 s.
    pub keepalive_timeout: Duration,
    /// The maximum time for which a peer accepts no bytes although some are ready to be sent. Default 60 s. The
    /// connection is then closed, and its handlers are dropped.
    ///
    /// On HTTP/2, a peer must also open its windows for 32 KiB of a response, or for the rest of it, within this time.
    /// The stream is reset otherwise, and its handler is dropped, even if the peer is active on other streams.
    pub write_stall_max: Duration,
    /// The maximum time for an HTTP/1.1 call after its caller has closed its side of the connection. Default 30 s.
    ///
    /// The setting applies once the whole request has arrived. Some callers, such as `nc`, close their side and still
    /// read the response. A caller that has gone, such as `curl` after Ctrl-C, looks the same. Its call is dropped, and
    /// [`Head::cancelled`](frpc::Head::cancelled) completes, after this time, at its deadline, or at the first failed
    /// write. With zero, callers that close their side count as gone. On HTTP/2 and on WebSocket, the end of a
    /// connection always means that its caller is gone.
    pub half_closed_max: Duration,
}

impl Default for HttpSettings {
    fn default() -> Self {
        Self {
            grpc: true,
            grpc_web: true,
            connect: true,
            twirp: true,
            websocket: true,
            page: false,
            twirp_prefix: "/twirp".to_owned(),
            connect_version_required: false,
            strict_json: false,
            send_compressed: false,
            compression_len_min: 1024,
            message_len_max: 4 * 1024 * 1024,
            head_len_max: 16 * 1024,
            head_time_max: Duration::from_secs(30),
            body_time_max: Duration::from_secs(30),
            streams_max: 256,
            resets_max: 256,
            keepalive_interval: Some(Duration::from_secs(60)),
            keepalive_timeout: Duration::from_secs(20),
            write_stall_max: Duration::from_secs(60),
            half_closed_max: Duration::from_secs(30),
        }
    }
}

impl HttpSettings {
    /// Returns the settings with times inside the bounds of a clock, and with the form of a path for the prefix.
    pub(crate) fn within_bounds(self) -> Self {
        let [head_time_max, body_time_max, keepalive_timeout, write_stall_max, half_closed_max] = [
            self.head_time_max,
            self.body_time_max,
            self.keepalive_timeout,
            self.write_stall_max,
            self.half_closed_max,
        ]
        .map(|time| time.min(TIME_MAX));
        Self {
            twirp_prefix: path_prefix(&self.twirp_prefix),
            head_time_max,
            body_time_max,
            keepalive_interval: self.keepalive_interval.map(|time| time.min(TIME_MAX)),
            keepalive_timeout,
            write_stall_max,
            half_closed_max,
            ..self
        }
    }

    /// Returns an error for the first setting that allows no call to be served.
    pub(crate) fn check(&self) -> Result<(), InvalidSetting> {
        let interval = self.keepalive_interval.unwrap_or(TIME_MAX);
        InvalidSetting::refuse_zero("head_len_max", &self.head_len_max, "every request would be refused")?;
        InvalidSetting::refuse_zero("head_time_max", &self.head_time_max, "every request would arrive too late")?;
        InvalidSetting::refuse_zero("body_time_max", &self.body_time_max, "every message would arrive too late")?;
        InvalidSetting::refuse_zero("streams_max", &self.streams_max, "every call over HTTP/2 would wait forever")?;
        InvalidSetting::refuse_zero("keepalive_interval", &interval, "pings would be sent without end")?;
        InvalidSetting::refuse_zero("keepalive_timeout", &self.keepalive_timeout, "every silent peer would be lost")?;
        InvalidSetting::refuse_zero("write_stall_max", &self.write_stall_max, "every slow peer would be lost")
    }

    /// Returns how long the single message of a call with this timeout may take to arrive.
    pub(crate) fn body_time(&self, time: Option<Duration>) -> Duration {
        time.map_or(self.body_time_max, |time| time.min(self.body_time_max))
    }
}

/// The parts of [`Http`](crate::Http) with setters of their own.
#[derive(Clone, Debug, Default)]
pub(crate) struct Additions {
    pub(crate) cors: Option<Cors>,
    pub(crate) hosts: Option<AllowedHosts>,
    pub(crate) mounts: MountTable,
    pub(crate) rest: RestRoutes,
}

impl Additions {
    /// Returns `true` if HTTP/1.1 header names are written with capitals, as in `Content-Length`.
    ///
    /// This is the case if anything is mounted: UCall clients, which use a mount for JSON-RPC, accept no other
    /// spelling.
    pub(crate) fn has_capitals(&self) -> bool {
        !self.mounts.is_empty()
    }
}

/// Returns a path prefix with one slash before it and none after it, or an empty one.
pub(crate) fn path_prefix(prefix: &str) -> String {
    let prefix = prefix.trim_matches('/');
    if prefix.is_empty() { String::new() } else { format!("/{prefix}") }
}
