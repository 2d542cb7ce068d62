//! Socket options.

use std::{io, time::Duration};

use socket2::{SockRef, TcpKeepalive};
use tokio::net::{TcpStream, ToSocketAddrs};

use crate::InvalidSetting;

/// Options of TCP sockets, for clients and servers.
#[derive(Clone, Debug)]
pub struct SocketOptions {
    /// Sends small packets immediately instead of collecting them into larger segments. Default true.
    pub nodelay: bool,
    /// The period of TCP keepalive probes. Default 3 minutes, like the Go implementation. `None` sends none.
    pub keepalive: Option<Duration>,
    /// The length of the kernel's queue of connections waiting to be accepted. Default 4096. The system may apply
    /// a lower limit.
    pub backlog: u32,
    /// Lets several servers share a TCP port if all of them set this option. Default false.
    ///
    /// Without it, a port in use is an error, even for engines with one listener per core.
    pub reuse_port: bool,
}

impl Default for SocketOptions {
    fn default() -> Self {
        Self { nodelay: true, keepalive: Some(Duration::from_secs(180)), backlog: 4096, reuse_port: false }
    }
}

impl SocketOptions {
    /// Connects over TCP to an address such as `"localhost:8080"`, and sets these options.
    ///
    /// # Errors
    ///
    /// If the address is invalid or the connection fails.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future closes the connection.
    pub async fn connect(&self, address: impl ToSocketAddrs) -> io::Result<TcpStream> {
        let socket = TcpStream::connect(address).await?;
        self.set(&socket)?;
        Ok(socket)
    }

    /// Sets these options on a connected socket.
    pub(super) fn set(&self, socket: &TcpStream) -> io::Result<()> {
        socket.set_nodelay(self.nodelay)?;
        if let Some(time) = self.keepalive {
            // The system counts up to a maximum. Longer periods are cut to it.
            let time = time.min(KEEPALIVE_MAX);
            SockRef::from(socket).set_tcp_keepalive(&TcpKeepalive::new().with_time(time).with_interval(time))?;
        }
        Ok(())
    }

    /// Returns an error for the first option that no socket would accept.
    pub(crate) fn check(&self) -> Result<(), InvalidSetting> {
        match self.keepalive {
            Some(period) if period < Duration::from_secs(1) => {
                let why = format!("of {period:?} is too short: the minimum is one second (None sends none)");
                Err(InvalidSetting::new("keepalive", why))
            }
            _ => Ok(()),
        }
    }
}

/// The longest keepalive period on Linux.
const KEEPALIVE_MAX: Duration = Duration::from_secs(32_767);

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn connected_sockets_have_the_options() {
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
