//! Small messages encoded into a reusable buffer.

use std::{cell::Cell, mem, ops::Deref};

/// An encoded message in a buffer of the current thread. When dropped, its memory goes to the next message of that
/// thread.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SmallMessage(Vec<u8>);

impl SmallMessage {
    /// The maximum length of a small message.
    pub(crate) const LEN_MAX: usize = 4 * 1024 - 1;

    /// Takes the spare buffer of this thread, and empties it.
    #[inline]
    pub(in crate::codec) fn spare() -> Vec<u8> {
        let mut bytes = SPARE.take();
        bytes.clear();
        bytes
    }

    /// Returns a message in a [spare](Self::spare) buffer.
    #[inline]
    pub(in crate::codec) fn new(bytes: Vec<u8>) -> Self {
        Self(bytes)
    }

    /// Puts the bytes that `write` appends in front of the message.
    pub(crate) fn prepend(mut self, write: impl FnOnce(&mut Vec<u8>)) -> Self {
        let len = self.0.len();
        write(&mut self.0);
        self.0.rotate_left(len);
        self
    }
}

impl Deref for SmallMessage {
    type Target = [u8];

    #[inline]
    fn deref(&self) -> &[u8] {
        &self.0
    }
}

impl Drop for SmallMessage {
    #[inline]
    fn drop(&mut self) {
        // Fails while the thread is exiting. The buffer is then freed.
        let _ = SPARE.try_with(|spare| spare.set(mem::take(&mut self.0)));
    }
}

thread_local! {
    static SPARE: Cell<Vec<u8>> = const { Cell::new(Vec::new()) };
}

#[cfg(test)]
mod tests {
    use super::*;

    fn with(bytes: &[u8]) -> SmallMessage {
        let mut out = SmallMessage::spare();
        out.extend_from_slice(bytes);
        SmallMessage::new(out)
    }

    #[test]
    fn a_head_is_put_before_its_message_in_the_same_buffer() {
        let message = with(b"message").prepend(|out| out.extend_from_slice(b"head "));
        assert_eq!(&*message, b"head message");
        assert_eq!(&*message.prepend(|_| {}), b"head message");
    }

    #[test]
    fn a_small_buffer_reuses_freed_memory() {
        let first = with(b"first");
        let place = first.as_ptr();
        drop(first);
        let second = with(b"2nd");
        assert_eq!((&*second, second.as_ptr()), (&b"2nd"[..], place));
        let third = with(b"third");
        assert_eq!((&*second, &*third), (&b"2nd"[..], &b"third"[..]), "both are there at once");
    }
}
