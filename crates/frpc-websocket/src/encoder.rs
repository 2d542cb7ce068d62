//! Encoding of messages into frames.

use bytes::{BufMut, BytesMut};

use crate::{
    close::CloseFrame,
    decoder::{MessageKind, Role},
    frame::{FrameHeader, HEAD_LEN_MAX, Opcode},
    mask::{self, MaskGenerator},
};

/// An encoder of frames. It masks them on the client side.
pub(crate) struct Encoder {
    masks: Option<MaskGenerator>,
}

impl Encoder {
    pub(crate) fn new(role: Role) -> Self {
        Self { masks: (role == Role::Client).then(MaskGenerator::new) }
    }

    /// Appends a message as a single frame. Its content is the concatenation of `parts`.
    pub(crate) fn message<'a>(
        &mut self,
        kind: MessageKind,
        parts: impl Iterator<Item = &'a [u8]> + Clone,
        out: &mut BytesMut,
    ) {
        let opcode = match kind {
            MessageKind::Text => Opcode::Text,
            MessageKind::Binary => Opcode::Binary,
        };
        self.frame(opcode, parts, out);
    }

    /// Appends a control frame.
    pub(crate) fn control(&mut self, opcode: Opcode, content: &[u8], out: &mut BytesMut) {
        self.frame(opcode, [content].into_iter(), out);
    }

    pub(crate) fn close(&mut self, close: &CloseFrame, out: &mut BytesMut) {
        self.control(Opcode::Close, &close.content(), out);
    }

    fn frame<'a>(&mut self, opcode: Opcode, parts: impl Iterator<Item = &'a [u8]> + Clone, out: &mut BytesMut) {
        let len: usize = parts.clone().map(<[u8]>::len).sum();
        let mask = self.masks.as_mut().map(MaskGenerator::next);
        out.reserve(HEAD_LEN_MAX + len);
        FrameHeader { is_last: true, opcode, mask, len: len as u64 }.write(out);
        let at = out.len();
        parts.for_each(|part| out.put_slice(part));
        if let Some(mask) = mask {
            mask::apply(mask, 0, &mut out[at..]);
        }
    }
}
