//! Frames of RFC 9113, section 4 and 6: their headers and payloads.

mod counters;
mod encode;
mod payload;

pub(crate) use counters::FrameBuffer;
pub use counters::{ConnectionFlow, FrameCount, FrameCounters};
pub(crate) use encode::{
    patch_len, put_goaway, put_header, put_ping, put_reset, put_settings, put_settings_ack, put_window_update,
    split_block,
};
pub(crate) use payload::{Setting, block_fragment, parse_goaway, parse_increment, parse_settings, parse_u32, unpad};

/// The bytes that a client sends first.
pub(crate) const PREFACE: &[u8; PREFACE_LEN as usize] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
pub(crate) const PREFACE_LEN: u8 = 24;

/// Bytes of a frame header.
pub(crate) const HEADER_LEN: usize = 9;

/// Types of frames.
pub(crate) mod kind {
    pub(crate) const DATA: u8 = 0;
    pub(crate) const HEADERS: u8 = 1;
    pub(crate) const PRIORITY: u8 = 2;
    pub(crate) const RST_STREAM: u8 = 3;
    pub(crate) const SETTINGS: u8 = 4;
    pub(crate) const PUSH_PROMISE: u8 = 5;
    pub(crate) const PING: u8 = 6;
    pub(crate) const GOAWAY: u8 = 7;
    pub(crate) const WINDOW_UPDATE: u8 = 8;
    pub(crate) const CONTINUATION: u8 = 9;
}

/// Flags of frames. ACK and END_STREAM share a bit, on different frames.
pub(crate) mod flag {
    pub(crate) const END_STREAM: u8 = 0x1;
    pub(crate) const ACK: u8 = 0x1;
    pub(crate) const END_HEADERS: u8 = 0x4;
    pub(crate) const PADDED: u8 = 0x8;
    pub(crate) const PRIORITY: u8 = 0x20;
}

/// Identifiers of settings.
pub(crate) mod setting {
    pub(crate) const HEADER_TABLE_SIZE: u16 = 1;
    pub(crate) const ENABLE_PUSH: u16 = 2;
    pub(crate) const MAX_CONCURRENT_STREAMS: u16 = 3;
    pub(crate) const INITIAL_WINDOW_SIZE: u16 = 4;
    pub(crate) const MAX_FRAME_SIZE: u16 = 5;
    pub(crate) const MAX_HEADER_LIST_SIZE: u16 = 6;
}

/// A parsed frame header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct FrameHeader {
    pub(crate) len: usize,
    pub(crate) kind: u8,
    pub(crate) flags: u8,
    pub(crate) stream: u32,
}

impl FrameHeader {
    /// Parses the start of `input`, or returns `None` if it is shorter than a frame header.
    #[inline]
    pub(crate) fn parse(input: &[u8]) -> Option<Self> {
        let &[a, b, c, kind, flags, d, e, f, g] = input.first_chunk::<HEADER_LEN>()?;
        let len = u32::from_be_bytes([0, a, b, c]) as usize;
        // The highest bit is reserved, and receivers ignore it.
        let stream = u32::from_be_bytes([d, e, f, g]) & 0x7fff_ffff;
        Some(Self { len, kind, flags, stream })
    }

    pub(crate) fn has(&self, flag: u8) -> bool {
        self.flags & flag != 0
    }
}
