//! Writing messages: at the root, in each other, and the error in place of one.

use std::{borrow::Borrow, mem};

use bytes::Bytes;

use super::{
    kind::Kind,
    message::Message,
    pieces::Pieces,
    scalar::Scalar,
    sink::{Counter, Cutter, Sink},
    small::Small,
    trailer,
    writer::Writer,
};

/// Returns the bytes of a message.
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

/// Returns the bytes of a message, without copying its large `Bytes` fields.
#[inline]
pub fn encode_pieces<M: Message>(message: &M) -> Pieces {
    encode_with_size(message, size_of_message(message))
}

#[inline]
fn size_of_message<M: Message>(message: &M) -> Counter {
    let mut size = Writer::new(Counter::default());
    size.root(message);
    size.finish()
}

#[inline]
fn encode_with_size<M: Message>(message: &M, size: Counter) -> Pieces {
    if size.shared_len() > 0 {
        return cut(message, size.len() - size.shared_len());
    }
    encode_with_len(message, size.len()).into()
}

#[cold]
#[inline(never)]
fn cut<M: Message>(message: &M, flat_len: usize) -> Pieces {
    let mut out = Writer::new(Cutter::with_capacity(flat_len));
    out.root(message);
    Pieces::Several(out.finish().into_pieces().collect())
}

/// Returns the bytes of a message that is not small.
#[cold]
#[inline(never)]
fn encode_large<M: Message>(message: &M, size: Counter) -> Pieces {
    encode_with_size(message, size)
}

/// Returns the bytes of a message whose fields a function writes, in the order of the wire: for programs that learn of messages
/// while they run.
pub fn encode_with(write_fields: impl FnOnce(&mut Writer<Vec<u8>>)) -> Bytes {
    let mut out = Writer::new(Vec::new());
    out.root_with(write_fields);
    out.finish().into()
}

/// Appends the bytes of a message to a buffer, which can serve for many.
#[inline]
pub fn encode_to<M: Message>(message: &M, out: &mut Vec<u8>) {
    let mut writer = Writer::new(mem::take(out));
    writer.root(message);
    *out = writer.finish();
}

/// Appends the bytes of a message to a buffer, or returns them if there are more than `len_max`.
#[inline]
pub(crate) fn encode_small_to<M: Message>(message: &M, out: &mut Vec<u8>, len_max: usize) -> Option<Pieces> {
    let size = size_of_message(message);
    if size.len() > len_max {
        return Some(encode_large(message, size));
    }
    encode_to(message, out);
    None
}

/// Returns the bytes of a message. If they are few, they are in memory that the next message of the thread uses again.
#[inline]
pub(crate) fn encode_small<M: Message>(message: &M) -> Pieces {
    let size = size_of_message(message);
    if size.len() > Small::LEN_MAX {
        return encode_large(message, size);
    }
    Pieces::Small(Small::write(|out| {
        let mut out = Writer::new(out);
        out.root(message);
        out.finish()
    }))
}

/// Returns the bytes of the error alternative. Without a code they are those of the Go implementation.
pub fn encode_error(text: &str, code: Option<u8>) -> Bytes {
    let mut out = Writer::new(Vec::with_capacity(text.len() + ERROR_HEAD_LEN_MAX));
    out.error(text, code);
    out.finish().into()
}

/// Returns the error alternative with a short text, as a constant: four bytes and those of the text.
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
    /// Writes a message, and the trailer if it needs one.
    #[inline(always)] // A call for each small message of a stream shows.
    pub fn root<M: Message>(&mut self, message: &M) {
        self.root_with(|out| message.encode_fields(out));
    }

    #[inline(always)] // As above.
    fn root_with(&mut self, write_fields: impl FnOnce(&mut Self)) {
        self.message_with(write_fields);
        if self.slots().holds_any() {
            self.trailer();
        }
    }

    /// Writes the error alternative of a message.
    pub fn error(&mut self, text: &str, code: Option<u8>) {
        self.put(&[Kind::Error as u8]);
        self.string(text);
        if let Some(code) = code {
            self.put(&trailer::of_code(code));
        }
    }

    /// Writes a message.
    #[inline]
    pub fn message<M: Message>(&mut self, message: &M) {
        self.message_with(|out| message.encode_fields(out));
    }

    /// Writes a message whose fields a function writes, in the order of the wire.
    #[inline]
    pub fn message_with(&mut self, write_fields: impl FnOnce(&mut Self)) {
        self.put(&FLAGS);
        write_fields(self);
    }

    /// Writes nil in place of a message.
    #[inline]
    pub fn nil(&mut self) {
        self.put(&[Kind::Nil as u8]);
    }

    /// Writes a message, or nil in its place.
    #[inline]
    pub fn message_or_nil<M: Message>(&mut self, message: Option<&impl Borrow<M>>) {
        match message {
            Some(message) => self.message(message.borrow()),
            None => self.nil(),
        }
    }

    /// Writes a list of messages.
    pub fn message_list<M: Message>(&mut self, items: &[M]) {
        self.list(Kind::Any, items, Self::message);
    }

    /// Writes a map to messages.
    pub fn message_map<'a, K: Scalar + 'a, M: Message>(
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

/// A u8 that is always zero.
const FLAGS: [u8; 2] = [Kind::U8 as u8, 0];
/// Kind, kind of the text, and its length in one byte.
const ERROR_HEAD_LEN_MIN: usize = 4;
/// Kind, kind of the text, its length, and the code behind it.
const ERROR_HEAD_LEN_MAX: usize = 2 + 5 + 3;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_short_error_is_the_error_with_its_text() {
        assert_eq!(encode_error("EOF", None), short_error::<7>("EOF")[..]);
        assert_eq!(encode_error("", None), short_error::<4>("")[..]);
    }
}
