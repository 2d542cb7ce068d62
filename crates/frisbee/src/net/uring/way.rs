//! The kinds of ring.

/// The kinds of ring.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Way {
    /// The kernel reads by itself, into buffers that it picks, and does its work when it is told to: Linux 6.1 and later.
    Native,
    /// Sockets wait on the ring, and send on it what is small: Linux 5.19 and later. Nothing is read on it. A read in
    /// flight could not be ended without losing what it brings.
    Portable,
}
