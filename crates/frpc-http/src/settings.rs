//! The settings of the HTTP wire.

use std::time::Duration;

use crate::{cors::Cors, hosts::Hosts, mount::Mounts};

/// The settings of [`Http`](crate::Http). Its methods document them.
#[derive(Clone, Debug)]
pub(crate) struct Settings {
    pub(crate) grpc: bool,
    pub(crate) grpc_web: bool,
    pub(crate) connect: bool,
    pub(crate) twirp: bool,
    pub(crate) message_len_max: usize,
    pub(crate) strict_json: bool,
    pub(crate) compression_len_min: usize,
    pub(crate) send_compressed: bool,
    pub(crate) body_time_max: Duration,
    pub(crate) head_time_max: Duration,
    pub(crate) head_len_max: u32,
    pub(crate) streams_max: u32,
    pub(crate) resets_max: usize,
    pub(crate) keepalive_interval: Option<Duration>,
    pub(crate) keepalive_timeout: Duration,
    pub(crate) standstill_max: Duration,
    pub(crate) half_closed_max: Duration,
    pub(crate) connect_version_required: bool,
    pub(crate) twirp_prefix: String,
    pub(crate) cors: Option<Cors>,
    pub(crate) hosts: Option<Hosts>,
    pub(crate) page: bool,
    pub(crate) mounts: Mounts,
    pub(crate) websocket: bool,
}

impl Settings {
    /// Returns `true` if HTTP/1.1 header names are written with capitals, as in `Content-Length`.
    ///
    /// This is the case if anything is mounted: UCall clients, which use a mount for JSON-RPC, accept no other
    /// spelling.
    pub(crate) fn has_capitals(&self) -> bool {
        !self.mounts.is_empty()
    }

    /// Returns how long the single message of a call with this timeout may take to arrive.
    pub(crate) fn body_time(&self, time: Option<Duration>) -> Duration {
        time.map_or(self.body_time_max, |time| time.min(self.body_time_max))
    }
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            grpc: true,
            grpc_web: true,
            connect: true,
            twirp: true,
            message_len_max: 4 * 1024 * 1024,
            strict_json: false,
            compression_len_min: 1024,
            send_compressed: false,
            body_time_max: Duration::from_secs(30),
            head_time_max: Duration::from_secs(30),
            head_len_max: 16 * 1024,
            streams_max: 256,
            resets_max: 256,
            keepalive_interval: Some(Duration::from_secs(60)),
            keepalive_timeout: Duration::from_secs(20),
            standstill_max: Duration::from_secs(60),
            half_closed_max: Duration::from_secs(30),
            connect_version_required: false,
            twirp_prefix: "/twirp".to_owned(),
            cors: None,
            hosts: None,
            page: false,
            mounts: Mounts::default(),
            websocket: true,
        }
    }
}
