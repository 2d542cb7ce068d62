//! Listening TCP sockets in a browser, which has none.

use std::{
    io,
    net::{SocketAddr, TcpListener},
};

use crate::net::options::SocketOptions;

/// Sockets bound to one port. No value of this type exists.
pub(crate) enum TcpSockets {}

impl TcpSockets {
    pub(super) fn bind(_: SocketAddr, _: &SocketOptions, _: usize) -> io::Result<Self> {
        Err(io::Error::new(io::ErrorKind::Unsupported, "a browser has no listening sockets"))
    }

    pub(super) fn listen(self, _: u32) -> io::Result<Vec<TcpListener>> {
        match self {}
    }
}
