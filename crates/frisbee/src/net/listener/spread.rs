//! Copies of listening sockets, one per thread.

use std::io;

/// Duplicates listeners in turn until there are `count`, for sockets without a better distribution over threads.
pub(super) fn spread<T>(mut all: Vec<T>, count: usize, clone: impl Fn(&T) -> io::Result<T>) -> io::Result<Vec<T>> {
    for index in 0..count.saturating_sub(all.len()) {
        all.push(clone(&all[index])?);
    }
    Ok(all)
}
