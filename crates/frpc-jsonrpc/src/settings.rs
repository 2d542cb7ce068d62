//! Settings of the JSON-RPC wire.

use std::time::Duration;

use crate::request::Limits;

/// Settings of [`JsonRpc`](crate::JsonRpc). Its setters document each field.
#[derive(Clone, Debug)]
pub(crate) struct Settings {
    pub(crate) message_len_max: usize,
    pub(crate) depth_max: u32,
    pub(crate) strict_json: bool,
    pub(crate) batch_len_max: usize,
    pub(crate) batch_answers_len_max: usize,
    pub(crate) batches_in_order: bool,
    pub(crate) calls_max: usize,
    pub(crate) calls_len_max: usize,
    pub(crate) call_time_max: Option<Duration>,
    pub(crate) subscriptions_max: usize,
    pub(crate) answers_len_max: usize,
    pub(crate) message_time_max: Duration,
    pub(crate) idle_max: Option<Duration>,
    pub(crate) standstill_max: Duration,
    pub(crate) half_closed_max: Duration,
}

impl Settings {
    pub(crate) fn limits(&self) -> Limits {
        let Self { depth_max, batch_len_max, message_len_max, .. } = *self;
        Limits { depth_max, batch_len_max, message_len_max }
    }
}

/// The length of input buffered while no further call may start. Reading on lets us notice the end of the connection.
pub(crate) const READ_AHEAD_LEN_MAX: usize = 256 << 10;

impl Default for Settings {
    fn default() -> Self {
        Self {
            message_len_max: 4 << 20,
            depth_max: 100,
            strict_json: false,
            batch_len_max: 100,
            batch_answers_len_max: 16 << 20,
            batches_in_order: true,
            calls_max: 256,
            calls_len_max: 16 << 20,
            call_time_max: None,
            subscriptions_max: 64,
            answers_len_max: 1 << 20,
            message_time_max: Duration::from_secs(30),
            idle_max: None,
            standstill_max: Duration::from_secs(60),
            half_closed_max: Duration::from_secs(30),
        }
    }
}
