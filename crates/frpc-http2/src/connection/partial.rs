//! Frames and header blocks whose rest has not arrived.

use std::time::Instant;

use crate::frame::{FrameHeader, flag, kind};

/// The rest of a DATA frame whose start was handled.
#[derive(Clone, Copy, Debug)]
pub(super) struct DataRest {
    pub(super) stream: u32,
    pub(super) len: u32,
    pub(super) end: bool,
}

impl DataRest {
    /// Returns the header of a frame with this content.
    pub(super) fn header(self) -> FrameHeader {
        let flags = if self.end { flag::END_STREAM } else { 0 };
        FrameHeader { len: self.len as usize, kind: kind::DATA, flags, stream: self.stream }
    }
}

/// A header block without its last frame.
#[derive(Debug)]
pub(super) struct OpenBlock {
    pub(super) stream: u32,
    pub(super) end: bool,
    pub(super) depends_on_itself: bool,
    /// The time for the last frame.
    pub(super) due: Instant,
}
