//! The state of the process as messages.

use std::{
    collections::HashMap,
    time::{Duration, Instant, SystemTime, UNIX_EPOCH},
};

use frpc::frisbee::{self, ConnectionMetrics, FrameCounts};
use frpc::{
    Code,
    inspect::{self, CallSubject, ChannelView, EndpointPhase, EndpointView, OpenStream, RecordedCall, ServerView},
    metrics::{CallTotals, DurationHistogram, MethodMetrics, MetricsSnapshot},
};

use crate::{
    process,
    protos::frpc::admin::v1::{
        CallState, ChannelState, CodeCount, ConnectionState, EndpointState, FlowState, FrameState, LimitState,
        MetadataEntry, MethodState, ProcessState, ServerState, StreamState, TrafficState, admin_methods::WATCH,
    },
};

/// The states of a process for one watcher.
#[derive(Default)]
pub(crate) struct Sampler {
    before: Option<Sample>,
}

/// The counters at the last state.
struct Sample {
    at: Instant,
    /// By side, target, method and system.
    totals: HashMap<(bool, String, String, &'static str), CallTotals>,
}

impl Sampler {
    /// Returns the state now, with rates since the last one.
    pub(crate) fn state(&mut self, log_filter: Option<String>) -> ProcessState {
        let (snapshot, at) = (MetricsSnapshot::take(), tokio::time::Instant::now().into_std());
        let before = self.before.take();
        let is_first = before.is_none();
        let elapsed = before.as_ref().map_or(Duration::ZERO, |before| at.saturating_duration_since(before.at));
        let mut sample = Sample { at, totals: HashMap::new() };
        let mut methods = |is_served: bool, metrics: Vec<MethodMetrics>| {
            let state = |MethodMetrics { method, target, system, totals, .. }: MethodMetrics| {
                let key = (is_served, target.as_deref().unwrap_or_default().to_owned(), method, system.name());
                let earlier = before.as_ref().map(|before| before.totals.get(&key).cloned().unwrap_or_default());
                let state = method_state((&key.2, &key.1, key.3), &totals, earlier.as_ref(), elapsed);
                sample.totals.insert(key, totals);
                state
            };
            metrics.into_iter().map(state).collect()
        };
        let (served, called) = (methods(true, snapshot.served), methods(false, snapshot.called));
        self.before = Some(sample);
        let mut streams = inspect::open_streams();
        let open_streams = count(streams.len());
        streams.sort_by_key(|stream| std::cmp::Reverse(stream.blocked));
        streams.truncate(STREAMS_SHOWN);
        ProcessState {
            time_ms: unix_ms(SystemTime::now()),
            uptime: process::uptime().as_secs_f64(),
            name: process::name(),
            pid: std::process::id(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            memory: process::memory(),
            served,
            called,
            servers: inspect::servers().iter().map(|server| server_state(server, is_first)).collect(),
            channels: inspect::channels().iter().map(channel_state).collect(),
            streams: streams.into_iter().map(stream_state).collect(),
            open_streams,
            failures: inspect::recent_failures().into_iter().filter(is_of_interest).map(call_state).collect(),
            slow: inspect::slow_calls().into_iter().map(call_state).collect(),
            log_filter,
        }
    }
}

/// The maximum number of streams in a state.
const STREAMS_SHOWN: usize = 200;
/// The maximum number of connections of a server in a state.
const CONNECTIONS_SHOWN: usize = 100;

/// Returns `false` for watchers that have left.
fn is_of_interest(call: &RecordedCall) -> bool {
    !(call.code == Code::Cancelled && call.subject.method.service == WATCH.service)
}

fn method_state(
    (method, target, system): (&str, &str, &'static str),
    totals: &CallTotals,
    earlier: Option<&CallTotals>,
    elapsed: Duration,
) -> MethodState {
    let all = totals.all_durations();
    let failed = totals.all_ended() - totals.ended(0);
    let seconds = elapsed.as_secs_f64();
    let rate = |now: u64, before: fn(&CallTotals) -> u64| match earlier {
        Some(earlier) if seconds > 0.0 => now.saturating_sub(before(earlier)) as f64 / seconds,
        _ => 0.0,
    };
    let recent = earlier.map(|earlier| all.since(&earlier.all_durations())).unwrap_or_default();
    let waits = earlier.map(|earlier| totals.queued.since(&earlier.queued)).unwrap_or_default();
    let seconds_of = |times: &DurationHistogram, share| times.quantile(share).map_or(0.0, |time| time.as_secs_f64());
    let quantile = |share| seconds_of(&recent, share);
    let codes = totals.durations.iter().map(|(code, durations)| CodeCount {
        code: Code::from(i32::from(*code)).name().to_owned(),
        calls: durations.count(),
    });
    MethodState {
        method: method.to_owned(),
        target: target.to_owned(),
        started: totals.started,
        failed,
        in_flight: totals.in_flight(),
        retries: totals.retries,
        hedges: totals.hedges,
        rate: rate(totals.all_ended(), CallTotals::all_ended),
        failure_rate: rate(failed, |earlier| earlier.all_ended() - earlier.ended(0)),
        p50: quantile(0.5),
        p90: quantile(0.9),
        p99: quantile(0.99),
        request_rate: rate(totals.request_bytes, |earlier| earlier.request_bytes),
        response_rate: rate(totals.response_bytes, |earlier| earlier.response_bytes),
        blocked: totals.blocked.as_secs_f64(),
        codes: codes.filter(|code| code.calls > 0).collect(),
        system: system.to_owned(),
        queued: totals.queued.count(),
        queued_p50: seconds_of(&waits, 0.5),
        queued_p99: seconds_of(&waits, 0.99),
    }
}

fn server_state(server: &ServerView, is_first: bool) -> ServerState {
    let observer = server.observer();
    let (metrics, limits) = (observer.metrics().unwrap_or_default(), observer.limits());
    let limit =
        |name: &str, used: usize, max: usize| LimitState { name: name.to_owned(), used: count(used), max: count(max) };
    let connections = observer.connections(0, CONNECTIONS_SHOWN).into_iter().map(|info| {
        let traffic = match &info.connection {
            Some(connection) => Some(traffic_state(&connection.metrics(), &info.frames, None)),
            None => info.protocol.map(|_| TrafficState {
                bytes_received: info.counters.bytes_in,
                bytes_sent: info.counters.bytes_out,
                frames: frame_states(&info.frames),
                streams: info.flow.map_or(0, |flow| count(flow.streams)),
                queued: info.flow.map_or(0, |flow| flow.queued),
                flow: info.flow.map(flow_state),
                ..TrafficState::default()
            }),
        };
        ConnectionState {
            number: info.number,
            peer: info.peer.to_string(),
            local: info.local.to_string(),
            protocol: info.protocol.unwrap_or_default().to_owned(),
            age: info.age.as_secs_f64(),
            traffic,
            is_secure: info.is_secure,
        }
    });
    ServerState {
        number: server.number(),
        addresses: observer.local_addrs().iter().map(ToString::to_string).collect(),
        engine: format!("{:?}", observer.engine()),
        accepted: metrics.accepted,
        refused: metrics.refused,
        handshakes_failed: metrics.handshakes_failed,
        tls_handshakes: metrics.tls_handshakes,
        tls_failed: metrics.tls_failed,
        packets_received: metrics.counters.packets_in,
        packets_sent: metrics.counters.packets_out,
        limits: vec![
            limit("connections", metrics.connections, limits.connections_max),
            limit("handlers", metrics.handlers, limits.handlers_max),
        ],
        connections: connections.collect(),
        settings: if is_first { server.settings() } else { String::new() },
    }
}

fn traffic_state(metrics: &ConnectionMetrics, frames: &FrameCounts, flow: Option<frisbee::FlowState>) -> TrafficState {
    TrafficState {
        packets_received: metrics.counters.packets_in,
        packets_sent: metrics.counters.packets_out,
        bytes_received: metrics.counters.bytes_in,
        bytes_sent: metrics.counters.bytes_out,
        streams: count(metrics.streams),
        handlers: count(metrics.handlers),
        queued: flow.map_or(count(metrics.outbox_len), |flow| flow.queued),
        streams_blocked: count(metrics.streams_blocked),
        credit_waits: metrics.counters.credit_waits,
        frames: frame_states(frames),
        flow: flow.map(flow_state),
    }
}

fn flow_state(flow: frisbee::FlowState) -> FlowState {
    FlowState { send_credit: flow.send_credit, receive_credit: flow.receive_credit, stalled: count(flow.stalled) }
}

fn frame_states(frames: &FrameCounts) -> Vec<FrameState> {
    let used = frames.iter().filter(|(_, count)| count.received + count.sent > 0);
    used.map(|(kind, count)| FrameState { kind: kind.to_owned(), received: count.received, sent: count.sent }).collect()
}

fn channel_state(channel: &ChannelView) -> ChannelState {
    ChannelState {
        number: channel.number(),
        target: channel.target().to_owned(),
        age: channel.made().elapsed().unwrap_or_default().as_secs_f64(),
        endpoints: channel.endpoints().into_iter().map(endpoint_state).collect(),
    }
}

fn endpoint_state(endpoint: EndpointView) -> EndpointState {
    let ejected = match endpoint.state {
        EndpointPhase::Ejected(left) => left.as_secs_f64(),
        _ => 0.0,
    };
    EndpointState {
        address: endpoint.address.to_string(),
        zone: endpoint.zone.as_deref().unwrap_or_default().to_owned(),
        weight: endpoint.weight,
        state: endpoint.state.name().to_owned(),
        ejected,
        in_flight: endpoint.in_flight,
        latency: endpoint.latency.unwrap_or_default().as_secs_f64(),
        failures: u32::try_from(endpoint.failures).unwrap_or(u32::MAX),
        ejections: endpoint.ejections,
        connects: endpoint.history.connects,
        connects_failed: endpoint.history.connects_failed,
        disconnects: endpoint.history.disconnects,
        all_ejections: endpoint.history.ejections,
        traffic: endpoint.traffic.map(|traffic| traffic_state(&traffic, &endpoint.frames, endpoint.flow)),
        is_secure: endpoint.is_secure,
    }
}

fn stream_state(stream: OpenStream) -> StreamState {
    let CallSubject { method, target, peer, .. } = stream.subject;
    StreamState {
        number: stream.number,
        method: method.path(),
        target: target.as_deref().unwrap_or_default().to_owned(),
        peer: peer.map(|peer| peer.to_string()).unwrap_or_default(),
        is_outgoing: stream.is_outgoing,
        age: stream.age.as_secs_f64(),
        messages: stream.messages,
        bytes: stream.bytes,
        blocked: stream.blocked.map(|blocked| blocked.as_secs_f64()),
    }
}

fn call_state(call: RecordedCall) -> CallState {
    let CallSubject { method, target, peer, trace_id, metadata, .. } = call.subject;
    CallState {
        method: method.path(),
        target: target.as_deref().unwrap_or_default().to_owned(),
        peer: peer.map(|peer| peer.to_string()).unwrap_or_default(),
        trace_id: trace_id.map(|id| id.to_string()).unwrap_or_default(),
        metadata: metadata.into_iter().map(|(name, value)| MetadataEntry { name, value }).collect(),
        ended_ms: unix_ms(call.ended),
        duration: call.duration.as_secs_f64(),
        first_wait: call.first_wait.map(|wait| wait.as_secs_f64()),
        code: call.code.name().to_owned(),
        message: call.message,
        details: call.details,
    }
}

fn unix_ms(time: SystemTime) -> u64 {
    let since = time.duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}

fn count(count: usize) -> u64 {
    u64::try_from(count).unwrap_or(u64::MAX)
}
