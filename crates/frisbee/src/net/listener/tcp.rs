//! TCP sockets that listen.

use std::{io, net::SocketAddr};

use socket2::{Domain, Protocol, Socket, Type};

use crate::net::options::SocketOptions;

/// Sockets bound to one port, of which the kernel gives each connection to one.
pub(crate) struct TcpSockets {
    sockets: Vec<Socket>,
    /// True if the port is not to be shared with anybody else.
    is_exclusive: bool,
}

impl TcpSockets {
    pub(super) fn bind(addr: SocketAddr, options: &SocketOptions, count: usize) -> io::Result<Self> {
        let first = bind_tcp(addr, options.reuse_port)?;
        let addr = first.local_addr()?.as_socket().unwrap_or(addr);
        let mut sockets = vec![first];
        // Elsewhere the kernel does not spread connections, or not among sockets that began to share late.
        if cfg!(target_os = "linux") {
            for _ in 1..count {
                sockets.push(bind_tcp(addr, true)?);
            }
        } else {
            let first = sockets.remove(0);
            sockets = cloned(first, count, Socket::try_clone)?;
        }
        Ok(Self { sockets, is_exclusive: !options.reuse_port })
    }

    /// Listens on all of them. The first listens before it shares its port. That fails if anybody listens there
    /// already, with a port that can be shared or without; and anybody who tries the same from then on finds this one.
    /// Only the other sockets of this server, which do not ask first, come in beside it.
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
    // A restarted server must not wait for connections of its predecessor to be forgotten. Elsewhere, this would take
    // the port from its owner.
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

/// Does nothing: ports cannot be shared here.
#[cfg(not(unix))]
fn set_reuse_port(_: &Socket, _: bool) -> io::Result<()> {
    Ok(())
}

/// Copies a listener that cannot be spread over threads in a better way.
pub(super) fn cloned<T>(listener: T, count: usize, clone: impl Fn(&T) -> io::Result<T>) -> io::Result<Vec<T>> {
    let mut all = Vec::with_capacity(count);
    for _ in 1..count {
        all.push(clone(&listener)?);
    }
    all.push(listener);
    Ok(all)
}
