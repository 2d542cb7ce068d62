//! Counters of the calls of this process, for tests, Prometheus and OpenTelemetry.
//!
//! Servers and channels count by default ([`CallSettings::metrics`](crate::CallSettings::metrics),
//! [`ChannelCallSettings::metrics`](crate::ChannelCallSettings::metrics)). Each thread has its own counters, so counting takes
//! no lock and no atomic read-modify-write instruction. [`Server::metrics`](crate::Server::metrics) and [`Channel::metrics`](crate::Channel::metrics) read
//! the counters of one server or target, [`MetricsSnapshot::take`] all of them.
//!
//! ```
//! use frpc::metrics::{MetricsSnapshot, TextFormat};
//!
//! let snapshot = MetricsSnapshot::take();
//! println!("{}", snapshot.to_text(TextFormat::Prometheus));
//! ```
//!
//! The number of time series is bounded: methods that a server does not have count as `_OTHER`, and so do targets above
//! [`TARGETS_MAX`]. A client cannot create time series.

use std::{
    collections::BTreeMap,
    fmt,
    ops::Deref,
    sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError},
};

pub use crate::call::connects::ConnectTotals;
pub use frpc_metrics::{
    CallTotals, DurationHistogram, MetricFamily, MetricKind, MetricPoint, MetricValue, TextFormat, add_source,
    bucket_bound, source_families, write_text,
};

use frisbee::{FrameCounts, ServerObserver};
use frpc_balance::OutlierMethod;

use crate::{
    RpcSystem,
    call::{meter::CallMeter, method::Method, status::Code},
};

/// The counters of one method, called over wires of one system.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct MethodMetrics {
    /// The full name, such as `package.Service/Method`, or `_OTHER` for unknown methods.
    pub method: String,
    /// The target of the channels. `None` on a server.
    pub target: Option<Arc<str>>,
    /// The kind of the wire: `rpc.system.name`.
    pub system: RpcSystem,
    /// The counters.
    pub totals: CallTotals,
}

/// The counters of a [`Server`](crate::Server). Dereferences to the counters of its connections.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct ServerMetrics {
    /// The called methods, sorted by name and system.
    pub methods: Vec<MethodMetrics>,
    /// The connections of all wires.
    pub transport: frisbee::ServerMetrics,
}

impl ServerMetrics {
    /// Returns the counters of a method, such as `package.Service/Method`, over all wires. Zeros if it was never called.
    pub fn method(&self, name: &str) -> CallTotals {
        let mut totals = CallTotals::default();
        self.methods.iter().filter(|found| found.method == name).for_each(|found| totals.add(&found.totals));
        totals
    }
}

impl Deref for ServerMetrics {
    type Target = frisbee::ServerMetrics;

    fn deref(&self) -> &Self::Target {
        &self.transport
    }
}

/// The counters of this process at one time.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct MetricsSnapshot {
    /// The methods of all servers, including servers that have ended. Methods with the same name share an entry.
    pub served: Vec<MethodMetrics>,
    /// The methods called by all channels, per target.
    pub called: Vec<MethodMetrics>,
    /// The connections of the channels to several servers, per target.
    pub connects: BTreeMap<Arc<str>, ConnectTotals>,
    /// The frames of the channels' connections over HTTP/2, per target. Closed connections included.
    pub frames: BTreeMap<Arc<str>, FrameCounts>,
    /// The connections of all servers. Counters include servers that have ended.
    pub transport: frisbee::ServerMetrics,
    /// The metrics of [added sources](add_source), such as brokers.
    pub sources: Vec<MetricFamily>,
}

/// The counters of methods, by name and system.
type MethodTotals = BTreeMap<(String, RpcSystem), CallTotals>;

/// Returns the counters of each method of a meter, sorted by name and system.
pub(crate) fn methods_of(meter: &CallMeter) -> Vec<MethodMetrics> {
    let mut methods = MethodTotals::new();
    add_methods(meter, &mut methods);
    listed(methods, meter.target())
}

fn add_methods(meter: &CallMeter, methods: &mut MethodTotals) {
    for (method, system, totals) in meter.totals() {
        let name = method.map_or_else(|| OTHER.to_owned(), Method::path);
        methods.entry((name, system)).or_default().add(&totals);
    }
}

fn listed(methods: MethodTotals, target: Option<&Arc<str>>) -> Vec<MethodMetrics> {
    let methods = methods.into_iter();
    methods
        .map(|((method, system), totals)| MethodMetrics { method, target: target.cloned(), system, totals })
        .collect()
}

/// The meters of the process.
#[derive(Default)]
struct Meters {
    servers: Vec<Arc<CallMeter>>,
    /// The counters of servers that have ended.
    ended: MethodTotals,
    /// By name and system. Only `_OTHER` has several systems.
    targets: BTreeMap<(Arc<str>, RpcSystem), Arc<CallMeter>>,
    /// The counters of targets without channels, forgotten at the limit.
    left: MethodTotals,
    left_connects: ConnectTotals,
    left_frames: FrameCounts,
    /// The connections of the servers, as read last.
    transports: Vec<(ServerObserver, frisbee::ServerMetrics)>,
    /// The counters of the connections of ended servers.
    ended_transports: frisbee::ServerMetrics,
}

static METERS: Mutex<Option<Meters>> = Mutex::new(None);

fn with_meters<T>(read: impl FnOnce(&mut Meters) -> T) -> T {
    let mut meters: MutexGuard<'_, _> = METERS.lock().unwrap_or_else(PoisonError::into_inner);
    read(meters.get_or_insert_default())
}

/// Creates the counters of a server with these methods.
pub(crate) fn add_server(methods: Vec<&'static Method>) -> Arc<CallMeter> {
    let meter = Arc::new(CallMeter::of_server(methods));
    with_meters(|meters| {
        meters.fold_ended();
        meters.servers.push(meter.clone());
    });
    meter
}

/// Adds the connections of a server to the metrics of the process.
pub(crate) fn add_transport(observer: ServerObserver) {
    with_meters(|meters| {
        meters.fold_transports();
        meters.transports.push((observer, frisbee::ServerMetrics::default()));
    });
}

/// Returns the counters of the channels to a target.
pub(crate) fn of_target(target: &str) -> Arc<CallMeter> {
    let system = RpcSystem::of_target(target);
    with_meters(|meters| {
        let mut key = (Arc::from(target), system);
        if meters.targets.len() >= TARGETS_MAX && !meters.targets.contains_key(&key) {
            meters.fold_left();
            if meters.targets.len() >= TARGETS_MAX {
                key.0 = OTHER.into();
            }
        }
        let new = || Arc::new(CallMeter::of_target(key.0.clone(), system));
        meters.targets.entry(key.clone()).or_insert_with(new).clone()
    })
}

/// Returns the counters of the channels over connections of servers to their clients. Handlers make such a channel for a
/// single call, so this takes no lock.
pub(crate) fn of_peers() -> Arc<CallMeter> {
    static PEERS: OnceLock<Arc<CallMeter>> = OnceLock::new();
    PEERS.get_or_init(|| of_target("peers")).clone()
}

impl Meters {
    /// Keeps the counts of servers that have ended, without their memory.
    fn fold_ended(&mut self) {
        let Self { servers, ended, .. } = self;
        servers.retain(|meter| is_used(meter, ended));
    }

    /// Reads the connections of all servers. Those of ended servers count as they were read last, so counters never fall.
    fn fold_transports(&mut self) {
        let Self { transports, ended_transports, .. } = self;
        transports.retain_mut(|(observer, last)| match observer.metrics() {
            Some(metrics) => {
                *last = metrics;
                true
            }
            None => {
                add_transport_counters(ended_transports, last);
                false
            }
        });
    }

    /// Does the same for targets without channels.
    fn fold_left(&mut self) {
        let Self { targets, left, left_connects, left_frames, .. } = self;
        targets.retain(|_, meter| {
            let is_used = is_used(meter, left);
            if !is_used {
                left_connects.add(&meter.connects().totals());
                *left_frames += &meter.frames().counts();
            }
            is_used
        });
    }
}

/// Adds what only grows.
fn add_transport_counters(sum: &mut frisbee::ServerMetrics, one: &frisbee::ServerMetrics) {
    sum.accepted += one.accepted;
    sum.refused += one.refused;
    sum.handshakes_failed += one.handshakes_failed;
    sum.tls_handshakes += one.tls_handshakes;
    sum.tls_failed += one.tls_failed;
    sum.others += one.others;
    sum.frames += &one.frames;
    sum.counters += one.counters;
}

/// Returns `true` if a server or a channel counts with this meter. Otherwise adds its counts to `kept`.
fn is_used(meter: &Arc<CallMeter>, kept: &mut MethodTotals) -> bool {
    let is_used = Arc::strong_count(meter) > 1;
    if !is_used {
        add_methods(meter, kept);
    }
    is_used
}

impl MetricsSnapshot {
    /// Reads the counters of all servers and channels of this process.
    pub fn take() -> Self {
        let sources = source_families();
        with_meters(|meters| {
            meters.fold_ended();
            meters.fold_transports();
            let mut transport = meters.ended_transports.clone();
            for (_, one) in &meters.transports {
                add_transport_counters(&mut transport, one);
                transport.connections += one.connections;
                transport.outbox_len += one.outbox_len;
                transport.flow += one.flow;
                transport.streams += one.streams;
                transport.streams_blocked += one.streams_blocked;
                transport.handlers += one.handlers;
            }
            let mut served = meters.ended.clone();
            meters.servers.iter().for_each(|meter| add_methods(meter, &mut served));
            let mut left = meters.left.clone();
            let (mut called, mut connects) = (Vec::new(), BTreeMap::<_, ConnectTotals>::new());
            let mut frames = BTreeMap::<_, FrameCounts>::new();
            connects.insert(Arc::from(OTHER), meters.left_connects.clone());
            frames.insert(Arc::from(OTHER), meters.left_frames.clone());
            for ((target, _), meter) in &meters.targets {
                connects.entry(target.clone()).or_default().add(&meter.connects().totals());
                *frames.entry(target.clone()).or_default() += &meter.frames().counts();
                match &**target {
                    OTHER => add_methods(meter, &mut left),
                    _ => called.extend(methods_of(meter)),
                }
            }
            called.extend(listed(left, Some(&OTHER.into())));
            connects.retain(|_, totals| *totals != ConnectTotals::default());
            frames.retain(|_, counts| *counts != FrameCounts::default());
            Self { served: listed(served, None), called, connects, frames, transport, sources }
        })
    }

    /// Returns the metrics with their names: by the RPC conventions of OpenTelemetry, by gRPC (A66, A96), and
    /// `frpc.*` for everything else.
    pub fn families(&self) -> Vec<MetricFamily> {
        let mut families = self.server_families();
        families.extend(self.client_families());
        families.extend(self.connect_families());
        families.extend(self.transport_families());
        families.extend(self.sources.iter().cloned());
        families
    }

    fn server_families(&self) -> Vec<MetricFamily> {
        let mut duration =
            MetricFamily::histogram("rpc.server.call.duration", "s", "Time from the arrival of a call to its end.");
        let mut started = MetricFamily::counter("grpc.server.call.started", "{call}", "Calls begun.");
        let mut grpc_duration =
            MetricFamily::histogram("grpc.server.call.duration", "s", "Time from the arrival of a call to its end.");
        let mut sent = MetricFamily::histogram(
            "grpc.server.call.sent_total_compressed_message_size",
            "By",
            "Bytes of response messages per call, before compression.",
        );
        let mut received = MetricFamily::histogram(
            "grpc.server.call.rcvd_total_compressed_message_size",
            "By",
            "Bytes of request messages per call, after decompression.",
        );
        let mut in_flight = MetricFamily::gauge("frpc.server.calls_in_flight", "{call}", "Calls in flight.");
        let mut requests = MetricFamily::counter("frpc.server.request.messages", "{message}", "Request messages.");
        let mut responses = MetricFamily::counter("frpc.server.response.messages", "{message}", "Response messages.");
        let mut blocked = MetricFamily::counter(
            "frpc.server.stream.blocked",
            "s",
            "Time in which streams had responses to send and their connections took none.",
        );
        let mut queued =
            MetricFamily::histogram("frpc.server.call.queued", "s", "Time of calls in a queue before their handlers.");
        for MethodMetrics { method, system, totals, .. } in &self.served {
            let attributes: &[(&'static str, &str)] = &[(SYSTEM, system.name()), (METHOD, method)];
            add_durations(&mut duration, &OTEL_STATUS, attributes, totals);
            in_flight.add(attributes, totals.in_flight());
            requests.add(attributes, totals.request_messages);
            responses.add(attributes, totals.response_messages);
            blocked.add(attributes, totals.blocked);
            if totals.queued.count() > 0 {
                queued.add(attributes, totals.queued.clone());
            }
        }
        for ((method, _), totals) in over_all_systems(&self.served) {
            let attributes: &[(&'static str, &str)] = &[(GRPC_METHOD, method)];
            add_durations(&mut grpc_duration, &GRPC_STATUS, attributes, &totals);
            started.add(attributes, totals.started);
            let calls = totals.all_ended();
            sent.add(attributes, MetricValue::Sizes { count: calls, sum: totals.response_bytes });
            received.add(attributes, MetricValue::Sizes { count: calls, sum: totals.request_bytes });
        }
        vec![duration, started, grpc_duration, sent, received, in_flight, requests, responses, blocked, queued]
    }

    fn client_families(&self) -> Vec<MetricFamily> {
        let mut duration =
            MetricFamily::histogram("rpc.client.call.duration", "s", "Time of a call with all its attempts.");
        let mut started = MetricFamily::counter("grpc.client.attempt.started", "{attempt}", "Attempts begun.");
        let mut grpc_duration =
            MetricFamily::histogram("grpc.client.call.duration", "s", "Time of a call with all its attempts.");
        let mut sent = MetricFamily::histogram(
            "grpc.client.attempt.sent_total_compressed_message_size",
            "By",
            "Bytes of request messages per call, before compression.",
        );
        let mut received = MetricFamily::histogram(
            "grpc.client.attempt.rcvd_total_compressed_message_size",
            "By",
            "Bytes of response messages per call, after decompression.",
        );
        let mut retries = MetricFamily::counter("grpc.client.call.retries", "{retry}", "Retries.");
        let mut hedges =
            MetricFamily::counter("grpc.client.call.hedges", "{hedge}", "Attempts made before the answer to another.");
        let mut in_flight = MetricFamily::gauge("frpc.client.calls_in_flight", "{call}", "Calls in flight.");
        let mut blocked = MetricFamily::counter(
            "frpc.client.stream.blocked",
            "s",
            "Time in which streams had requests to send and their connections took none.",
        );
        let mut queued = MetricFamily::histogram(
            "frpc.client.call.queued",
            "s",
            "Time of calls before a server was ready or a limit had room.",
        );
        for MethodMetrics { method, target, system, totals } in &self.called {
            let target = target.as_deref().unwrap_or(OTHER);
            let attributes: &[(&'static str, &str)] =
                &[(SYSTEM, system.name()), (METHOD, method), ("server.address", target)];
            add_durations(&mut duration, &OTEL_STATUS, attributes, totals);
            in_flight.add(attributes, totals.in_flight());
            blocked.add(attributes, totals.blocked);
            if totals.queued.count() > 0 {
                queued.add(attributes, totals.queued.clone());
            }
        }
        for ((method, target), totals) in over_all_systems(&self.called) {
            let attributes: &[(&'static str, &str)] = &[(GRPC_METHOD, method), (GRPC_TARGET, target.unwrap_or(OTHER))];
            add_durations(&mut grpc_duration, &GRPC_STATUS, attributes, &totals);
            started.add(attributes, totals.started + totals.retries + totals.hedges);
            let calls = totals.all_ended();
            sent.add(attributes, MetricValue::Sizes { count: calls, sum: totals.request_bytes });
            received.add(attributes, MetricValue::Sizes { count: calls, sum: totals.response_bytes });
            retries.add(attributes, totals.retries);
            hedges.add(attributes, totals.hedges);
        }
        vec![duration, started, grpc_duration, sent, received, retries, hedges, in_flight, blocked, queued]
    }

    /// Returns the metrics of the connections of channels, with the names of gRPC (A94, A91).
    fn connect_families(&self) -> Vec<MetricFamily> {
        let mut connected = MetricFamily::counter(
            "grpc.subchannel.connection_attempts_succeeded",
            "{attempt}",
            "Successful attempts to connect.",
        );
        let mut failed = MetricFamily::counter(
            "grpc.subchannel.connection_attempts_failed",
            "{attempt}",
            "Failed attempts to connect.",
        );
        let mut tls = MetricFamily::counter(
            "frpc.client.tls.failures",
            "{handshake}",
            "Failed TLS handshakes of channels: a part of the failed attempts to connect.",
        );
        let mut lost = MetricFamily::counter(
            "grpc.subchannel.disconnections",
            "{disconnection}",
            "Connections closed by the server or lost.",
        );
        let mut open = MetricFamily::gauge("grpc.subchannel.open_connections", "{connection}", "Open connections.");
        let mut ejected = MetricFamily::counter(
            "grpc.lb.outlier_detection.ejections_enforced",
            "{ejection}",
            "Ejections of outliers, by the rule that found them.",
        );
        let mut kept = MetricFamily::counter(
            "grpc.lb.outlier_detection.ejections_unenforced",
            "{ejection}",
            "Outliers that were not ejected, by rule and reason.",
        );
        for (target, totals) in &self.connects {
            let attributes: &[(&'static str, &str)] = &[(GRPC_TARGET, target)];
            connected.add(attributes, totals.connected);
            failed.add(attributes, totals.failed);
            tls.add(attributes, totals.tls_failed);
            lost.add(attributes, totals.lost);
            open.add(attributes, totals.open);
            for (method, [enforced, overflow, chance]) in OutlierMethod::ALL.into_iter().zip(totals.ejections) {
                let method = (DETECTION_METHOD, method.name());
                if enforced > 0 {
                    ejected.add(&[attributes[0], method], enforced);
                }
                for (reason, count) in [("max_ejection_overflow", overflow), ("enforcement_percentage", chance)] {
                    if count > 0 {
                        kept.add(&[attributes[0], method, (UNENFORCED_REASON, reason)], count);
                    }
                }
            }
        }
        let mut frames = MetricFamily::counter(
            "frpc.client.connection.frames",
            "{frame}",
            "Frames of HTTP/2 connections of channels.",
        );
        for (target, counts) in &self.frames {
            let target: (&'static str, &str) = (GRPC_TARGET, target);
            for (kind, count) in counts.iter() {
                frames.add(&[target, RECEIVED, (FRAME_TYPE, kind)], count.received);
                frames.add(&[target, SENT, (FRAME_TYPE, kind)], count.sent);
            }
        }
        vec![connected, failed, tls, lost, open, ejected, kept, frames]
    }

    /// Returns the metrics of connections. Sums over all of them: a label per peer would let clients create time series.
    fn transport_families(&self) -> Vec<MetricFamily> {
        let frisbee::ServerMetrics { counters, others, ref frames, handshakes_failed, tls_failed, .. } = self.transport;
        let gauge = |name, unit, description, value: usize| {
            let mut family = MetricFamily::gauge(name, unit, description);
            family.add(&[], value as u64);
            family
        };
        let counter = |name, unit, description, points: &[(&[(&'static str, &str)], u64)]| {
            let mut family = MetricFamily::counter(name, unit, description);
            points.iter().for_each(|(attributes, value)| family.add(attributes, *value));
            family
        };
        let mut http2_frames =
            MetricFamily::counter("frpc.server.connection.frames", "{frame}", "Frames of HTTP/2 connections.");
        for (kind, count) in frames.iter() {
            http2_frames.add(&[RECEIVED, (FRAME_TYPE, kind)], count.received);
            http2_frames.add(&[SENT, (FRAME_TYPE, kind)], count.sent);
        }
        let flow = self.transport.flow;
        let mut streams =
            MetricFamily::gauge("frpc.server.connection.streams", "{stream}", "Open streams of connections.");
        streams.add(&[(PROTOCOL, "frisbee")], self.transport.streams as u64);
        streams.add(&[(PROTOCOL, OTHER)], flow.streams as u64);
        let mut credit = MetricFamily::gauge(
            "frpc.server.connection.credit",
            "By",
            "Bytes that the senders of HTTP/2 connections may still send, over all connections.",
        );
        credit.add(&[RECEIVED], flow.receive_credit);
        credit.add(&[SENT], flow.send_credit);
        vec![
            gauge("frpc.server.connections", "{connection}", "Open connections.", self.transport.connections),
            counter(
                "frpc.server.connections.accepted",
                "{connection}",
                "Connections accepted.",
                &[(&[], self.transport.accepted)],
            ),
            counter(
                "frpc.server.connections.failed",
                "{connection}",
                "Connections refused at the limit or during a shutdown, failed TLS handshakes, and unknown protocols.",
                &[
                    (&[("reason", "refused")], self.transport.refused),
                    (&[("reason", "tls")], tls_failed),
                    (&[("reason", "protocol")], handshakes_failed.saturating_sub(tls_failed)),
                ],
            ),
            counter(
                "frpc.server.tls.handshakes",
                "{handshake}",
                "Successful TLS handshakes.",
                &[(&[], self.transport.tls_handshakes)],
            ),
            counter(
                "frpc.server.connection.io",
                "By",
                "Bytes of connections, above TLS.",
                &[
                    (&[RECEIVED, (PROTOCOL, "frisbee")], counters.bytes_in),
                    (&[SENT, (PROTOCOL, "frisbee")], counters.bytes_out),
                    (&[RECEIVED, (PROTOCOL, OTHER)], others.bytes_in),
                    (&[SENT, (PROTOCOL, OTHER)], others.bytes_out),
                ],
            ),
            counter(
                "frpc.server.connection.batches",
                "{batch}",
                "Reads with data, and writes.",
                &[
                    (&[RECEIVED, (PROTOCOL, "frisbee")], counters.batches_in),
                    (&[SENT, (PROTOCOL, "frisbee")], counters.batches_out),
                    (&[RECEIVED, (PROTOCOL, OTHER)], others.batches_in),
                    (&[SENT, (PROTOCOL, OTHER)], others.batches_out),
                ],
            ),
            counter(
                "frpc.server.connection.packets",
                "{packet}",
                "Packets of frisbee connections.",
                &[(&[RECEIVED], counters.packets_in), (&[SENT], counters.packets_out)],
            ),
            http2_frames,
            counter(
                "frpc.server.connection.packets.lost",
                "{packet}",
                "Packets without effect: unknown, refused by a limit, too large, or not sent because a buffer was full.",
                &[
                    (&[("reason", "dropped")], counters.dropped),
                    (&[("reason", "refused")], counters.refused),
                    (&[("reason", "too_large")], counters.too_large),
                    (&[("reason", "unsent")], counters.unsent),
                ],
            ),
            counter(
                "frpc.server.connection.streams.refused",
                "{stream}",
                "Streams refused or closed because a limit was reached.",
                &[(&[], counters.streams_refused)],
            ),
            counter(
                "frpc.server.connection.credit.waits",
                "{wait}",
                "Times that the sender of a stream found no credit of its peer, and waited.",
                &[(&[], counters.credit_waits)],
            ),
            streams,
            credit,
            gauge(
                "frpc.server.connections.stalled",
                "{connection}",
                "HTTP/2 connections with queued data and no credit of the peer.",
                flow.stalled,
            ),
            gauge(
                "frpc.server.connection.streams.blocked",
                "{stream}",
                "Streams of frisbee connections without credit of the peer.",
                self.transport.streams_blocked,
            ),
            gauge(
                "frpc.server.connection.queued",
                "By",
                "Bytes queued for writing on frisbee connections.",
                self.transport.outbox_len,
            ),
            gauge(
                "frpc.server.handlers",
                "{handler}",
                "Running handlers that were not ready at once.",
                self.transport.handlers,
            ),
        ]
    }

    /// Returns the metrics in a text format.
    pub fn to_text(&self, format: TextFormat) -> String {
        write_text(&self.families(), format)
    }
}

/// Adds up the counters of each method and target over all systems. The metrics of gRPC have no attribute for them.
fn over_all_systems(methods: &[MethodMetrics]) -> BTreeMap<(&str, Option<&str>), CallTotals> {
    let mut all = BTreeMap::<_, CallTotals>::new();
    for MethodMetrics { method, target, totals, .. } in methods {
        all.entry((&**method, target.as_deref())).or_default().add(totals);
    }
    all
}

/// The attributes for a status code, and those added for failures.
struct StatusAttributes {
    code: &'static str,
    error: Option<&'static str>,
}

const OTEL_STATUS: StatusAttributes = StatusAttributes { code: "rpc.status_code", error: Some("error.type") };
const GRPC_STATUS: StatusAttributes = StatusAttributes { code: "grpc.status", error: None };

/// Adds the durations of a method by status code.
fn add_durations(
    family: &mut MetricFamily,
    status: &StatusAttributes,
    attributes: &[(&'static str, &str)],
    totals: &CallTotals,
) {
    for (code, durations) in totals.durations.iter().filter(|(_, durations)| durations.count() > 0) {
        let name = Code::from(i32::from(*code)).name();
        let error = status.error.filter(|_| *code != 0).map(|error| (error, name));
        let attributes: Vec<_> = attributes.iter().copied().chain([(status.code, name)]).chain(error).collect();
        family.add(&attributes, durations.clone());
    }
}

impl fmt::Debug for Meters {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Meters").field("servers", &self.servers.len()).finish_non_exhaustive()
    }
}

/// The maximum number of targets with their own counters.
pub const TARGETS_MAX: usize = 256;
/// The name of methods and targets without counters of their own.
const OTHER: &str = "_OTHER";
const SYSTEM: &str = "rpc.system.name";
const METHOD: &str = "rpc.method";
const GRPC_METHOD: &str = "grpc.method";
const GRPC_TARGET: &str = "grpc.target";
const PROTOCOL: &str = "network.protocol.name";
const RECEIVED: (&str, &str) = ("network.io.direction", "receive");
const SENT: (&str, &str) = ("network.io.direction", "transmit");
const FRAME_TYPE: &str = "frpc.frame.type";
const DETECTION_METHOD: &str = "grpc.lb.outlier_detection.detection_method";
const UNENFORCED_REASON: &str = "grpc.lb.outlier_detection.unenforced_reason";
