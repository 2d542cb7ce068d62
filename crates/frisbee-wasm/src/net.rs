//! TCP sockets, for code with a branch for them. A browser has none, so no value of these types exists.

use std::{
    io,
    net::{SocketAddr, ToSocketAddrs as StdToSocketAddrs},
    pin::Pin,
    task::{Context, Poll},
};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use crate::io::{Interest, Ready};

/// One or several addresses.
pub trait ToSocketAddrs: StdToSocketAddrs {}

impl<T: StdToSocketAddrs> ToSocketAddrs for T {}

/// A TCP connection.
#[derive(Debug)]
pub enum TcpStream {}

/// A TCP listener.
#[derive(Debug)]
pub enum TcpListener {}

/// Returns an error.
pub async fn lookup_host(_: impl ToSocketAddrs) -> io::Result<std::vec::IntoIter<SocketAddr>> {
    Err(unsupported())
}

fn unsupported() -> io::Error {
    io::Error::new(io::ErrorKind::Unsupported, "a browser has no TCP sockets; connect to a `ws://` or `wss://` address")
}

impl TcpStream {
    /// Returns an error.
    pub async fn connect(_: impl ToSocketAddrs) -> io::Result<Self> {
        Err(unsupported())
    }

    /// Returns an error.
    pub fn from_std(_: std::net::TcpStream) -> io::Result<Self> {
        Err(unsupported())
    }

    /// Never called.
    pub fn into_std(self) -> io::Result<std::net::TcpStream> {
        match self {}
    }

    /// Never called.
    pub fn local_addr(&self) -> io::Result<SocketAddr> {
        match *self {}
    }

    /// Never called.
    pub fn set_nodelay(&self, _: bool) -> io::Result<()> {
        match *self {}
    }

    /// Never called.
    pub async fn ready(&self, _: Interest) -> io::Result<Ready> {
        match *self {}
    }
}

impl TcpListener {
    /// Returns an error.
    pub fn from_std(_: std::net::TcpListener) -> io::Result<Self> {
        Err(unsupported())
    }

    /// Never called.
    pub fn into_std(self) -> io::Result<std::net::TcpListener> {
        match self {}
    }

    /// Never called.
    pub fn poll_accept(&self, _: &mut Context<'_>) -> Poll<io::Result<(TcpStream, SocketAddr)>> {
        match *self {}
    }
}

impl AsyncRead for TcpStream {
    fn poll_read(self: Pin<&mut Self>, _: &mut Context<'_>, _: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        match *self {}
    }
}

impl AsyncWrite for TcpStream {
    fn poll_write(self: Pin<&mut Self>, _: &mut Context<'_>, _: &[u8]) -> Poll<io::Result<usize>> {
        match *self {}
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        match *self {}
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        match *self {}
    }
}
