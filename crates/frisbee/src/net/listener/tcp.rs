//! Listening TCP sockets.

use std::{io, net::SocketAddr};

use socket2::{Domain, Protocol, Socket, Type};

use super::spread::spread;
use crate::net::options::SocketOptions;

/// Sockets bound to one port. The kernel distributes connections among them.
pub(crate) struct TcpSockets {
    sockets: Vec<Socket>,
    /// `true` if no other process may share the port.
    is_exclusive: bool,
}

impl TcpSockets {
    pub(super) fn bind(addr: SocketAddr, options: &SocketOptions, count: usize) -> io::Result<Self> {
        let first = bind_tcp(addr, options.reuse_port)?;
        let addr = first.local_addr()?.as_socket().unwrap_or(addr);
        let mut sockets = vec![first];
        // Other kernels do not distribute connections, or only among sockets with `SO_REUSEPORT` set before
        // `bind`.
        if cfg!(target_os = "linux") {
            for _ in 1..count {
                sockets.push(bind_tcp(addr, true)?);
            }
        } else {
            sockets = spread(sockets, count, Socket::try_clone)?;
        }
        Ok(Self { sockets, is_exclusive: !options.reuse_port })
    }

    /// Listens on all sockets.
    ///
    /// An exclusive first socket listens before it sets `SO_REUSEPORT`. Listening therefore fails if another
    /// process already listens on the port, with or without that option. For the same reason, later attempts of
    /// other processes fail. The remaining sockets of this server have the option from the start, so they can
    /// join.
    pub(super) fn listen(self, backlog: u32) -> io::Result<Vec<std::net::TcpListener>> {
        let backlog = i32::try_from(backlog).unwrap_or(i32::MAX);
        let is_spread = self.sockets.len() > 1 && cfg!(target_os = "linux");
        let mut listeners = Vec::with_capacity(self.sockets.len());
        for socket in self.sockets {
            socket.listen(backlog)?;
            if is_spread && self.is_exclusive {
                set_reuse_port(&socket, true)?;
            }
            listeners.push(socket.into());
        }
        Ok(listeners)
    }
}

fn bind_tcp(addr: SocketAddr, reuse_port: bool) -> io::Result<Socket> {
    let socket = Socket::new(Domain::for_address(addr), Type::STREAM, Some(Protocol::TCP))?;
    // On Unix, a restarted server must not wait for old connections in `TIME_WAIT`. On Windows, this option would
    // let another process steal the port.
    if cfg!(unix) {
        socket.set_reuse_address(true)?;
    }
    set_reuse_port(&socket, reuse_port)?;
    socket.set_nonblocking(true)?;
    socket.bind(&addr.into())?;
    Ok(socket)
}

#[cfg(unix)]
fn set_reuse_port(socket: &Socket, reuse_port: bool) -> io::Result<()> {
    socket.set_reuse_port(reuse_port)
}

/// Does nothing: this system cannot share ports.
#[cfg(not(unix))]
fn set_reuse_port(_: &Socket, _: bool) -> io::Result<()> {
    Ok(())
}
