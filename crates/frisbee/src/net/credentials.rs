//! The process at the other end of a Unix socket.

/// The process at the other end of a Unix socket, as the kernel tells it.
///
/// It is the process that connected or listened, at the time when it did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct PeerCredentials {
    /// Its user.
    pub uid: u32,
    /// Its group.
    pub gid: u32,
    /// Its process, where the system tells.
    pub pid: Option<i32>,
}
