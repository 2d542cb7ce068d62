//! The failure of a ring.

use std::{fmt, io, sync::Arc};

/// The end of a connection because the io_uring of its thread failed.
///
/// The source of the error in [`CloseReason::Io`](crate::CloseReason::Io). All connections of that ring end this
/// way. New connections on the same thread use epoll.
#[derive(Clone, Debug)]
pub struct RingError(Arc<io::Error>);

impl RingError {
    #[cfg_attr(
        not(all(feature = "uring", target_os = "linux")),
        expect(dead_code, reason = "without rings nothing fails")
    )]
    pub(crate) fn new(error: io::Error) -> Self {
        Self(Arc::new(error))
    }

    /// Returns the kind of the kernel's error.
    pub fn kind(&self) -> io::ErrorKind {
        self.0.kind()
    }
}

impl fmt::Display for RingError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the io_uring of this thread failed, connect again to continue without it: {}", self.0)
    }
}

impl std::error::Error for RingError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        Some(&self.0)
    }
}
