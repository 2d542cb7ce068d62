//! Contents in pieces, with other frames in between.
//!
//! ```text
//!   PIECE = header with operation 5 | [ operation u16 | total u32 | ] bytes        [ ] in the first piece only
//!
//!   none ──first──▶ kept ──last──▶ none   (a frame)
//!     └────first, total too large──▶ skipped ──last──▶ none
//! ```

use bytes::{Buf as _, BufMut as _, Bytes, BytesMut};

use super::{
    decoder::Frame,
    header::{FrameKind, Header, HeaderFormat},
};
use crate::ProtocolError;

/// Encodes the header of a piece of `len` bytes, and the extra fields of a first piece. Returns the number of
/// content bytes in the piece.
///
/// `header` is the header of the whole content.
pub(super) fn encode_head(
    header: Header,
    is_begun: bool,
    len: usize,
    format: HeaderFormat,
    out: &mut BytesMut,
) -> usize {
    let short = u32::try_from(len).expect("a piece is no longer than its content");
    Header::piece(header.id, short).encode(format, out);
    if is_begun {
        return len;
    }
    out.put_u16(header.operation);
    out.put_u32(header.len);
    len - FIRST_LEN
}

/// The content arriving in pieces. There is at most one.
#[derive(Debug, Default)]
pub(super) struct PieceAssembly {
    under_way: Option<PartialContent>,
    /// The buffer of the previous content, for reuse once no slice of it is left.
    spare: BytesMut,
    spare_is_idle: bool,
}

#[derive(Debug)]
struct PartialContent {
    id: u16,
    kind: FrameKind,
    left: usize,
    /// The pieces received so far, unless they are skipped.
    content: Option<BytesMut>,
}

/// The extra fields of a first piece.
pub(super) struct FirstPieceFields {
    /// The meaning of the operation.
    pub(super) kind: FrameKind,
    /// The length of the whole content.
    pub(super) total: u32,
}

impl FirstPieceFields {
    /// Removes the extra fields from the content of a first piece.
    pub(super) fn decode(content: &mut Bytes) -> Result<Self, ProtocolError> {
        let operation = content.try_get_u16().map_err(|_| malformed("is too short"))?;
        let total = content.try_get_u32().map_err(|_| malformed("is too short"))?;
        match FrameKind::of(operation) {
            kind @ (FrameKind::Stream | FrameKind::Extended | FrameKind::Application(_)) => Ok(Self { kind, total }),
            _ => Err(malformed("has an operation of the protocol itself")),
        }
    }
}

impl PieceAssembly {
    /// Returns `true` while a content is incomplete.
    pub(super) fn is_under_way(&self) -> bool {
        self.under_way.is_some()
    }

    /// Starts a content. Its first piece must be [added](Self::add) next.
    pub(super) fn begin(&mut self, id: u16, first: &FirstPieceFields, is_kept: bool) {
        let content = is_kept.then(|| {
            self.spare_is_idle = false;
            let mut content = std::mem::take(&mut self.spare);
            // Reuses the buffer only if it is free and large enough. Nothing is allocated for the announced
            // length.
            if !content.try_reclaim(first.total as usize) {
                content = BytesMut::new();
            }
            content
        });
        self.under_way = Some(PartialContent { id, kind: first.kind, left: first.total as usize, content });
    }

    /// Adds a piece. Returns the frame of a complete content that was not skipped.
    pub(super) fn add(&mut self, id: u16, piece: &Bytes) -> Result<Option<Frame>, ProtocolError> {
        let Some(under_way) = &mut self.under_way else { return Ok(None) };
        if under_way.id != id {
            return Err(malformed("has another id than the content under way"));
        }
        if piece.is_empty() {
            return Err(malformed("has nothing in it"));
        }
        if piece.len() > under_way.left {
            return Err(malformed("goes beyond its content"));
        }
        if let Some(content) = &mut under_way.content {
            if content.capacity() - content.len() < piece.len() {
                // At most a few times the bytes actually received, whatever the peer announced.
                let grown = (3 * content.len()).max(piece.len());
                content.reserve(under_way.left.min(grown));
            }
            content.extend_from_slice(piece);
        }
        under_way.left -= piece.len();
        if under_way.left > 0 {
            return Ok(None);
        }
        let PartialContent { id, kind, content, .. } = self.under_way.take().expect("it was there above");
        Ok(content.map(|mut content| {
            let whole = content.split().freeze();
            self.spare = content;
            Frame { id, kind, content: whole, skipped: 0 }
        }))
    }

    /// Frees the spare buffer if it was not used since the last call.
    pub(super) fn release(&mut self) {
        if std::mem::replace(&mut self.spare_is_idle, true) {
            self.spare = BytesMut::new();
        }
    }
}

fn malformed(why: &'static str) -> ProtocolError {
    ProtocolError::BadControl { kind: "PIECE", why }
}

/// The length of the extra fields in a first piece.
const FIRST_LEN: usize = size_of::<u16>() + size_of::<u32>();
