//! Settings of calls and messages.

use std::time::Duration;

use frisbee::{Dispatch, InvalidSetting};
use tokio::time::Instant;

use crate::{
    call::{
        deadline::{HandlerTime, TimeLimits},
        method::Method,
    },
    codec::{Compression, MemoryBudget, json::Types},
};

/// Settings of a server for the calls that it serves.
///
/// Fields may be added, so `..CallSettings::default()` belongs at the end of a literal.
///
/// ```
/// use frpc::{CallSettings, Server};
///
/// let calls = CallSettings { calls_max: Some(64), ..CallSettings::default() };
/// let server = Server::builder().calls(calls);
/// # let _ = server;
/// ```
#[derive(Clone, Debug)]
pub struct CallSettings {
    /// The number of concurrent unary calls per connection. Default `None`: only the queue and handler settings of the
    /// connection limit them.
    ///
    /// Peers are told the limit: further calls wait on their side, or [fail](crate::CallLimitPolicy::Fail) with
    /// [`CallError::TooManyForPeer`](crate::CallError::TooManyForPeer). Peers over HTTP are not told. A call that arrives
    /// above the limit is refused with [`ResourceExhausted`](crate::Code::ResourceExhausted). Over JSON-RPC it waits.
    /// Streams are limited by [`Config::streams_max`](crate::Config::streams_max).
    ///
    /// Handlers that call each other back and forth over one connection need a limit of at least their nesting depth.
    /// Otherwise the innermost call waits until its time is up.
    pub calls_max: Option<u32>,
    /// The time limits of calls. They apply to any timeout that a caller requests. Default: the caller decides.
    pub times: TimeLimits,
    /// The time limits of calls to single methods, instead of [`times`](Self::times). The last entry for a method
    /// applies. The constant for a method is in the generated module of its service.
    pub method_times: Vec<(&'static Method, TimeLimits)>,
    /// Names of metadata that calls made by handlers inherit from the call they serve, such as a tenant.
    ///
    /// Values set by the handler take precedence. The deadline and the [trace context](crate::TraceContext) are always
    /// inherited, and need no name here. Calls of tasks spawned by the
    /// handler inherit nothing; use [`Inherited`](crate::Inherited) to pass these values to another thread.
    pub inherit_metadata: Vec<String>,
    /// The memory limit for all messages of one connection: messages being received, and requests with their decoded
    /// form while their handlers run. Default 256 MiB. A call above the limit is answered with
    /// [`ResourceExhausted`](crate::Code::ResourceExhausted) and not executed.
    ///
    /// Applies to the HTTP and JSON-RPC wires. Frisbee connections use
    /// [`Config::handlers_len_max`](crate::Config::handlers_len_max) and
    /// [`Config::streams_len_max`](crate::Config::streams_len_max). Not counted: anything below 16 KiB, the decoded
    /// form of messages shorter than 512 bytes, and the decoded form of stream messages.
    pub connection_memory_max: usize,
    /// The memory limit for the messages of all connections, counted like
    /// [`connection_memory_max`](Self::connection_memory_max). Default 1 GiB. Polyglot requests count with their
    /// encoded length, from 64 KiB on.
    pub server_memory_max: usize,
    /// The mode in which handlers of unary calls run on a connection of frisbee or HTTP/2, and those of a
    /// [`router`](crate::ServerBuilder::router). Default [`Dispatch::InPlace`]. Each streaming call is a task.
    ///
    /// HTTP/2 has no order of requests, so [`Dispatch::Ordered`] runs its handlers like [`Dispatch::InPlace`]. A task
    /// over HTTP/2 is dropped with its call.
    ///
    /// Applies to a [`Server`](crate::Server) of this crate. With [`Services`](crate::Services) on a
    /// [`frisbee::Server`], that server decides.
    pub dispatch: Dispatch,
    /// Counts calls for [`metrics`](crate::metrics). Default: yes. It costs 1 to 2 % of the instructions of a small call.
    pub metrics: bool,
}

impl Default for CallSettings {
    fn default() -> Self {
        Self {
            calls_max: None,
            times: TimeLimits::default(),
            method_times: Vec::new(),
            inherit_metadata: Vec::new(),
            connection_memory_max: 256 << 20,
            server_memory_max: 1 << 30,
            dispatch: Dispatch::default(),
            metrics: true,
        }
    }
}

impl CallSettings {
    pub(crate) fn check(&self) -> Result<(), InvalidSetting> {
        let effect = "every call would be refused";
        self.calls_max.map_or(Ok(()), |calls_max| InvalidSetting::refuse_zero("calls_max", &calls_max, effect))
    }

    /// Returns `true` if neither the number nor the time of calls is limited.
    pub(super) fn are_unlimited(&self) -> bool {
        self.calls_max.is_none() && self.times == TimeLimits::default() && self.method_times.is_empty()
    }

    /// Returns the limit of a call to this method, with the timeout requested by its caller.
    pub(crate) fn time_of(
        &self,
        method: &Method,
        timeout: Option<Duration>,
        start: impl FnOnce() -> Instant,
    ) -> Option<HandlerTime> {
        let own = self.method_times.iter().rfind(|(own, _)| *own == method);
        own.map_or(self.times, |(_, times)| *times).of(method.kind, timeout, start)
    }
}

/// Settings of a server or a channel for the messages that it receives.
///
/// Fields may be added, so `..MessageSettings::default()` belongs at the end of a literal.
#[derive(Clone, Debug)]
pub struct MessageSettings {
    /// The memory limit for one decoded message of a peer, in any format. Default [`MemoryBudget`]: 128 MiB, or more if
    /// messages may be longer than 4 MiB.
    ///
    /// A call above the limit is answered with [`ResourceExhausted`](crate::Code::ResourceExhausted) and its message is
    /// not decoded. Polyglot and JSON also limit the memory per byte of input. On a channel, the limit covers responses
    /// ([`Channel::with_message_memory_max`](crate::Channel::with_message_memory_max)) and requests of the server.
    pub message_memory_max: MemoryBudget,
    /// The maximum size of the metadata of a call, as counted by [`Metadata::size`](crate::Metadata::size) plus two
    /// bytes per value. Default 8 KiB, at most 65 535.
    ///
    /// A larger call is answered with [`ResourceExhausted`](crate::Code::ResourceExhausted). Peers are told the limit,
    /// so a larger call usually fails before it is sent. On a channel, the limit covers calls from the server.
    pub metadata_len_max: usize,
    /// Accepts messages that lose values because the peer uses another version of the proto file. Default: no.
    ///
    /// Examples: numbers out of range here (`int64` at the peer and `int32` here: 2^40 becomes 0), and lists of entries
    /// decoded as maps here. Calls of such methods fail with
    /// [`FailedPrecondition`](crate::Code::FailedPrecondition) before anything is sent. The reading side decides: a
    /// server for requests, a caller for responses. The caller logs the method and the field in both cases, when a
    /// client is created or at the first call.
    ///
    /// Only Rust callers over frisbee compare proto files. This setting does not affect other callers.
    pub accept_narrowing: bool,
    /// Types of other packages for an `Any` in JSON. Default: none.
    ///
    /// Without them, an `Any` can contain the well-known types, the types of the package of its field, and the types of
    /// packages used there. frisbee-rpc-build generates the function `json_types` for each package;
    /// [`Types::of_packages`] combines several.
    pub any_types: &'static Types,
}

impl Default for MessageSettings {
    fn default() -> Self {
        Self {
            message_memory_max: MemoryBudget::default(),
            metadata_len_max: 8 * 1024,
            accept_narrowing: false,
            any_types: Types::WELL_KNOWN,
        }
    }
}

/// Settings of a server or a channel for compressed messages.
///
/// Fields may be added, so `..CompressionSettings::default()` belongs at the end of a literal.
///
/// ```
/// # #[cfg(feature = "zstd")]
/// # async fn example() -> Result<(), Box<dyn std::error::Error>> {
/// use frpc::{Channel, CompressionSettings, codec::Compression};
///
/// let compression = CompressionSettings { send: vec![Compression::Zstd], ..CompressionSettings::default() };
/// let channel = Channel::builder().compression(compression).connect("tcp://localhost:7300").await?;
/// # let _ = channel;
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct CompressionSettings {
    /// The algorithms for messages to peers, in order of preference. Default: none, so nothing is compressed.
    ///
    /// A peer gets the first algorithm that it accepts. Only messages of at least [`len_min`](Self::len_min) bytes are
    /// compressed, and only if they get shorter. Plain peers, such as Go clients, never get compressed messages.
    /// Received messages need no setting: the features of this crate decide which algorithms are accepted.
    ///
    /// Compression runs on the task of the handler. The length of a compressed message reveals something about its
    /// content: do not compress secrets together with data chosen by others.
    pub send: Vec<Compression>,
    /// The minimum length of messages to compress. Default 1 KiB: below it, compression saves less than one TCP
    /// segment.
    pub len_min: usize,
    /// The maximum number of inflated bytes held per connection. Default 32 MiB. At 0, peers are told not to compress.
    ///
    /// A message counts while its handler runs; stream messages compressed together count until the next ones are
    /// requested. A single message always fits if no other counts;
    /// [`Config::content_len_max`](crate::Config::content_len_max) bounds its inflated length. A call above the limit
    /// waits up to [`Config::handlers_stall_max`](crate::Config::handlers_stall_max), then fails with
    /// [`ResourceExhausted`](crate::Code::ResourceExhausted). A stream fails immediately. Unary answers do not count,
    /// because they go to their callers immediately.
    ///
    /// Inflating runs on the task of the handler and may take as long as one message of the maximum length needs.
    pub inflated_len_max: usize,
}

impl Default for CompressionSettings {
    fn default() -> Self {
        Self { send: Vec::new(), len_min: 1024, inflated_len_max: 32 * 1024 * 1024 }
    }
}

impl CompressionSettings {
    /// Returns `true` if any algorithm is enabled for sending.
    pub(crate) fn compresses(&self) -> bool {
        !self.send.is_empty()
    }

    /// Returns the numbers of the algorithms accepted from peers.
    pub(crate) fn accepted(&self) -> Vec<u8> {
        let algorithms = if self.inflated_len_max == 0 { &[] } else { Compression::ALL };
        algorithms.iter().map(|algorithm| algorithm.number()).collect()
    }

    /// Returns the algorithm with this number, if it is accepted from peers.
    pub(crate) fn accepts(&self, number: u8) -> Option<Compression> {
        Compression::of_number(number).filter(|_| self.inflated_len_max > 0)
    }
}
