//! Settings of the JSON-RPC wire.

use std::time::Duration;

use frpc_json::DEPTH_MAX;

use crate::request::MessageLimits;

/// Settings of [`JsonRpc`](crate::JsonRpc).
///
/// Fields may be added, so `..JsonRpcSettings::default()` belongs at the end of a literal.
#[derive(Clone, Debug)]
pub struct JsonRpcSettings {
    /// The maximum length of a message, or of a whole batch. Default 4 MiB.
    ///
    /// A longer message is answered with an error and ends the connection, except over WebSocket. For POST requests and
    /// WebSocket, the limit of the HTTP wire applies too.
    pub message_len_max: usize,
    /// The maximum nesting depth of a message, including the request object. Default 100, at most 127.
    pub depth_max: u32,
    /// Rejects params of service methods with unknown fields or enum values. Default false.
    ///
    /// The error is [`InvalidArgument`](frpc::Code::InvalidArgument) with the path of the first unknown name. By
    /// default unknown names are ignored, and the first one of each method is logged. Functions are not affected,
    /// because they parse their own params.
    pub strict_json: bool,
    /// The maximum number of requests in a batch. Default 100. A longer batch is answered with one error, and none of
    /// it is executed.
    pub batch_len_max: usize,
    /// The maximum total length of the answers of a batch. Default 16 MiB.
    ///
    /// Errors replace the answers above this limit. If it is exceeded before all calls of the batch were started, the
    /// others fail without being executed.
    pub batch_answers_len_max: usize,
    /// Keeps the answers of a batch in the order of its requests. Default true. Otherwise they appear in the order of
    /// completion.
    pub batches_in_order: bool,
    /// The maximum number of calls in flight on a connection. Default 256; 0 counts as 1.
    ///
    /// At the limit, the connection is not read. [`CallSettings::calls_max`](frpc::CallSettings::calls_max) of the server
    /// applies too, and [`handlers_max`](frpc::ServerLimits::handlers_max) over all connections. A batch counts as its number of calls: it starts when there is room
    /// for all of them, or when no other call is in flight.
    pub calls_max: usize,
    /// The maximum total length of the messages of calls in flight, above which no call is started. Default 16 MiB.
    pub calls_len_max: usize,
    /// The maximum duration of a call. Default `None`: the server's [`TimeLimits`](frpc::TimeLimits).
    ///
    /// On expiry the call is dropped, and its caller receives [`DeadlineExceeded`](frpc::Code::DeadlineExceeded).
    pub call_time_max: Option<Duration>,
    /// The maximum number of subscriptions of a connection. Default 64. Further ones are refused.
    pub subscriptions_max: usize,
    /// The maximum length of unread answers and notifications. Default 1 MiB. At the limit the connection is not read,
    /// and its subscriptions are not polled.
    pub answers_len_max: usize,
    /// The maximum time for a message to arrive completely, counted from its first byte. Default 30 s.
    ///
    /// It also limits the time from the start of a connection to the end of its first message. On expiry the peer
    /// receives an error, and the connection is closed. For POST requests, the HTTP wire has its own setting. On a
    /// WebSocket, pings detect dead peers instead: its handshake was a complete message.
    pub message_time_max: Duration,
    /// The maximum idle time of a connection without calls and subscriptions. Default `None`: unlimited.
    ///
    /// The connection is closed after one to two times this duration. For HTTP and WebSocket, the HTTP wire has its own
    /// settings.
    pub idle_max: Option<Duration>,
    /// The maximum time without write progress while answers are queued. Default 60 s.
    ///
    /// Then the connection is closed, and its calls are dropped. For HTTP and WebSocket, the HTTP wire has its own
    /// setting.
    pub write_stall_max: Duration,
    /// The maximum duration of calls after their peer has closed its side of a TCP connection. Default 30 s.
    ///
    /// Some peers, such as `nc`, close their side after sending their input and still read the answers. A dead peer
    /// looks the same, so the connection is then closed and its calls are dropped.
    pub half_closed_max: Duration,
}

impl JsonRpcSettings {
    /// Returns the settings with limits inside the bounds of this implementation.
    pub(crate) fn within_bounds(self) -> Self {
        Self {
            depth_max: self.depth_max.min(DEPTH_MAX),
            calls_max: self.calls_max.max(1),
            calls_len_max: self.calls_len_max.max(1),
            answers_len_max: self.answers_len_max.max(1),
            ..self
        }
    }

    pub(crate) fn limits(&self) -> MessageLimits {
        let Self { depth_max, batch_len_max, message_len_max, .. } = *self;
        MessageLimits { depth_max, batch_len_max, message_len_max }
    }
}

/// The length of input buffered while no further call may start. Reading on lets us notice the end of the connection.
pub(crate) const READ_AHEAD_LEN_MAX: usize = 256 << 10;

impl Default for JsonRpcSettings {
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
            write_stall_max: Duration::from_secs(60),
            half_closed_max: Duration::from_secs(30),
        }
    }
}
