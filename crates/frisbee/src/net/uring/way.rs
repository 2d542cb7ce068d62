//! Sets of io_uring features.

/// A set of io_uring features, by kernel version.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum RingFeatures {
    /// Linux 6.1 and later. The kernel receives into buffers it selects, and does deferred work only on entry.
    Native,
    /// Linux 5.19 and later. The ring waits for sockets and sends small writes. It does not receive: canceling a
    /// receive in flight could lose the received bytes.
    Portable,
}
