//! Contents in pieces, between which other frames may go.
//!
//! ```text
//!   PIECE = header with operation 5 | [ operation u16 | total u32 | ] bytes        the first piece has what is in brackets
//!
//!   None ──first──▶ Kept ──────the last──▶ None   (a frame)
//!     └────first, the total is too much──▶ Skipped ──the last──▶ None
//! ```

use bytes::{Buf as _, BufMut as _, Bytes, BytesMut};

use super::{
    decoder::Frame,
    header::{Header, HeaderFormat, Kind},
};
use crate::ProtocolError;

/// Writes the header of a piece that has `len` bytes with what the first has in front. Returns how many bytes of the content go
/// with it. `header` is that of the content.
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

/// The content that arrives in pieces. There is one at most.
#[derive(Debug, Default)]
pub(super) struct Assembly {
    under_way: Option<UnderWay>,
    /// The buffer of the last, to be used again when nobody holds a slice of it.
    spare: BytesMut,
    spare_is_idle: bool,
}

#[derive(Debug)]
struct UnderWay {
    id: u16,
    kind: Kind,
    left: usize,
    /// The pieces that are here, unless they are skipped.
    content: Option<BytesMut>,
}

/// A content that arrives in pieces, by its first.
pub(super) struct First {
    /// The meaning of its operation.
    pub(super) kind: Kind,
    /// Its length.
    pub(super) total: u32,
}

impl First {
    /// Takes what a first piece has in front off its content.
    pub(super) fn decode(content: &mut Bytes) -> Result<Self, ProtocolError> {
        let operation = content.try_get_u16().map_err(|_| malformed("is too short"))?;
        let total = content.try_get_u32().map_err(|_| malformed("is too short"))?;
        match Kind::of(operation) {
            kind @ (Kind::Stream | Kind::Extended | Kind::Application(_)) => Ok(Self { kind, total }),
            _ => Err(malformed("has an operation of the protocol itself")),
        }
    }
}

impl Assembly {
    /// Tells whether some pieces of a content are here, and not the last.
    pub(super) fn is_under_way(&self) -> bool {
        self.under_way.is_some()
    }

    /// Begins a content whose first piece is about to be [added](Self::add).
    pub(super) fn begin(&mut self, id: u16, first: &First, is_kept: bool) {
        let content = is_kept.then(|| {
            self.spare_is_idle = false;
            let mut content = std::mem::take(&mut self.spare);
            if !content.try_reclaim(first.total as usize) {
                content = BytesMut::new();
            }
            content
        });
        self.under_way = Some(UnderWay { id, kind: first.kind, left: first.total as usize, content });
    }

    /// Adds a piece. Returns the frame that the pieces stand for, when it is whole and not skipped.
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
                // Never more than a few times what has really arrived.
                let grown = (3 * content.len()).max(piece.len());
                content.reserve(under_way.left.min(grown));
            }
            content.extend_from_slice(piece);
        }
        under_way.left -= piece.len();
        if under_way.left > 0 {
            return Ok(None);
        }
        let UnderWay { id, kind, content, .. } = self.under_way.take().expect("it was there above");
        Ok(content.map(|mut content| {
            let whole = content.split().freeze();
            self.spare = content;
            Frame { id, kind, content: whole, skipped: 0 }
        }))
    }

    /// Lets go of a buffer that was not used since this was called last.
    pub(super) fn release(&mut self) {
        if std::mem::replace(&mut self.spare_is_idle, true) {
            self.spare = BytesMut::new();
        }
    }
}

fn malformed(why: &'static str) -> ProtocolError {
    ProtocolError::BadControl { kind: "PIECE", why }
}

/// The bytes in front of the first piece.
const FIRST_LEN: usize = size_of::<u16>() + size_of::<u32>();
