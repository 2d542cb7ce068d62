//! The servers, channels, streams and recent calls of this process, for administration.
//!
//! The crate `frisbee-rpc-admin` shows them as a service, as gRPC's channelz, and as a page.
//!
//! ```
//! frpc::inspect::start_recording();
//! for server in frpc::inspect::servers() {
//!     println!("{} calls", server.methods().iter().map(|method| method.totals.started).sum::<u64>());
//! }
//! for stream in frpc::inspect::open_streams().iter().filter(|stream| stream.blocked.is_some()) {
//!     println!("{} waits for its peer", stream.subject.method.path());
//! }
//! ```

use std::{
    fmt,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError, Weak,
        atomic::{AtomicU64, Ordering},
    },
    time::{Duration, SystemTime},
};

use frisbee::{Address, ConnectionMetrics, FlowState, FrameCounts, ServerObserver};

pub use crate::call::recorder::{
    CallSubject, FAILURES_MAX, OpenStream, RecordedCall, SLOW_KEPT, SLOW_MAX, STREAMS_MAX, open_streams,
    recent_failures, slow_calls, start_recording,
};
use crate::{
    call::meter::CallMeter,
    metrics::{self, MethodMetrics},
};

/// A server of this process. Does not keep it running.
#[derive(Clone)]
pub struct ServerView {
    number: u64,
    observer: ServerObserver,
    meter: Weak<CallMeter>,
    calls: Arc<str>,
}

impl ServerView {
    /// Returns a number of the server, unique among the servers and channels of the process.
    pub fn number(&self) -> u64 {
        self.number
    }

    /// Returns the connections, limits and addresses.
    pub fn observer(&self) -> &ServerObserver {
        &self.observer
    }

    /// Returns the counters of its methods.
    pub fn methods(&self) -> Vec<MethodMetrics> {
        self.meter.upgrade().map(|meter| metrics::methods_of(&meter)).unwrap_or_default()
    }

    /// Returns the settings of its calls, connections and sockets, as text.
    pub fn settings(&self) -> String {
        format!("{}\n{:#?}\n{:#?}", self.calls, self.observer.limits(), self.observer.config())
    }
}

/// A channel of this process, made by a [`ChannelBuilder`](crate::ChannelBuilder). Does not keep it open.
#[derive(Clone)]
pub struct ChannelView {
    number: u64,
    target: Arc<str>,
    made: SystemTime,
    meter: Weak<CallMeter>,
    source: Arc<dyn ChannelSource>,
}

impl ChannelView {
    /// Returns a number of the channel, unique among the servers and channels of the process.
    pub fn number(&self) -> u64 {
        self.number
    }

    /// Returns the target, such as `tcp://10.0.0.7:7300` or `dns:///orders:7300`.
    pub fn target(&self) -> &str {
        &self.target
    }

    /// Returns the time at which the channel was made.
    pub fn made(&self) -> SystemTime {
        self.made
    }

    /// Returns the counters of the methods called by all channels to this target.
    pub fn methods(&self) -> Vec<MethodMetrics> {
        self.meter.upgrade().map(|meter| metrics::methods_of(&meter)).unwrap_or_default()
    }

    /// Returns the servers of the channel. Empty after its end, or before the first answer of a resolver.
    pub fn endpoints(&self) -> Vec<EndpointView> {
        self.source.endpoints()
    }
}

/// A server of a channel.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct EndpointView {
    /// The address.
    pub address: Address,
    /// The zone, if the resolver names one.
    pub zone: Option<Arc<str>>,
    /// The weight set by the resolver.
    pub weight: u32,
    /// The state of the connection.
    pub state: EndpointPhase,
    /// Calls in flight from this channel.
    pub in_flight: u32,
    /// The average time of its recent calls. `None` without one.
    pub latency: Option<Duration>,
    /// Failed attempts to connect since the last connection.
    pub failures: usize,
    /// Recent ejections as an outlier.
    pub ejections: u32,
    /// Its connections and ejections since it joined the channel.
    pub history: EndpointHistory,
    /// The counters and queues of its first connection over frisbee. Over HTTP, the bytes of all open connections, and
    /// their calls as streams.
    pub traffic: Option<ConnectionMetrics>,
    /// The frames of these connections by type, over HTTP/2.
    pub frames: FrameCounts,
    /// The streams and the credit of these connections together, over HTTP/2.
    pub flow: Option<FlowState>,
    /// `true` if these connections use TLS, also that of a WebSocket.
    pub is_secure: bool,
}

/// The past of an endpoint, since it joined its channel. Channels to a single server keep none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct EndpointHistory {
    /// Connections to it.
    pub connects: u64,
    /// Failed attempts to connect.
    pub connects_failed: u64,
    /// Connections closed by the server or lost.
    pub disconnects: u64,
    /// Ejections as an outlier.
    pub ejections: u64,
}

/// The state of an endpoint of a channel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum EndpointPhase {
    /// It gets calls.
    Ready,
    /// There is no connection yet, or no more.
    Connecting,
    /// The last attempt to connect has failed, or the server reports that it does not serve.
    Failing,
    /// It gets no calls for this time, because many of its calls have failed.
    Ejected(Duration),
    /// The server owes the answer to a PING.
    Silent,
}

impl EndpointPhase {
    /// Returns the name in lower case.
    pub fn name(self) -> &'static str {
        match self {
            Self::Ready => "ready",
            Self::Connecting => "connecting",
            Self::Failing => "failing",
            Self::Ejected(_) => "ejected",
            Self::Silent => "silent",
        }
    }
}

/// A channel as seen by the list of all channels.
pub(crate) trait ChannelSource: Send + Sync {
    /// Returns `false` after the end of the channel.
    fn is_open(&self) -> bool;

    /// Returns its servers.
    fn endpoints(&self) -> Vec<EndpointView>;
}

/// Returns the running servers, in the order of their start.
pub fn servers() -> Vec<ServerView> {
    let mut views = views();
    views.servers.retain(|server| server.observer.is_running());
    views.servers.clone()
}

/// Returns the open channels, in the order of their start.
pub fn channels() -> Vec<ChannelView> {
    let mut views = views();
    views.forget_closed();
    views.channels.clone()
}

pub(crate) fn add_server(observer: ServerObserver, meter: Option<&Arc<CallMeter>>, calls: String) {
    metrics::add_transport(observer.clone());
    let meter = meter.map(Arc::downgrade).unwrap_or_default();
    let mut views = views();
    views.servers.retain(|server| server.observer.is_running());
    views.servers.push(ServerView { number: next_number(), observer, meter, calls: calls.into() });
}

pub(crate) fn add_channel(target: &str, meter: Option<&Arc<CallMeter>>, source: impl ChannelSource + 'static) {
    let (meter, target, made) =
        (meter.map(Arc::downgrade).unwrap_or_default(), target.into(), frisbee::clock::time_of_day());
    let mut views = views();
    // Rarely: a process may make and drop a channel per call.
    if views.channels.len() >= views.channels_kept.max(CHANNELS_MIN) {
        views.forget_closed();
        views.channels_kept = 2 * views.channels.len();
    }
    views.channels.push(ChannelView { number: next_number(), target, made, meter, source: Arc::new(source) });
}

struct Views {
    servers: Vec<ServerView>,
    channels: Vec<ChannelView>,
    /// The number of channels at which closed ones are forgotten.
    channels_kept: usize,
}

static VIEWS: Mutex<Views> = Mutex::new(Views { servers: Vec::new(), channels: Vec::new(), channels_kept: 0 });

fn views() -> MutexGuard<'static, Views> {
    VIEWS.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Views {
    fn forget_closed(&mut self) {
        self.channels.retain(|channel| channel.source.is_open());
    }
}

fn next_number() -> u64 {
    static LAST: AtomicU64 = AtomicU64::new(0);
    LAST.fetch_add(1, Ordering::Relaxed) + 1
}

const CHANNELS_MIN: usize = 64;

impl fmt::Debug for ServerView {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ServerView").field("observer", &self.observer).finish_non_exhaustive()
    }
}

impl fmt::Debug for ChannelView {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ChannelView").field("target", &self.target).finish_non_exhaustive()
    }
}
