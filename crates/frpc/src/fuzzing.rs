//! Entry points for fuzz targets. Built with `--cfg fuzzing` only.

use bytes::Bytes;
use frisbee::{CloseReason, Operation, Packet};
use futures_util::FutureExt;

use crate::{
    call::packed::PackedMessages,
    service::settings::CompressionSettings,
    wire::frisbee::{
        bytes::{
            compressed::CompressionHeader,
            envelope::{self, Envelope, StreamFrame},
            hello::PeerHello,
            schema::MethodDescription,
        },
        calling::{
            pending::{self, PendingCalls},
            table::{CallReply, NoAnswer},
        },
    },
};

/// Calls in flight on a connection.
#[derive(Debug)]
pub struct CallTable {
    calls: PendingCalls,
    connection: u64,
}

/// A call in flight.
pub struct PendingCall<'a>(pending::PendingCall<'a>);

impl CallTable {
    /// Creates a table for at most `calls_max` concurrent calls.
    pub fn new(calls_max: usize) -> Self {
        let calls = PendingCalls::new(calls_max);
        Self { connection: calls.open(), calls }
    }

    /// Begins a call. `None` at the limit, and an error if the connection takes no calls.
    pub fn begin(&self, operation: Operation) -> Result<Option<PendingCall<'_>>, ()> {
        self.calls.try_begin(operation.number(), None, None).map(|begun| begun.map(PendingCall)).map_err(drop)
    }

    /// Completes the call answered by a packet, or returns the packet if no call matches.
    pub fn complete(&self, packet: Packet) -> Option<Packet> {
        self.calls.complete(packet)
    }

    /// Ends the call with a too large answer.
    pub fn fail(&self, id: u16, operation: Operation) -> bool {
        self.calls.fail(id, operation, NoAnswer::TooLarge { announced: 2, limit: 1 })
    }

    /// Returns whether so many answers are outstanding that no call can begin.
    pub fn is_out_of_ids(&self) -> bool {
        self.calls.is_out_of_ids()
    }

    /// Ends every call.
    pub fn close(&self) {
        self.calls.close(self.connection, &CloseReason::Local);
    }
}

impl PendingCall<'_> {
    /// Returns the id of the call's packet.
    pub fn id(&self) -> u16 {
        self.0.id
    }

    /// Marks the packet of the call as sent.
    pub fn sent(&mut self) {
        self.0.sent(None);
    }

    /// Returns the answer, once.
    pub fn answer(&mut self) -> Option<Result<Bytes, ()>> {
        let answer = self.0.answered().now_or_never()?;
        Some(answer.map_err(drop).map(|(CallReply::Plain(content) | CallReply::Extended(content))| content))
    }
}

/// Reads bytes of an extended peer in every role: as a packet, stream data, a table of methods, and a method
/// description.
///
/// Returns the size of the decoded metadata and the total length of the messages. A compressed message has at most
/// `inflated_max` bytes after inflation.
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
    let messages = match StreamFrame::decode(content.clone(), metadata_max) {
        Ok(StreamFrame::Messages(messages)) => Some(messages),
        Ok(StreamFrame::Compressed(compressed, bytes)) => {
            inflate(compressed, &bytes, inflated_max).map(PackedMessages::new)
        }
        _ => None,
    };
    if let Some(mut messages) = messages {
        while let Some(Ok(message)) = messages.next() {
            messages_len += message.len();
        }
    }
    drop(envelope::parse_open(content, metadata_max));
    drop(PeerHello::decode(content.clone()));
    drop(MethodDescription::decode(content.clone()));
    (metadata_len, messages_len)
}

fn inflate(compressed: CompressionHeader, bytes: &[u8], inflated_max: u32) -> Option<Bytes> {
    let algorithm = compressed.check(&CompressionSettings::default(), inflated_max).ok()?;
    compressed.inflate(algorithm, bytes).ok()
}
