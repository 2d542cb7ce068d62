//! The options of sockets.

use std::{io, time::Duration};

use socket2::{SockRef, TcpKeepalive};
use tokio::net::{TcpStream, ToSocketAddrs};

use crate::InvalidSetting;

/// The options of sockets.
#[derive(Clone, Debug)]
pub struct SocketOptions {
    /// Sends small packets at once instead of waiting for more to share a segment. Default true.
    pub nodelay: bool,
    /// TCP keepalive with this period. Default 3 minutes, as in the Go implementation.
    pub keepalive: Option<Duration>,
    /// Connections the kernel holds for a server that is slow to accept. Default 4096; the system may have a lower
    /// bound of its own.
    pub backlog: u32,
    /// Lets several servers share a TCP port, if all of them say so. Default false: a port that somebody listens on is
    /// an error, with the engines that have a listener for each core as well.
    pub reuse_port: bool,
}

impl Default for SocketOptions {
    fn default() -> Self {
        Self { nodelay: true, keepalive: Some(Duration::from_secs(180)), backlog: 4096, reuse_port: false }
    }
}

impl SocketOptions {
    /// Connects to an address such as `"localhost:8080"` over TCP, and sets these options on the socket.
    ///
    /// # Errors
    ///
    /// If the address is none, or nobody answers there.
    ///
    /// # Cancel safety
    ///
    /// Nothing is left of the connection if the future is dropped.
    pub async fn connect(&self, address: impl ToSocketAddrs) -> io::Result<TcpStream> {
        let socket = TcpStream::connect(address).await?;
        self.set(&socket)?;
        Ok(socket)
    }

    /// Sets these options on a socket that is connected.
    pub(super) fn set(&self, socket: &TcpStream) -> io::Result<()> {
        socket.set_nodelay(self.nodelay)?;
        if let Some(time) = self.keepalive {
            // More than the system can count is as good as the most it can.
            let time = time.min(KEEPALIVE_MAX);
            SockRef::from(socket).set_tcp_keepalive(&TcpKeepalive::new().with_time(time).with_interval(time))?;
        }
        Ok(())
    }

    /// Finds the first option that no socket would take.
    pub(crate) fn check(&self) -> Result<(), InvalidSetting> {
        match self.keepalive {
            Some(period) if period < Duration::from_secs(1) => {
                let why = format!("of {period:?} is too short: sockets take a second and more (None sends none)");
                Err(InvalidSetting::new("keepalive", why))
            }
            _ => Ok(()),
        }
    }
}

/// Linux counts no further.
const KEEPALIVE_MAX: Duration = Duration::from_secs(32_767);

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_socket_that_is_connected_has_the_options() {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        for keepalive in [Some(Duration::from_secs(7)), Some(Duration::MAX), None] {
            let options = SocketOptions { keepalive, ..SocketOptions::default() };
            let socket = options.connect(address).await.unwrap();
            assert!(socket.nodelay().unwrap());
            assert_eq!(SockRef::from(&socket).keepalive().unwrap(), keepalive.is_some());
        }
    }
}
