//! Streams and credit of connections of other protocols.

use std::ops::AddAssign;

/// Open streams and flow-control credit on connections of [other protocols](crate::Protocol), such as HTTP/2.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct FlowState {
    /// Open streams.
    pub streams: usize,
    /// Connections with queued data and no credit of the peer for it.
    pub stalled: usize,
    /// Bytes of queued data, also of streams without credit.
    pub queued: u64,
    /// Credit of this side for sending, in bytes, for all streams of a connection together.
    pub send_credit: u64,
    /// Credit of the peer for sending, in bytes, for all streams of a connection together.
    pub receive_credit: u64,
}

impl AddAssign for FlowState {
    fn add_assign(&mut self, other: Self) {
        self.streams += other.streams;
        self.stalled += other.stalled;
        self.queued += other.queued;
        self.send_credit += other.send_credit;
        self.receive_credit += other.receive_credit;
    }
}
