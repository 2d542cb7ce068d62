//! The faults of the network to one server.

use std::time::Duration;

/// The faults of the network to one server. Default: none.
///
/// Fields may be added, so `..NetworkFaults::default()` belongs at the end of a literal.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct NetworkFaults {
    /// The time for which each part of a request or an answer travels.
    pub latency: Duration,
    /// `true` if the network takes all bytes in both directions and delivers none. A connection with lost bytes delivers none
    /// later, either.
    pub is_black_hole: bool,
    /// `true` if bytes and connections wait until this is `false` again.
    pub is_partitioned: bool,
    /// The faults of each byte stream.
    pub links: LinkFaults,
}

/// The faults of the byte streams to one server. Default: none.
///
/// Fields may be added, so `..LinkFaults::default()` belongs at the end of a literal.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct LinkFaults {
    /// The maximum bytes of one read or write. 0 for no limit.
    pub step_max: usize,
    /// The share of reads and writes that report `Pending` although they could proceed, from 0 to 1. They wake their task
    /// immediately, so tasks run in another order.
    pub spurious_wakes: f64,
    /// The share of reads and writes that wait, from 0 to 1.
    pub stalls: f64,
    /// The longest wait.
    pub stall_max: Duration,
    /// Cuts a connection within this number of bytes, at any byte. 0 for no cuts.
    ///
    /// A new connection chooses its place. Half of the cut connections are reset on both sides, a quarter ends, and a quarter
    /// stays half-open: neither side learns anything.
    pub cut_within: u64,
}
