//! Credentials of the process at the other end of a Unix socket.

/// Credentials of the process at the other end of a Unix socket, as reported by the kernel.
///
/// They belong to the process that called `connect` or `listen`, at the time of that call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct PeerCredentials {
    /// The effective user id.
    pub uid: u32,
    /// The effective group id.
    pub gid: u32,
    /// The process id, on systems that report it.
    pub pid: Option<i32>,
}
