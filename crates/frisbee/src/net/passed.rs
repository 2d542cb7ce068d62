//! Listeners of the previous process, until a server takes them.

use std::{net::TcpListener, os::unix::net::UnixListener};

use super::socket_file::SocketFile;

/// Listeners from the previous process for one target.
#[derive(Debug)]
pub(crate) struct PassedListeners {
    /// The requested address, or else the actual one.
    pub(super) name: String,
    pub(super) sockets: PassedSockets,
}

/// At least one listener, and the file to remove at the end.
#[derive(Debug)]
pub(super) enum PassedSockets {
    Tcp(Vec<TcpListener>),
    Unix(Vec<UnixListener>, Option<SocketFile>),
}
