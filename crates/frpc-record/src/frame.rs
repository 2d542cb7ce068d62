//! Frames: the records of a file, without their meaning.

use bytes::{Bytes, BytesMut};
use frpc::prost::Message;

use crate::{
    error::{RecordingError, RecordingFault},
    protos::Event,
};

/// The maximum length of the head of a record.
pub const HEAD_LEN_MAX: usize = 1 << 20;

/// The maximum length of the content of a record: a message or a descriptor set.
pub const CONTENT_LEN_MAX: usize = 64 << 20;

/// The begin of a file: a name, then the version.
pub(crate) const FILE_HEAD: [u8; 16] = *b"frpc-record\n\x01\0\0\0";

const NAME_LEN: usize = 12;

/// The length of the fields before the head of a record.
pub(crate) const FRAME_LEN: usize = 16;

/// A record on its way to the file.
#[derive(Debug)]
pub(crate) struct Frame {
    /// The fields of the frame, and the head.
    pub(crate) head: Bytes,
    pub(crate) content: Bytes,
}

impl Frame {
    /// Encodes a record. `None` if it is too long for the format.
    pub(crate) fn new(event: &Event, content: Bytes) -> Option<Self> {
        let len = event.encoded_len();
        if len > HEAD_LEN_MAX || content.len() > CONTENT_LEN_MAX {
            return None;
        }
        let mut out = BytesMut::with_capacity(FRAME_LEN + len);
        out.resize(FRAME_LEN, 0);
        // A buffer in memory has room.
        event.encode(&mut out).ok()?;
        let checksum = crc32c::crc32c_append(crc32c::crc32c(&out[FRAME_LEN..]), &content);
        let fields = [u32::try_from(len).ok()?, u32::try_from(content.len()).ok()?, checksum];
        for (at, field) in fields.into_iter().enumerate() {
            out[at * 4..][..4].copy_from_slice(&field.to_le_bytes());
        }
        let checksum = crc32c::crc32c(&out[..12]);
        out[12..FRAME_LEN].copy_from_slice(&checksum.to_le_bytes());
        Some(Self { head: out.freeze(), content })
    }

    pub(crate) fn len(&self) -> usize {
        self.head.len() + self.content.len()
    }
}

/// The records of a file in memory.
pub(crate) struct Frames {
    bytes: Bytes,
    at: usize,
}

/// The next step of a reader.
pub(crate) enum NextFrame {
    Frame {
        offset: usize,
        event: Event,
        content: Bytes,
    },
    /// The file ends at the end of a record.
    End,
    /// The file ends within a record.
    Cut,
}

impl Frames {
    /// Checks the begin of the file. `None` for a file cut within it.
    pub(crate) fn new(bytes: Bytes) -> Result<Option<Self>, RecordingError> {
        let begin = &bytes[..bytes.len().min(FILE_HEAD.len())];
        let name = begin.len().min(NAME_LEN);
        if begin[..name] != FILE_HEAD[..name] {
            return Err(RecordingError::new(0, RecordingFault::Foreign));
        }
        if begin.len() < FILE_HEAD.len() {
            return Ok(None);
        }
        if begin != FILE_HEAD {
            return Err(RecordingError::new(NAME_LEN, RecordingFault::Version(number(&begin[NAME_LEN..]))));
        }
        Ok(Some(Self { at: FILE_HEAD.len(), bytes }))
    }

    /// Returns the position of the next record.
    pub(crate) fn offset(&self) -> usize {
        self.at
    }

    pub(crate) fn next(&mut self) -> Result<NextFrame, RecordingError> {
        let (offset, rest) = (self.at, &self.bytes[self.at..]);
        if rest.is_empty() {
            return Ok(NextFrame::End);
        }
        let Some((fields, rest)) = rest.split_at_checked(FRAME_LEN) else { return Ok(NextFrame::Cut) };
        if crc32c::crc32c(&fields[..12]) != number(&fields[12..]) {
            return Err(RecordingError::new(offset, RecordingFault::Checksum));
        }
        let [head_len, content_len] = [number(fields) as usize, number(&fields[4..]) as usize];
        if head_len > HEAD_LEN_MAX || content_len > CONTENT_LEN_MAX {
            return Err(RecordingError::record(offset, "is longer than the limits of the format"));
        }
        if rest.len() < head_len + content_len {
            return Ok(NextFrame::Cut);
        }
        if crc32c::crc32c(&rest[..head_len + content_len]) != number(&fields[8..]) {
            return Err(RecordingError::new(offset, RecordingFault::Checksum));
        }
        let event = Event::decode(&rest[..head_len]);
        let event =
            event.map_err(|error| RecordingError::record(offset, format_args!("has an invalid head: {error}")))?;
        let begin = offset + FRAME_LEN + head_len;
        self.at = begin + content_len;
        Ok(NextFrame::Frame { offset, event, content: self.bytes.slice(begin..self.at) })
    }
}

/// Returns the first four bytes as a number.
fn number(bytes: &[u8]) -> u32 {
    u32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]])
}
