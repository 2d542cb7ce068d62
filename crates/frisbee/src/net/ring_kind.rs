//! The rings that the sockets of a thread can be put on.

/// The rings that the sockets of a thread can be put on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RingKind {
    /// The best of our own that the kernel allows.
    Best,
    /// Our own, used as older kernels allow.
    Portable,
    /// The ring of tokio-uring's runtime.
    TokioUring,
}
