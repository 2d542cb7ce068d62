//! The contents of extended packets and stream data: calls and answers with metadata, deadlines and formats.
//!
//! ```text
//!   REQUEST = 01 | operation u16 | format u8 | head | message
//!   ANSWER  = 02 |                             head | message
//!   FAILURE = 03 |                             head
//!   DESCRIBE = 04 |                            head | operation u16       the message of its answer is a DESCRIPTION
//!   OPEN    = 10 | operation u16 | format u8 | head             the first data of a call's stream
//!   MESSAGES = 11 | messages, encoded as in `packed`            any number of messages
//!   HEAD    = 12 | head                                        metadata before the messages of an answer
//!   END     = 13 | head                                        with trailers, from the answering side
//!   COMPRESSED = 14 | compressed | bytes                       inflate to the messages of a MESSAGES
//!   FAILURE = 03 | head                                        instead of END
//!
//!   head    = length u32 | field…       field = tag u8 | length u32 | value
//!   value of METADATA and TRAILER = length of the name u16 | name | value
//! ```

use std::{
    collections::VecDeque,
    mem,
    task::{Context, Poll},
    time::Duration,
};

use bytes::{Buf, BufMut, Bytes};
use frisbee::{Content, RefusalReason};

use super::compressed::{COMPRESSED_LEN, CompressionHeader, OutgoingMessage, PeerCompression};
use crate::{
    call::{
        metadata::{Metadata, MetadataEntry},
        packed::{self, MessagePrefix, PackedMessages, PollNext},
        status::{Code, Status},
        streaming::Streaming,
    },
    codec::{EncodedMessage, Format, SmallMessage},
    error::{CallError, ServerCause, ServerFailure},
};

/// A content with a decoded head. The message is not decoded.
#[derive(Debug)]
pub(crate) enum Envelope {
    Request {
        operation: u16,
        format: Format,
        head: HeadFields,
        message: Bytes,
    },
    Answer {
        head: HeadFields,
        message: Bytes,
    },
    Failure(HeadFields),
    /// Asks for a description of a method's messages.
    Describe {
        operation: u16,
    },
}

/// A frame of a stream between extended peers.
#[derive(Debug)]
pub(crate) enum StreamFrame {
    /// Uncompressed messages.
    Messages(PackedMessages),
    /// Compressed messages.
    Compressed(CompressionHeader, Bytes),
    Head(HeadFields),
    End(HeadFields),
    Failure(HeadFields),
    /// An unknown kind, from a later version of the protocol.
    Unknown,
}

/// The first data of a call's stream.
#[derive(Debug)]
pub(crate) struct OpenFrame {
    pub(crate) operation: u16,
    pub(crate) format: Format,
    pub(crate) head: HeadFields,
}

/// The decoded fields of a head.
#[derive(Debug, Default)]
pub(crate) struct HeadFields {
    /// The remaining time for the call.
    pub(crate) timeout: Option<Duration>,
    pub(crate) metadata: Metadata,
    pub(crate) trailers: Metadata,
    /// Present if the message is compressed.
    pub(crate) compressed: Option<CompressionHeader>,
    code: u8,
    text: String,
    details: Bytes,
    cause: Option<ServerCause>,
}

/// Encodes a request.
pub(crate) fn request(
    operation: u16,
    format: Format,
    timeout: Option<Duration>,
    metadata: &Metadata,
    message: impl Into<OutgoingMessage>,
) -> EncodedMessage {
    let OutgoingMessage { compressed, message } = message.into();
    let len = head_len(REQUEST_LEN + timeout.map_or(0, |_| TIMEOUT_LEN), &[metadata], compressed);
    join(message, len, |out| {
        out.push(REQUEST);
        out.put_u16(operation);
        out.put_u8(number(format));
        with_head(out, |out| {
            put_timeout(out, timeout);
            put_metadata(out, METADATA, metadata);
            put_compressed(out, compressed);
        });
    })
}

/// Encodes an answer. Its message has the format of the request.
pub(crate) fn answer(metadata: &Metadata, trailers: &Metadata, message: impl Into<OutgoingMessage>) -> EncodedMessage {
    let OutgoingMessage { compressed, message } = message.into();
    let len = head_len(ANSWER_LEN, &[metadata, trailers], compressed);
    join(message, len, |out| {
        out.push(ANSWER);
        with_head(out, |out| {
            put_metadata(out, METADATA, metadata);
            put_metadata(out, TRAILER, trailers);
            put_compressed(out, compressed);
        });
    })
}

/// Encodes an answer with nothing but a message.
pub(crate) fn bare_answer(message: EncodedMessage) -> EncodedMessage {
    join(message, ANSWER_LEN, |out| out.extend_from_slice(&BARE_ANSWER))
}

/// Returns the message of an answer with nothing but a message. Any other content is returned unchanged.
pub(crate) fn bare_answer_message(mut content: Bytes) -> Result<Bytes, Bytes> {
    if !content.starts_with(&BARE_ANSWER) {
        return Err(content);
    }
    content.advance(ANSWER_LEN);
    Ok(content)
}

/// Encodes a request for the description of a method's messages.
pub(crate) fn describe(operation: u16) -> Bytes {
    let mut out = vec![DESCRIBE];
    // The head comes first, as in an answer: peers that do not know the kind still read the head.
    with_head(&mut out, |_| {});
    out.put_u16(operation);
    out.into()
}

/// Encodes a failure in at most `limit` bytes. Details and metadata are omitted first, then the text.
pub(crate) fn failure(failure: &ServerFailure, limit: u32, metadata_max: usize) -> Bytes {
    let ServerFailure { status, cause } = failure;
    let encoded = |text: &str, with_rest: bool| {
        let mut out = vec![FAILURE];
        with_head(&mut out, |out| {
            put_field(out, CODE, &[status.code().into()]);
            put_field(out, TEXT, text.as_bytes());
            put_cause(out, *cause);
            if with_rest {
                put_field(out, DETAILS, status.details());
                put_metadata(out, METADATA, status.metadata());
            }
        });
        Some(Bytes::from(out)).filter(|content| content.len() <= limit as usize)
    };
    let fits = metadata_len(status.metadata()) <= metadata_max;
    fits.then(|| encoded(status.message(), true))
        .flatten()
        .or_else(|| encoded(status.message(), false))
        .or_else(|| encoded("the error message is too large", false))
        .unwrap_or_else(|| Bytes::from_static(&[FAILURE, 0, 0, 0, 0]))
}

/// Encodes the first data of a call's stream.
pub(crate) fn open(operation: u16, format: Format, timeout: Option<Duration>, metadata: &Metadata) -> Bytes {
    let mut out = vec![OPEN];
    out.put_u16(operation);
    out.put_u8(number(format));
    with_head(&mut out, |out| {
        put_timeout(out, timeout);
        put_metadata(out, METADATA, metadata);
    });
    out.into()
}

/// Decodes the first data of a stream. `None` if it does not open an extended call.
pub(crate) fn parse_open(content: &Bytes, metadata_max: usize) -> Option<Result<OpenFrame, Status>> {
    if content.first() != Some(&OPEN) {
        return None;
    }
    let mut input = content.slice(1..);
    let mut parse = || {
        let operation = input.try_get_u16().map_err(|_| malformed("ends in front of its operation"))?;
        let format = format(input.try_get_u8().map_err(|_| malformed("ends in front of its format"))?)?;
        Ok(OpenFrame { operation, format, head: read_head(&mut input, metadata_max)? })
    };
    Some(parse())
}

/// Returns whether a frame is the last of its direction.
pub(crate) fn is_end(content: &[u8]) -> bool {
    matches!(content.first(), Some(&(END | FAILURE)))
}

/// Encodes the metadata before the messages of an answer.
pub(crate) fn head(metadata: &Metadata) -> Bytes {
    alone(HEAD, METADATA, metadata)
}

/// Encodes the last frame of a direction.
pub(crate) fn end(trailers: &Metadata) -> Bytes {
    alone(END, TRAILER, trailers)
}

/// Encodes a frame with nothing but a head of metadata.
fn alone(kind: u8, tag: u8, metadata: &Metadata) -> Bytes {
    let mut out = vec![kind];
    with_head(&mut out, |out| put_metadata(out, tag, metadata));
    out.into()
}

/// Encodes a frame with a single message.
pub(crate) fn one_message(content: Bytes) -> Content {
    let mut messages = OutgoingBatch::new(u32::MAX);
    messages.push(content);
    messages.take().pop_front().expect("one message makes one data")
}

/// Messages to be sent together. Small messages share a frame, up to a limit. Each large message gets its own frame.
pub(crate) struct OutgoingBatch {
    limit: usize,
    data: VecDeque<Content>,
    /// The total length of `data`.
    data_len: usize,
    /// Encoded small messages.
    small: Vec<u8>,
    /// The length of the previous frame of small messages, used as the capacity of the next.
    last_len: usize,
}

impl OutgoingBatch {
    pub(crate) fn new(limit: u32) -> Self {
        Self { limit: limit as usize, data: VecDeque::new(), data_len: 0, small: Vec::new(), last_len: 0 }
    }

    /// Waits for a message of a stream, and takes further messages that are ready. Returns the end of the stream, if it
    /// is reached.
    pub(crate) fn poll_fill(&mut self, cx: &mut Context<'_>, messages: &mut Streaming<Bytes>) -> PollNext<()> {
        // Up to this length, any small message can share the frame. With a low limit, each message is checked.
        let full = BATCH_LEN_MAX.min(self.limit.saturating_sub(packed::COPIED_LEN_MAX + packed::LEN_LEN));
        while self.data_len + self.small.len() < BATCH_LEN_MAX {
            if self.small.is_empty() {
                self.small.reserve_exact(self.last_len);
                self.small.push(MESSAGES);
            }
            let small_len = self.small.len();
            let polled = messages.poll_into(cx, &mut self.small, full, MessagePrefix::Length);
            self.split(small_len);
            match polled {
                Poll::Ready(Some(Ok(None))) => {}
                Poll::Ready(Some(Ok(Some(message)))) => self.push(message),
                Poll::Ready(Some(Err(status))) => return Poll::Ready(Some(Err(status))),
                Poll::Ready(None) => return Poll::Ready(Some(Ok(()))),
                Poll::Pending if self.is_empty() => {
                    // A waiting stream holds no buffer.
                    self.small = Vec::new();
                    return Poll::Pending;
                }
                Poll::Pending => break,
            }
        }
        Poll::Ready(None)
    }

    fn is_empty(&self) -> bool {
        self.data.is_empty() && self.small.len() <= KIND_LEN
    }

    /// Appends a message.
    fn push(&mut self, message: Bytes) {
        if message.len() > packed::COPIED_LEN_MAX {
            self.flush();
            let mut front = vec![MESSAGES];
            packed::put_len(&mut front, message.len());
            self.add(vec![front.into(), message].into());
            return;
        }
        if self.small.is_empty() {
            self.small.push(MESSAGES);
        }
        let small_len = self.small.len();
        packed::put(&mut self.small, &message);
        self.split(small_len);
    }

    /// Moves the last message to a separate frame, if the shared frame exceeds the limit.
    fn split(&mut self, small_len: usize) {
        if self.small.len() > self.limit && small_len > KIND_LEN {
            let last = self.small.split_off(small_len);
            self.flush();
            self.small.push(MESSAGES);
            self.small.extend_from_slice(&last);
        }
    }

    /// Takes all frames.
    pub(crate) fn take(&mut self) -> VecDeque<Content> {
        self.flush();
        self.data_len = 0;
        mem::take(&mut self.data)
    }

    /// Completes the current frame of small messages.
    fn flush(&mut self) {
        if self.small.len() > KIND_LEN {
            self.last_len = self.small.len();
            let small = mem::take(&mut self.small);
            self.add(small.into());
        }
    }

    fn add(&mut self, data: Content) {
        self.data_len += data.len();
        self.data.push_back(data);
    }
}

/// Compresses the messages of a frame, if they are long enough and if that makes them shorter.
pub(crate) fn deflate(data: Content, deflating: &PeerCompression) -> Content {
    if !deflating.takes(data.len() - KIND_LEN) {
        return data;
    }
    let bytes = data.into_bytes();
    debug_assert_eq!(bytes[0], MESSAGES, "nothing else is compressed");
    match deflating.deflate(&bytes[KIND_LEN..]) {
        Some((compressed, deflated)) => join(Bytes::from(deflated).into(), KIND_LEN + COMPRESSED_LEN, |out| {
            out.push(COMPRESSED);
            out.put_slice(&compressed.encode());
        })
        .into(),
        None => bytes.into(),
    }
}

impl StreamFrame {
    /// Decodes a frame of a stream, except for the opening.
    pub(crate) fn decode(mut input: Bytes, metadata_max: usize) -> Result<Self, Status> {
        match input.try_get_u8().map_err(|_| malformed("is empty"))? {
            MESSAGES => Ok(Self::Messages(PackedMessages::new(input))),
            COMPRESSED => Ok(Self::Compressed(read_compressed(&mut input)?, input)),
            HEAD => Ok(Self::Head(read_head(&mut input, metadata_max)?)),
            END => Ok(Self::End(read_head(&mut input, metadata_max)?)),
            FAILURE => Ok(Self::Failure(read_head(&mut input, metadata_max)?)),
            _ => Ok(Self::Unknown),
        }
    }
}

/// Returns whether a content is an answer or a failure.
pub(crate) fn is_answer(content: &[u8]) -> bool {
    matches!(content.first(), Some(&(ANSWER | FAILURE)))
}

/// Returns the operation and timeout of a request without decoding the rest.
pub(crate) fn timeout_of(content: &[u8]) -> Option<(u16, Option<Duration>)> {
    let mut input = content;
    if input.try_get_u8().ok()? != REQUEST {
        return None;
    }
    let operation = input.try_get_u16().ok()?;
    let _format = input.try_get_u8().ok()?;
    let len = input.try_get_u32().ok()? as usize;
    let mut head = input.get(..len)?;
    while head.has_remaining() {
        let (tag, len) = (head.get_u8(), head.try_get_u32().ok()? as usize);
        let (mut value, rest) = head.split_at_checked(len)?;
        if tag == TIMEOUT {
            return Some((operation, value.try_get_u64().ok().map(Duration::from_micros)));
        }
        head = rest;
    }
    Some((operation, None))
}

impl Envelope {
    /// Decodes a content with at most `metadata_max` bytes of metadata. An error is the status to send back.
    pub(crate) fn decode(mut input: Bytes, metadata_max: usize) -> Result<Self, Status> {
        let kind = input.try_get_u8().map_err(|_| malformed("is empty"))?;
        let (operation, format) = match kind {
            REQUEST => {
                let operation = input.try_get_u16().map_err(|_| malformed("ends in front of its operation"))?;
                (operation, format(input.try_get_u8().map_err(|_| malformed("ends in front of its format"))?)?)
            }
            _ => (0, Format::default()),
        };
        let head = read_head(&mut input, metadata_max)?;
        match kind {
            REQUEST => Ok(Self::Request { operation, format, head, message: input }),
            ANSWER => Ok(Self::Answer { head, message: input }),
            FAILURE => Ok(Self::Failure(head)),
            DESCRIBE => {
                let operation = input.try_get_u16().map_err(|_| malformed("ends in front of its operation"))?;
                Ok(Self::Describe { operation })
            }
            kind => Err(Status::unimplemented(format!("no packet of the extended protocol has the kind {kind}"))),
        }
    }
}

impl HeadFields {
    /// Decodes the fields of a head, a slice of `whole`.
    fn decode(mut head: &[u8], whole: &Bytes, metadata_max: usize) -> Result<Self, Status> {
        let mut fields = Self::default();
        let mut metadata_len = 0;
        while head.has_remaining() {
            let tag = head.get_u8();
            let len = head.try_get_u32().map_err(|_| malformed("ends in a field"))? as usize;
            let Some((mut value, rest)) = head.split_at_checked(len) else {
                return Err(malformed("announces a field that is longer than its head"));
            };
            head = rest;
            match tag {
                TIMEOUT => {
                    let micros = value.try_get_u64().map_err(|_| malformed("has a timeout that is too short"))?;
                    fields.timeout = Some(Duration::from_micros(micros));
                }
                METADATA | TRAILER => {
                    // Checked before any of it is kept.
                    metadata_len += len + ENTRY_OVERHEAD;
                    if metadata_len > metadata_max {
                        return Err(Status::resource_exhausted(format!(
                            "the peer accepts at most {metadata_max} bytes of metadata (metadata_len_max)"
                        )));
                    }
                    let target = if tag == METADATA { &mut fields.metadata } else { &mut fields.trailers };
                    read_entry(value, target)?;
                }
                CODE => fields.code = value.try_get_u8().map_err(|_| malformed("has a status without a code"))?,
                TEXT => fields.text = String::from_utf8_lossy(value).into_owned(),
                DETAILS => fields.details = whole.slice_ref(value),
                CAUSE => fields.cause = read_cause(value),
                COMPRESSION => fields.compressed = Some(read_compressed(&mut value)?),
                _ => {}
            }
        }
        Ok(fields)
    }

    /// Returns the status of a failure of the server, with its [`CallError`] if the server itself reports the failure.
    pub(crate) fn into_server_status(self) -> Status {
        match self.cause {
            Some(cause) => CallError::from(cause).into(),
            None => self.into_status(),
        }
    }

    /// Returns the status of a failure. Never a success.
    pub(crate) fn into_status(self) -> Status {
        let code = match Code::from_number(self.code.into()) {
            Code::Ok => Code::Unknown,
            code => code,
        };
        Status::with_details_and_metadata(code, self.text, self.details, self.metadata)
    }
}

fn read_head(input: &mut Bytes, metadata_max: usize) -> Result<HeadFields, Status> {
    let len = input.try_get_u32().map_err(|_| malformed("ends in front of its head"))? as usize;
    let Some(head) = input.get(..len) else {
        return Err(malformed("announces a head that is longer than itself"));
    };
    let fields = HeadFields::decode(head, input, metadata_max)?;
    input.advance(len);
    Ok(fields)
}

fn read_compressed(input: &mut impl Buf) -> Result<CompressionHeader, Status> {
    CompressionHeader::decode(input).ok_or_else(|| malformed("ends in front of what is compressed"))
}

/// Decodes the cause of a failure. `None` if it is unknown or too short: the failure is then only a status.
fn read_cause(mut value: &[u8]) -> Option<ServerCause> {
    Some(match value.try_get_u8().ok()? {
        BUSY => ServerCause::Refused(RefusalReason::Busy),
        EXPIRED => ServerCause::Refused(RefusalReason::Expired),
        DRAINING => ServerCause::Refused(RefusalReason::Draining),
        REQUEST_TOO_LARGE => ServerCause::Refused(RefusalReason::TooLarge {
            announced: value.try_get_u32().ok()?,
            limit: value.try_get_u32().ok()?,
        }),
        TOO_MANY_CALLS => ServerCause::TooManyCalls { limit: value.try_get_u32().ok()? },
        ANSWER_TOO_LARGE => {
            ServerCause::AnswerTooLarge { len: value.try_get_u32().ok()?, limit: value.try_get_u32().ok()? }
        }
        _ => return None,
    })
}

/// Decodes a name and its value.
fn read_entry(mut entry: &[u8], metadata: &mut Metadata) -> Result<(), Status> {
    let name_len = usize::from(entry.try_get_u16().map_err(|_| malformed("has metadata without a name"))?);
    let Some((name, value)) = entry.split_at_checked(name_len) else {
        return Err(malformed("has metadata whose name is cut off"));
    };
    metadata.append_received(name, value).map_err(|error| Status::invalid_argument(error.to_string()))
}

/// Returns the size of metadata as counted against the peer's limit.
pub(crate) fn metadata_len(metadata: &Metadata) -> usize {
    // Two bytes for the length of each name.
    metadata.size() + 2 * metadata.len()
}

/// Checks metadata against the peer's size limit.
pub(crate) fn check_metadata(len: usize, metadata_max: usize) -> Result<(), Status> {
    if len <= metadata_max {
        return Ok(());
    }
    Err(Status::resource_exhausted(format!(
        "the metadata has {len} bytes, the peer accepts at most {metadata_max} (metadata_len_max)"
    )))
}

fn put_timeout(out: &mut Vec<u8>, timeout: Option<Duration>) {
    if let Some(timeout) = timeout {
        put_field(out, TIMEOUT, &u64::try_from(timeout.as_micros()).unwrap_or(u64::MAX).to_be_bytes());
    }
}

fn put_metadata(out: &mut Vec<u8>, tag: u8, metadata: &Metadata) {
    for MetadataEntry { name, value } in metadata.entries() {
        let name_len = u16::try_from(name.len()).expect("it is within the limit on metadata, which was checked");
        out.put_u8(tag);
        put_len(out, size_of_val(&name_len) + name.len() + value.len());
        out.put_u16(name_len);
        out.put_slice(name);
        out.put_slice(value);
    }
}

fn put_compressed(out: &mut Vec<u8>, compressed: Option<CompressionHeader>) {
    if let Some(compressed) = compressed {
        put_field(out, COMPRESSION, &compressed.encode());
    }
}

fn put_cause(out: &mut Vec<u8>, cause: Option<ServerCause>) {
    let (number, values) = match cause {
        Some(ServerCause::Refused(RefusalReason::Busy)) => (BUSY, [None; 2]),
        Some(ServerCause::Refused(RefusalReason::Expired)) => (EXPIRED, [None; 2]),
        Some(ServerCause::Refused(RefusalReason::Draining)) => (DRAINING, [None; 2]),
        Some(ServerCause::Refused(RefusalReason::TooLarge { announced, limit })) => {
            (REQUEST_TOO_LARGE, [Some(announced), Some(limit)])
        }
        Some(ServerCause::TooManyCalls { limit }) => (TOO_MANY_CALLS, [Some(limit), None]),
        Some(ServerCause::AnswerTooLarge { len, limit }) => (ANSWER_TOO_LARGE, [Some(len), Some(limit)]),
        // Later versions of frisbee may refuse for more reasons.
        Some(ServerCause::Refused(_)) | None => return,
    };
    let mut value = vec![number];
    values.into_iter().flatten().for_each(|number| value.put_u32(number));
    put_field(out, CAUSE, &value);
}

fn put_field(out: &mut Vec<u8>, tag: u8, value: &[u8]) {
    out.put_u8(tag);
    put_len(out, value.len());
    out.put_slice(value);
}

fn put_len(out: &mut Vec<u8>, len: usize) {
    out.put_u32(len.try_into().expect("what is longer is more than a packet carries, and refused before"));
}

/// Writes a head with its length before it.
fn with_head(out: &mut Vec<u8>, write: impl FnOnce(&mut Vec<u8>)) {
    let start = out.len();
    out.put_u32(0);
    write(out);
    let len = u32::try_from(out.len() - start - 4).expect("a head is bounded by the limit on metadata");
    out[start..start + 4].copy_from_slice(&len.to_be_bytes());
}

/// Returns the length of everything before a message. `others` is the length of the parts with a fixed size.
fn head_len(others: usize, metadata: &[&Metadata], compressed: Option<CompressionHeader>) -> usize {
    let framing = FIELD_LEN + size_of::<u16>();
    let metadata = metadata.iter().map(|metadata| metadata.size() - (ENTRY_OVERHEAD - framing) * metadata.len());
    others + metadata.sum::<usize>() + compressed.map_or(0, |_| FIELD_LEN + COMPRESSED_LEN)
}

/// Puts a head of this length in front of a message. Short messages and their heads share a buffer.
fn join(message: EncodedMessage, head_len: usize, write: impl FnOnce(&mut Vec<u8>)) -> EncodedMessage {
    let copied_len = match message {
        EncodedMessage::Small(message) if head_len + message.len() <= SmallMessage::LEN_MAX => {
            return EncodedMessage::Small(message.prepend(write));
        }
        EncodedMessage::Small(_) => Some(message.len()),
        EncodedMessage::One(ref message) => Some(message.len()).filter(|len| *len <= packed::COPIED_LEN_MAX),
        EncodedMessage::Several(_) => None,
    };
    // An exact capacity lets the full buffer become `Bytes` without another allocation.
    let mut head = Vec::with_capacity(head_len + copied_len.unwrap_or_default());
    write(&mut head);
    match message {
        message if copied_len.is_some() => {
            message.copy_to(&mut head);
            EncodedMessage::One(head.into())
        }
        EncodedMessage::Several(mut pieces) => {
            pieces.insert(0, head.into());
            EncodedMessage::Several(pieces)
        }
        message => EncodedMessage::Several(vec![head.into(), message.into_bytes()]),
    }
}

fn malformed(why: &str) -> Status {
    Status::invalid_argument(format!("a packet of the extended protocol {why}"))
}

fn number(format: Format) -> u8 {
    match format {
        Format::Polyglot => 0,
        Format::Proto => 1,
        Format::Json => 2,
    }
}

fn format(number: u8) -> Result<Format, Status> {
    match number {
        0 => Ok(Format::Polyglot),
        1 => Ok(Format::Proto),
        2 => Ok(Format::Json),
        _ => Err(Status::unimplemented(format!("no format of messages has the number {number}"))),
    }
}

const REQUEST: u8 = 1;
const ANSWER: u8 = 2;
const FAILURE: u8 = 3;
const DESCRIBE: u8 = 4;
const OPEN: u8 = 0x10;
const MESSAGES: u8 = 0x11;
const HEAD: u8 = 0x12;
const END: u8 = 0x13;
const COMPRESSED: u8 = 0x14;

const TIMEOUT: u8 = 1;
const METADATA: u8 = 2;
const TRAILER: u8 = 3;
const CODE: u8 = 4;
const TEXT: u8 = 5;
const DETAILS: u8 = 6;
const COMPRESSION: u8 = 7;
const CAUSE: u8 = 8;

const BUSY: u8 = 1;
const EXPIRED: u8 = 2;
const DRAINING: u8 = 3;
const REQUEST_TOO_LARGE: u8 = 4;
const TOO_MANY_CALLS: u8 = 5;
const ANSWER_TOO_LARGE: u8 = 6;

/// The overhead counted for each entry in addition to its bytes, as in [`Metadata::size`].
const ENTRY_OVERHEAD: usize = 32;
/// The total length of messages sent in one batch. A frame of small messages then fits into a read of 16 KiB.
pub(crate) const BATCH_LEN_MAX: usize = 15 * 1024;
/// The length of the kind at the start of a content.
const KIND_LEN: usize = 1;
/// The length of a request before its fields and message: kind, operation, format, and the length of the head.
const REQUEST_LEN: usize = KIND_LEN + 2 + 1 + 4;
/// The length of an answer before its fields and message.
pub(crate) const ANSWER_LEN: usize = KIND_LEN + 4;
/// The start of an answer without fields.
const BARE_ANSWER: [u8; ANSWER_LEN] = [ANSWER, 0, 0, 0, 0];
/// The length of a field before its value.
const FIELD_LEN: usize = 1 + 4;
const TIMEOUT_LEN: usize = FIELD_LEN + 8;

#[cfg(test)]
mod tests;
