//! Encoding of messages: at the root, nested, and the error alternative.

use std::{borrow::Borrow, mem};

use bytes::Bytes;

use super::{
    kind::Kind,
    message::Message,
    pieces::EncodedMessage,
    scalar::PolyglotScalar,
    sink::{CountingSink, SharingSink, Sink},
    small::SmallMessage,
    trailer,
    writer::Writer,
};

/// Encodes a message.
#[inline]
pub fn encode<M: Message>(message: &M) -> Bytes {
    encode_with_len(message, size_of_message(message).len())
}

#[inline]
fn encode_with_len<M: Message>(message: &M, len: usize) -> Bytes {
    let mut out = Writer::new(Vec::with_capacity(len));
    out.root(message);
    out.finish().into_boxed_slice().into()
}

/// Encodes a message without copying its large `Bytes` fields.
#[inline]
pub fn encode_pieces<M: Message>(message: &M) -> EncodedMessage {
    encode_with_size(message, size_of_message(message))
}

#[inline]
fn size_of_message<M: Message>(message: &M) -> CountingSink {
    let mut size = Writer::new(CountingSink::default());
    size.root(message);
    size.finish()
}

#[inline]
fn encode_with_size<M: Message>(message: &M, size: CountingSink) -> EncodedMessage {
    if size.shared_len() > 0 {
        return cut(message, size.len() - size.shared_len());
    }
    encode_with_len(message, size.len()).into()
}

#[cold]
#[inline(never)]
fn cut<M: Message>(message: &M, flat_len: usize) -> EncodedMessage {
    let mut out = Writer::new(SharingSink::with_capacity(flat_len));
    out.root(message);
    EncodedMessage::Several(out.finish().into_pieces().collect())
}

/// Encodes a large message. Cold, so the code for small messages stays short.
#[cold]
#[inline(never)]
fn encode_large<M: Message>(message: &M, size: CountingSink) -> EncodedMessage {
    encode_with_size(message, size)
}

/// Encodes a message with a function for its fields in wire order, for programs without generated code for it.
pub fn encode_with(write_fields: impl FnOnce(&mut Writer<Vec<u8>>)) -> Bytes {
    let mut out = Writer::new(Vec::new());
    out.root_with(write_fields);
    out.finish().into()
}

/// Appends an encoded message to a buffer. Callers can reuse the buffer.
#[inline]
pub fn encode_to<M: Message>(message: &M, out: &mut Vec<u8>) {
    let mut writer = Writer::new(mem::take(out));
    writer.root(message);
    *out = writer.finish();
}

/// Appends an encoded message to a buffer. If it is longer than `len_max` bytes, leaves the buffer unchanged and
/// returns the encoded message instead.
#[inline]
pub(crate) fn encode_small_to<M: Message>(message: &M, out: &mut Vec<u8>, len_max: usize) -> Option<EncodedMessage> {
    let size = size_of_message(message);
    if size.len() > len_max {
        return Some(encode_large(message, size));
    }
    encode_to(message, out);
    None
}

/// Encodes a message. A short result is in a reusable buffer of the current thread.
#[inline]
pub(crate) fn encode_small<M: Message>(message: &M) -> EncodedMessage {
    let size = size_of_message(message);
    if size.len() > SmallMessage::LEN_MAX {
        return encode_large(message, size);
    }
    let mut out = Writer::new(SmallMessage::spare());
    out.root(message);
    EncodedMessage::Small(SmallMessage::new(out.finish()))
}

/// Encodes the error alternative. Without a code the bytes equal those of the Go implementation.
pub fn encode_error(text: &str, code: Option<u8>) -> Bytes {
    let mut out = Writer::new(Vec::with_capacity(text.len() + ERROR_HEAD_LEN_MAX));
    out.error(text, code);
    out.finish().into()
}

/// Encodes the error alternative in a constant, for a short text. `LEN` must be the length of the text plus four.
#[expect(clippy::cast_possible_truncation, reason = "the length is checked")]
pub(crate) const fn short_error<const LEN: usize>(text: &str) -> [u8; LEN] {
    assert!(
        LEN == ERROR_HEAD_LEN_MIN + text.len() && text.len() < 0x80,
        "the length is not that of the text and its head"
    );
    let mut content = [0; LEN];
    content[0] = Kind::Error as u8;
    content[1] = Kind::String as u8;
    content[2] = Kind::U32 as u8;
    content[3] = text.len() as u8;
    content.split_at_mut(ERROR_HEAD_LEN_MIN).1.copy_from_slice(text.as_bytes());
    content
}

impl<S: Sink> Writer<S> {
    /// Encodes the outermost message, and its trailer if it needs one.
    #[inline(always)] // A function call per small message is measurable on streams.
    pub fn root<M: Message>(&mut self, message: &M) {
        self.message(message);
        self.end_root();
    }

    fn root_with(&mut self, write_fields: impl FnOnce(&mut Self)) {
        self.message_with(write_fields);
        self.end_root();
    }

    #[inline(always)] // As above.
    fn end_root(&mut self) {
        if self.slots().holds_any() {
            self.trailer();
        }
    }

    /// Encodes an error instead of a message.
    pub fn error(&mut self, text: &str, code: Option<u8>) {
        self.put(&[Kind::Error as u8]);
        self.string(text);
        if let Some(code) = code {
            self.put(&trailer::of_code(code));
        }
    }

    /// Encodes a message.
    #[inline(always)] // As above. A closure would be a call of its own.
    pub fn message<M: Message>(&mut self, message: &M) {
        self.put(&FLAGS);
        message.encode_fields(self);
    }

    /// Encodes a message with a function for its fields in wire order.
    #[inline]
    pub fn message_with(&mut self, write_fields: impl FnOnce(&mut Self)) {
        self.put(&FLAGS);
        write_fields(self);
    }

    /// Encodes nil instead of a message.
    #[inline]
    pub fn nil(&mut self) {
        self.put(&[Kind::Nil as u8]);
    }

    /// Encodes a message, or nil for `None`.
    #[inline]
    pub fn message_or_nil<M: Message>(&mut self, message: Option<&impl Borrow<M>>) {
        match message {
            Some(message) => self.message(message.borrow()),
            None => self.nil(),
        }
    }

    /// Encodes a list of messages.
    pub fn message_list<M: Message>(&mut self, items: &[M]) {
        self.list(Kind::Any, items, Self::message);
    }

    /// Encodes a map with messages as values.
    pub fn message_map<'a, K: PolyglotScalar + 'a, M: Message>(
        &mut self,
        entries: impl IntoIterator<Item = (&'a K, &'a M), IntoIter: ExactSizeIterator>,
    ) {
        self.map((K::KIND, Kind::Any), entries.into_iter(), |out, key| key.encode(out), Self::message);
    }

    #[cold]
    fn trailer(&mut self) {
        let slots = self.take_slots();
        trailer::write(&slots, self);
    }
}

/// Start of every message: a `u8` with the value 0.
const FLAGS: [u8; 2] = [Kind::U8 as u8, 0];
/// Kind of the error, kind of the text, kind of its length, and a length of one byte.
const ERROR_HEAD_LEN_MIN: usize = 4;
/// Kind of the error, kind of the text, its length, and the code after the text.
const ERROR_HEAD_LEN_MAX: usize = 2 + 5 + 3;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_short_error_encodes_like_an_error_with_its_text() {
        assert_eq!(encode_error("EOF", None), short_error::<7>("EOF")[..]);
        assert_eq!(encode_error("", None), short_error::<4>("")[..]);
    }
}
