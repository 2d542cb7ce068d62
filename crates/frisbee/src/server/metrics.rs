//! The counters and the load of a server.

use std::sync::atomic::Ordering;

use super::{shared::ServerShared, slot::SlotsSnapshot};
use crate::{
    net::{FlowState, FrameCounts},
    proto::Counters,
};

/// A snapshot of a server's counters and load.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct ServerMetrics {
    /// Open connections, also during a handshake.
    pub connections: usize,
    /// Connections accepted since the start.
    pub accepted: u64,
    /// Connections closed on accept, because the limit was reached or the server was shutting down.
    pub refused: u64,
    /// Failed TLS handshakes and protocol detections, including timeouts.
    pub handshakes_failed: u64,
    /// Successful TLS handshakes.
    pub tls_handshakes: u64,
    /// Failed TLS handshakes: a part of `handshakes_failed`.
    pub tls_failed: u64,
    /// Packets and bytes of all frisbee connections, including closed ones.
    pub counters: Counters,
    /// Bytes and reads of the connections of [other protocols](crate::Protocol), including closed ones.
    pub others: Counters,
    /// Frames of these connections by type, as their protocols [report](crate::Raw::report_frames) them.
    pub frames: FrameCounts,
    /// Streams and credit of these connections, as their protocols [report](crate::Raw::report_flow) them.
    pub flow: FlowState,
    /// Open streams of frisbee connections.
    pub streams: usize,
    /// Streams of frisbee connections without credit of the peer.
    pub streams_blocked: usize,
    /// Bytes queued for writing on all connections.
    pub outbox_len: usize,
    /// Running handlers. A handler that is ready on its first poll does not count.
    pub handlers: usize,
}

impl ServerMetrics {
    pub(super) fn of(shared: &ServerShared) -> Self {
        let SlotsSnapshot { slots, past, others, frames, flow, open } = shared.slots.snapshot();
        let mut metrics = Self {
            connections: slots,
            accepted: shared.accepted.load(Ordering::Relaxed),
            refused: shared.refused.load(Ordering::Relaxed),
            handshakes_failed: shared.handshakes_failed.load(Ordering::Relaxed),
            tls_handshakes: shared.tls_handshakes.load(Ordering::Relaxed),
            tls_failed: shared.tls_failed.load(Ordering::Relaxed),
            counters: past,
            others,
            frames,
            flow,
            streams: 0,
            streams_blocked: 0,
            outbox_len: 0,
            handlers: 0,
        };
        for connection in open {
            let one = connection.metrics();
            metrics.counters += one.counters;
            metrics.outbox_len += one.outbox_len;
            metrics.streams += one.streams;
            metrics.streams_blocked += one.streams_blocked;
            metrics.handlers += one.handlers;
        }
        metrics
    }
}
