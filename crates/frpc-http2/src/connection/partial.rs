//! Input that the next frame continues.

use std::{mem, sync::Arc, time::Instant};

use crate::{
    Head,
    frame::{FrameHeader, flag, kind},
};

/// The state between two frames.
#[derive(Debug, Default)]
pub(super) enum PartialInput {
    /// A new frame follows.
    #[default]
    None,
    /// The rest of a DATA frame follows.
    Data(DataRest),
    /// The rest of a header block follows.
    Block(OpenBlock),
    /// A header block follows that is decoded already. Decoding it again would change the table twice.
    Decoded(Arc<Head>),
}

impl PartialInput {
    #[inline]
    pub(super) fn is_none(&self) -> bool {
        matches!(self, Self::None)
    }

    #[inline]
    pub(super) fn data(&self) -> Option<DataRest> {
        match self {
            Self::Data(rest) => Some(*rest),
            _ => None,
        }
    }

    #[inline]
    pub(super) fn block(&self) -> Option<&OpenBlock> {
        match self {
            Self::Block(block) => Some(block),
            _ => None,
        }
    }

    pub(super) fn take_block(&mut self) -> Option<OpenBlock> {
        match mem::take(self) {
            Self::Block(block) => Some(block),
            other => {
                *self = other;
                None
            }
        }
    }

    #[inline]
    pub(super) fn take_decoded(&mut self) -> Option<Arc<Head>> {
        match self {
            Self::Decoded(_) => match mem::take(self) {
                Self::Decoded(head) => Some(head),
                _ => None,
            },
            _ => None,
        }
    }
}

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
