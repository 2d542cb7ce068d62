//! The kinds of io_uring for the sockets of a thread.

/// The kind of io_uring for the sockets of a thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RingKind {
    /// Frisbee's own ring, with the newest features of this kernel.
    Best,
    /// Frisbee's own ring, with the features of older kernels only.
    Portable,
    /// The ring of a tokio-uring runtime.
    TokioUring,
}
