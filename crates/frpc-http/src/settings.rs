//! The settings of the wire.

use std::time::Duration;

/// The settings of [`Http`](crate::Http), which documents them.
#[derive(Clone, Debug)]
pub(crate) struct Settings {
    pub(crate) grpc: bool,
    pub(crate) grpc_web: bool,
    pub(crate) connect: bool,
    pub(crate) twirp: bool,
    pub(crate) message_len_max: usize,
    pub(crate) compression_len_min: usize,
    pub(crate) send_compressed: bool,
    pub(crate) body_time_max: Duration,
    pub(crate) head_time_max: Duration,
    pub(crate) head_len_max: u32,
    pub(crate) streams_max: u32,
    pub(crate) resets_max: usize,
    pub(crate) keepalive_interval: Option<Duration>,
    pub(crate) keepalive_timeout: Duration,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            grpc: true,
            grpc_web: true,
            connect: true,
            twirp: true,
            message_len_max: 4 * 1024 * 1024,
            compression_len_min: 1024,
            send_compressed: false,
            body_time_max: Duration::from_secs(30),
            head_time_max: Duration::from_secs(30),
            head_len_max: 16 * 1024,
            streams_max: 256,
            resets_max: 20,
            keepalive_interval: Some(Duration::from_secs(60)),
            keepalive_timeout: Duration::from_secs(20),
        }
    }
}
