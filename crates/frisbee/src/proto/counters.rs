//! Counters of a connection.

/// Packets and bytes of a connection since its start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Counters {
    /// Packets received, of every kind.
    pub packets_in: u64,
    /// Packets accepted for sending, without heartbeats.
    pub packets_out: u64,
    /// Pieces received, of contents in pieces.
    pub pieces_in: u64,
    /// Bytes received.
    pub bytes_in: u64,
    /// Bytes written.
    pub bytes_out: u64,
    /// Reads with at least one byte.
    pub batches_in: u64,
    /// Batches passed to the socket.
    pub batches_out: u64,
    /// Packets dropped: reserved operations, and unknown or unexpected control frames.
    pub dropped: u64,
    /// Packets refused because a limit was reached, their time was over or the connection was draining.
    pub refused: u64,
    /// Packets and data of streams discarded because they were larger than
    /// [`Config::content_len_max`](crate::Config::content_len_max).
    pub too_large: u64,
    /// Streams refused or closed because a limit was reached.
    pub streams_refused: u64,
    /// Packets not sent because the outbox was full ([`WhenFull::Drop`](crate::WhenFull::Drop)).
    pub unsent: u64,
    /// Times that a sender found its stream without credit of the peer, and waited.
    pub credit_waits: u64,
}

impl std::ops::AddAssign for Counters {
    fn add_assign(&mut self, other: Self) {
        self.packets_in += other.packets_in;
        self.packets_out += other.packets_out;
        self.pieces_in += other.pieces_in;
        self.bytes_in += other.bytes_in;
        self.bytes_out += other.bytes_out;
        self.batches_in += other.batches_in;
        self.batches_out += other.batches_out;
        self.dropped += other.dropped;
        self.refused += other.refused;
        self.too_large += other.too_large;
        self.streams_refused += other.streams_refused;
        self.unsent += other.unsent;
        self.credit_waits += other.credit_waits;
    }
}
