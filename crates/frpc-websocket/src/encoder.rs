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

    pub(crate) fn ping(&mut self, content: &[u8], out: &mut BytesMut) {
        self.frame(Opcode::Ping, [content].into_iter(), out);
    }

    pub(crate) fn pong(&mut self, content: &[u8], out: &mut BytesMut) {
        self.frame(Opcode::Pong, [content].into_iter(), out);
    }

    pub(crate) fn close(&mut self, close: &CloseFrame, out: &mut BytesMut) {
        self.frame(Opcode::Close, [&*close.content()].into_iter(), out);
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

#[cfg(test)]
mod tests {
    use proptest::{collection::vec, prelude::*};

    use super::*;
    use crate::decoder::{Decoder, WebSocketEvent};

    fn read(role: Role, chunks: impl IntoIterator<Item = Vec<u8>>) -> Vec<(MessageKind, Vec<u8>)> {
        let (mut decoder, mut input) = (Decoder::new(role, 1 << 20), BytesMut::new());
        let (mut messages, mut message) = (Vec::new(), Vec::new());
        for chunk in chunks {
            input.extend_from_slice(&chunk);
            while let Some(piece) = decoder.next(&mut input).unwrap() {
                let WebSocketEvent::Data { kind, bytes, is_last } = piece else { continue };
                message.extend_from_slice(&bytes);
                if is_last {
                    messages.push((kind, std::mem::take(&mut message)));
                }
            }
        }
        assert!(decoder.is_between_messages() && input.is_empty());
        messages
    }

    proptest! {
        #[test]
        fn messages_round_trip_for_any_split(
            contents in vec(vec(any::<u8>(), 0..300), 1..5),
            chunk_len in 1..400_usize,
            is_client in any::<bool>(),
        ) {
            let (from, to) = if is_client { (Role::Client, Role::Server) } else { (Role::Server, Role::Client) };
            let (mut encoder, mut out) = (Encoder::new(from), BytesMut::new());
            for content in &contents {
                let (first, second) = content.split_at(content.len() / 3);
                encoder.ping(b"still there", &mut out);
                encoder.message(MessageKind::Binary, [first, second].into_iter(), &mut out);
            }
            let messages = read(to, out.chunks(chunk_len).map(<[u8]>::to_vec));
            let expected: Vec<_> = contents.into_iter().map(|content| (MessageKind::Binary, content)).collect();
            prop_assert_eq!(messages, expected);
        }
    }
}
