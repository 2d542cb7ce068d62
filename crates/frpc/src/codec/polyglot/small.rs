//! The bytes of a small message, in memory that a thread uses again.

use std::{cell::Cell, mem, ops::Deref};

/// The bytes of a message that will be copied soon. Its memory goes to the next one of the thread that drops it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Small(Vec<u8>);

impl Small {
    /// The longest message that is one.
    pub(super) const LEN_MAX: usize = 4 * 1024 - 1;

    /// Returns what `write` puts into the memory of the last one, which is empty at first.
    #[inline]
    pub(super) fn write<T>(write: impl FnOnce(&mut Vec<u8>) -> T) -> (Self, T) {
        let mut small = Self(SPARE.take());
        small.0.clear();
        let written = write(&mut small.0);
        (small, written)
    }
}

impl Deref for Small {
    type Target = [u8];

    #[inline]
    fn deref(&self) -> &[u8] {
        &self.0
    }
}

impl Drop for Small {
    #[inline]
    fn drop(&mut self) {
        // A thread that ends has no next one.
        let _ = SPARE.try_with(|spare| spare.set(mem::take(&mut self.0)));
    }
}

thread_local! {
    static SPARE: Cell<Vec<u8>> = const { Cell::new(Vec::new()) };
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_next_one_has_the_memory_of_the_last_and_none_of_its_bytes() {
        let (first, ()) = Small::write(|out| out.extend_from_slice(b"first"));
        let place = first.as_ptr();
        drop(first);
        let (second, ()) = Small::write(|out| out.extend_from_slice(b"2nd"));
        assert_eq!((&*second, second.as_ptr()), (&b"2nd"[..], place));
        let (third, ()) = Small::write(|out| out.extend_from_slice(b"third"));
        assert_eq!((&*second, &*third), (&b"2nd"[..], &b"third"[..]), "both are there at once");
    }
}
