//! Compressed messages between extended peers.
//!
//! A side compresses messages if configured, for a peer that has announced support; see docs/protocol.md. Inflation has
//! three limits: each message has the size limit of contents, all inflated messages share the budget of the connection,
//! and memory grows only with the bytes actually inflated.

use std::{sync::Arc, time::Duration};

use bytes::{Buf, BufMut, Bytes};
use tokio::{
    sync::{OwnedSemaphorePermit, Semaphore},
    time::timeout,
};

use crate::{
    call::status::{Code, Status},
    codec::{Compression, EncodedMessage},
    service::settings::CompressionSettings,
};

/// The algorithm of compressed bytes, and their inflated length.
///
/// ```text
///   algorithm u8 | inflated length u32
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct CompressionHeader {
    algorithm: u8,
    inflated_len: u32,
}

impl CompressionHeader {
    /// Decodes it from the start of compressed bytes. `None` if they are too short.
    pub(crate) fn decode(input: &mut impl Buf) -> Option<Self> {
        let algorithm = input.try_get_u8().ok()?;
        Some(Self { algorithm, inflated_len: input.try_get_u32().ok()? })
    }

    pub(crate) fn encode(self) -> [u8; COMPRESSED_LEN] {
        let mut out = [self.algorithm; COMPRESSED_LEN];
        (&mut out[1..]).put_u32(self.inflated_len);
        out
    }

    /// Returns the algorithm, if this side supports it and the inflated length is at most `limit`.
    pub(crate) fn check(self, compressing: &CompressionSettings, limit: u32) -> Result<Compression, CannotInflate> {
        let Self { algorithm, inflated_len } = self;
        let algorithm = compressing.accepts(algorithm).ok_or_else(|| self.unknown())?;
        if inflated_len <= limit { Ok(algorithm) } else { Err(CannotInflate::TooLarge { inflated_len, limit }) }
    }

    pub(crate) fn unknown(self) -> CannotInflate {
        CannotInflate::Unknown { algorithm: self.algorithm }
    }

    /// Inflates the bytes with the checked algorithm.
    pub(crate) fn inflate(self, algorithm: Compression, bytes: &[u8]) -> Result<Bytes, CannotInflate> {
        let inflated = algorithm.inflate(bytes, self.inflated_len as usize);
        inflated.map(Bytes::from).map_err(|_| CannotInflate::Malformed)
    }
}

/// The length of the header before compressed bytes.
pub(crate) const COMPRESSED_LEN: usize = 1 + 4;

/// The reason why bytes of the peer are not inflated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CannotInflate {
    /// This side has not announced the algorithm.
    Unknown {
        algorithm: u8,
    },
    TooLarge {
        inflated_len: u32,
        limit: u32,
    },
    /// The budget of the connection is used up.
    NoRoom {
        inflated_len: u32,
        limit: usize,
    },
    Malformed,
}

impl CannotInflate {
    /// Returns the status for a call with a compressed request.
    pub(crate) fn request_status(self) -> Status {
        self.status("request", Code::InvalidArgument)
    }

    /// Returns the status for a call with a compressed answer.
    pub(crate) fn answer_status(self) -> Status {
        self.status("answer", Code::Internal)
    }

    fn status(self, which: &str, malformed: Code) -> Status {
        match self {
            Self::Unknown { algorithm } => Status::unimplemented(format!(
                "the {which} is compressed with algorithm {algorithm}, which its receiver did not say it inflates"
            )),
            Self::TooLarge { inflated_len, limit } => Status::resource_exhausted(format!(
                "the {which} has {inflated_len} bytes when it is inflated, and its receiver accepts at most {limit} \
                 (content_len_max)"
            )),
            Self::NoRoom { inflated_len, limit } => Status::resource_exhausted(format!(
                "the {which} has {inflated_len} bytes when it is inflated, and its receiver holds too many others: at \
                 most {limit} bytes on a connection (inflated_len_max)"
            )),
            Self::Malformed => {
                Status::new(malformed, format!("the {which} does not inflate to the length that it announces"))
            }
        }
    }
}

/// The budget for inflated bytes on a connection.
///
/// A message counts while its handler runs. Messages of a stream count until the next ones are requested.
#[derive(Debug)]
pub(crate) struct InflateBudget {
    room: Arc<Semaphore>,
    len_max: usize,
}

/// A part of the budget.
pub(crate) type InflatePermit = OwnedSemaphorePermit;

/// Inflated bytes with their part of the budget.
pub(crate) struct BudgetedBytes {
    pub(crate) bytes: Bytes,
    pub(crate) _held: InflatePermit,
}

impl AsRef<[u8]> for BudgetedBytes {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

impl InflateBudget {
    /// Creates a budget. It has room for at least one message of the maximum content length.
    pub(crate) fn new(compressing: &CompressionSettings, content_len_max: u32) -> Self {
        let len_max = compressing.inflated_len_max.max(content_len_max as usize).min(Semaphore::MAX_PERMITS);
        Self { room: Arc::new(Semaphore::new(len_max)), len_max }
    }

    /// Reserves room for inflated bytes, if there is enough now.
    pub(crate) fn try_hold(&self, compressed: CompressionHeader) -> Result<InflatePermit, CannotInflate> {
        let held = self.room.clone().try_acquire_many_owned(compressed.inflated_len);
        held.map_err(|_| self.no_room(compressed))
    }

    /// Reserves room for inflated bytes, and waits for it at most this long.
    pub(crate) async fn hold(
        &self,
        compressed: CompressionHeader,
        wait_max: Duration,
    ) -> Result<InflatePermit, CannotInflate> {
        if let Ok(held) = self.try_hold(compressed) {
            return Ok(held);
        }
        let room = self.room.clone().acquire_many_owned(compressed.inflated_len);
        timeout(wait_max, room).await.ok().and_then(Result::ok).ok_or_else(|| self.no_room(compressed))
    }

    fn no_room(&self, compressed: CompressionHeader) -> CannotInflate {
        CannotInflate::NoRoom { inflated_len: compressed.inflated_len, limit: self.len_max }
    }
}

/// The compression settings of this side for one peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct PeerCompression {
    algorithm: Compression,
    len_min: usize,
    /// The maximum content length of the peer. Messages above it before compression are not sent, compressed or not.
    limit: u32,
}

impl PeerCompression {
    /// Returns settings with this side's first algorithm that the peer supports.
    pub(crate) fn choose(compressing: &CompressionSettings, inflates: &[u8], limit: u32) -> Option<Self> {
        let algorithm = compressing.send.iter().copied().find(|send| inflates.contains(&send.number()))?;
        Some(Self { algorithm, len_min: compressing.len_min, limit })
    }

    /// Returns whether messages of this length are compressed, if that makes them shorter.
    pub(crate) fn takes(&self, len: usize) -> bool {
        (self.len_min..=self.limit as usize).contains(&len)
    }

    /// Compresses bytes of a length accepted by [`takes`](Self::takes), if that makes them shorter.
    pub(crate) fn deflate(&self, bytes: &[u8]) -> Option<(CompressionHeader, Vec<u8>)> {
        let inflated_len = u32::try_from(bytes.len()).ok()?;
        let deflated = self.algorithm.deflate(bytes)?;
        Some((CompressionHeader { algorithm: self.algorithm.number(), inflated_len }, deflated))
    }
}

/// An outgoing message of a unary call or its answer.
#[derive(Clone, Debug)]
pub(crate) struct OutgoingMessage {
    pub(crate) compressed: Option<CompressionHeader>,
    pub(crate) message: EncodedMessage,
}

impl From<EncodedMessage> for OutgoingMessage {
    fn from(message: EncodedMessage) -> Self {
        Self { compressed: None, message }
    }
}

impl OutgoingMessage {
    /// Compresses a message if configured and if that makes it shorter.
    pub(crate) fn new(message: EncodedMessage, deflating: Option<PeerCompression>) -> Self {
        let Some(deflating) = deflating.filter(|deflating| deflating.takes(message.len())) else {
            return message.into();
        };
        let bytes = message.into_bytes();
        match deflating.deflate(&bytes) {
            Some((compressed, deflated)) => {
                Self { compressed: Some(compressed), message: Bytes::from(deflated).into() }
            }
            None => EncodedMessage::from(bytes).into(),
        }
    }
}
