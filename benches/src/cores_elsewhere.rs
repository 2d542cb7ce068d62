//! Replacement for `cores.rs` on systems other than Linux, where processes are not pinned.

use std::io;

/// Always fails.
pub fn all() -> io::Result<Vec<usize>> {
    Err(io::ErrorKind::Unsupported.into())
}

/// Always fails.
pub(crate) fn start_on<T>(_: &[usize], _: impl FnOnce() -> io::Result<T>) -> io::Result<T> {
    Err(io::ErrorKind::Unsupported.into())
}
