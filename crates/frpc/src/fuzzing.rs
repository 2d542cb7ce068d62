//! Doors for fuzz targets, built with `--cfg fuzzing` only.

use bytes::Bytes;
use frisbee::{CloseReason, Operation, Packet};
use futures_util::FutureExt;

use crate::{
    call::packed::Packed,
    service::compressing::Compressing,
    wire::frisbee::{
        call_table::{Reply, Unanswered},
        compressed::Compressed,
        description::Description,
        envelope::{self, Data, Envelope},
        pending::{self, PendingCalls},
        remote::Extended,
    },
};

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
        self.0.sent(None);
    }

    /// Returns its answer, once.
    pub fn answer(&mut self) -> Option<Result<Bytes, ()>> {
        let answer = self.0.answered().now_or_never()?;
        Some(answer.map_err(drop).map(|(Reply::Plain(content) | Reply::Extended(content))| content))
    }
}

/// Reads bytes of an extended peer as everything that they may be: a packet, the data of a stream, a table of methods, and a
/// description of one.
/// Returns the size of the metadata that was kept, and the length of the messages, of which those that are compressed have at
/// most `inflated_max` bytes.
pub fn read_extended(content: &Bytes, metadata_max: usize, inflated_max: u32) -> (usize, usize) {
    let (mut metadata_len, mut messages_len) = (0, 0);
    match Envelope::decode(content.clone(), metadata_max) {
        Ok(Envelope::Request { head, message, .. } | Envelope::Answer { head, message }) => {
            metadata_len = envelope::metadata_len(&head.metadata) + envelope::metadata_len(&head.trailers);
            messages_len = match head.compressed {
                None => message.len(),
                Some(compressed) => inflate(compressed, &message, inflated_max).map_or(0, |message| message.len()),
            };
        }
        Ok(Envelope::Failure(head)) => drop(head.into_status()),
        Ok(Envelope::Describe { .. }) => {}
        Err(_) => {}
    }
    let messages = match Data::decode(content.clone(), metadata_max) {
        Ok(Data::Messages(messages)) => Some(messages),
        Ok(Data::Compressed(compressed, bytes)) => inflate(compressed, &bytes, inflated_max).map(Packed::new),
        _ => None,
    };
    if let Some(mut messages) = messages {
        while let Some(Ok(message)) = messages.next() {
            messages_len += message.len();
        }
    }
    drop(envelope::parse_open(content, metadata_max));
    drop(Extended::decode(content.clone()));
    drop(Description::decode(content.clone()));
    (metadata_len, messages_len)
}

fn inflate(compressed: Compressed, bytes: &[u8], inflated_max: u32) -> Option<Bytes> {
    let algorithm = compressed.check(&Compressing::default(), inflated_max).ok()?;
    compressed.inflate(algorithm, bytes).ok()
}
