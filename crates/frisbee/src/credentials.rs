//! The process at the other end of a Unix socket.

use crate::Connection;

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

impl Connection {
    /// Returns the user, group and process of the peer. `None` unless the connection runs over a Unix socket that this side
    /// accepted or connected.
    pub fn peer_credentials(&self) -> Option<PeerCredentials> {
        self.state().map(|credentials| *credentials)
    }
}
