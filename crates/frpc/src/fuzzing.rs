//! Doors for fuzz targets, built with `--cfg fuzzing` only.

use bytes::Bytes;
use frisbee::{CloseReason, Operation, Packet};
use futures_util::FutureExt;

use crate::wire::frisbee::pending::{self, PendingCalls, Unanswered};

/// The waiting calls of a connection.
#[derive(Debug)]
pub struct CallTable {
    calls: PendingCalls,
    connection: u64,
}

/// One call that waits.
pub struct PendingCall<'a>(pending::PendingCall<'a>);

impl CallTable {
    /// Makes a table for at most `calls_max` calls at once.
    pub fn new(calls_max: usize) -> Self {
        let calls = PendingCalls::new(calls_max);
        Self { connection: calls.open(), calls }
    }

    /// Begins a call: `None` if there are too many, an error if the connection takes none.
    pub fn begin(&self, operation: Operation) -> Result<Option<PendingCall<'_>>, ()> {
        self.calls.try_begin(operation.number(), None, None).map(|begun| begun.map(PendingCall)).map_err(drop)
    }

    /// Gives a packet to the call that it answers, or back.
    pub fn complete(&self, packet: Packet) -> Option<Packet> {
        self.calls.complete(packet)
    }

    /// Ends the call whose answer was too large.
    pub fn fail(&self, id: u16, operation: Operation) -> bool {
        self.calls.fail(id, operation, Unanswered::TooLarge { announced: 2, limit: 1 })
    }

    /// Returns whether too many answers are owed for a call to begin.
    pub fn is_out_of_ids(&self) -> bool {
        self.calls.is_out_of_ids()
    }

    /// Ends every call.
    pub fn close(&self) {
        self.calls.close(self.connection, &CloseReason::Local);
    }
}

impl PendingCall<'_> {
    /// Returns the id of its packet.
    pub fn id(&self) -> u16 {
        self.0.id
    }

    /// Notes that its packet was sent.
    pub fn sent(&mut self) {
        self.0.sent();
    }

    /// Returns its answer, once.
    pub fn answer(&mut self) -> Option<Result<Bytes, ()>> {
        self.0.answered().now_or_never().map(|answer| answer.map_err(drop))
    }
}
