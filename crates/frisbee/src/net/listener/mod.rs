//! Listening and connecting, for every kind of address.

mod connect;
mod mem;
mod resolve;
mod tcp;
#[cfg(unix)]
mod unix;

use std::{
    io,
    task::{Context, Poll, ready},
};

#[cfg(unix)]
use tokio::net::UnixListener;
use tokio::{net::TcpListener, runtime::Handle};

pub(crate) use self::connect::connect;
#[cfg(unix)]
use self::unix::{SocketFile, UnixName};
use self::{
    mem::MemListener,
    resolve::resolve,
    tcp::{TcpSockets, cloned},
};
use super::{options::SocketOptions, target::TargetKind, wire::IoStream};
use crate::Address;

/// A listen address after binding and before listening. TCP ports are already reserved.
pub(crate) enum BoundSocket {
    Tcp(TcpSockets),
    /// A listener created by the application.
    TcpListener(std::net::TcpListener),
    #[cfg(unix)]
    Unix(Address),
    /// A listener created by the application.
    #[cfg(unix)]
    UnixListener(std::os::unix::net::UnixListener),
    Mem(String),
}

/// A listener registered with a runtime.
pub(crate) enum Listener {
    Tcp(TcpListener, SocketOptions),
    #[cfg(unix)]
    Unix(UnixName, UnixListener),
    Mem(MemListener),
}

impl BoundSocket {
    /// Reserves a target without listening, for this number of listeners.
    pub(crate) async fn bind(target: TargetKind, options: &SocketOptions, listeners: usize) -> io::Result<Self> {
        match target {
            TargetKind::Address(address @ (Address::Tcp(_) | Address::Host { .. })) => {
                let mut last = io::Error::new(io::ErrorKind::NotFound, "the name has no address");
                for addr in resolve(&address).await? {
                    match TcpSockets::bind(addr, options, listeners) {
                        Ok(sockets) => return Ok(Self::Tcp(sockets)),
                        Err(error) => last = error,
                    }
                }
                Err(last)
            }
            #[cfg(unix)]
            TargetKind::Address(address @ (Address::Unix(_) | Address::Abstract(_))) => Ok(Self::Unix(address)),
            TargetKind::Address(Address::Mem(name)) => Ok(Self::Mem(name)),
            TargetKind::Address(address) => Err(address.unsupported()),
            TargetKind::Tcp(listener) => {
                listener.set_nonblocking(true)?;
                Ok(Self::TcpListener(listener))
            }
            #[cfg(unix)]
            TargetKind::Unix(listener) => {
                listener.set_nonblocking(true)?;
                Ok(Self::UnixListener(listener))
            }
        }
    }

    /// Starts listening, with one listener per runtime if this kind supports several. Returns the address and the
    /// listeners.
    ///
    /// From now on the kernel, or other tasks of the process, may connect.
    pub(crate) async fn listen(
        self,
        options: &SocketOptions,
        runtimes: &[Handle],
    ) -> io::Result<(Address, Vec<(Handle, Listener)>)> {
        let with_runtimes = |listeners: Vec<Listener>| runtimes.iter().cloned().zip(listeners).collect();
        match self {
            Self::Tcp(sockets) => {
                let sockets = sockets.listen(options.backlog)?;
                let address = Address::Tcp(sockets[0].local_addr()?);
                let listeners = on_each(runtimes, sockets, |socket| {
                    Ok(Listener::Tcp(TcpListener::from_std(socket)?, options.clone()))
                })?;
                Ok((address, with_runtimes(listeners)))
            }
            Self::TcpListener(listener) => {
                let address = Address::Tcp(listener.local_addr()?);
                let listeners = cloned(listener, runtimes.len(), std::net::TcpListener::try_clone)?;
                let listeners = on_each(runtimes, listeners, |listener| {
                    Ok(Listener::Tcp(TcpListener::from_std(listener)?, options.clone()))
                })?;
                Ok((address, with_runtimes(listeners)))
            }
            #[cfg(unix)]
            Self::Unix(address) => {
                let (owned, listener) = unix::bind(&address).await?;
                let listeners = unix_listeners(runtimes, &address, listener, owned)?;
                Ok((address, with_runtimes(listeners)))
            }
            #[cfg(unix)]
            Self::UnixListener(listener) => {
                let address = unix::address_of(&listener.local_addr()?);
                let listeners = unix_listeners(runtimes, &address, listener, None)?;
                Ok((address, with_runtimes(listeners)))
            }
            Self::Mem(name) => {
                let listener = MemListener::bind(&name)?;
                Ok((Address::Mem(name), with_runtimes(vec![Listener::Mem(listener)])))
            }
        }
    }
}

/// Registers one listener with each runtime.
fn on_each<T>(
    runtimes: &[Handle],
    listeners: Vec<T>,
    mut register: impl FnMut(T) -> io::Result<Listener>,
) -> io::Result<Vec<Listener>> {
    let register = |(runtime, listener): (&Handle, T)| {
        let _inside = runtime.enter();
        register(listener)
    };
    runtimes.iter().zip(listeners).map(register).collect()
}

impl Listener {
    /// Accepts the next connection. Returns it with its local address and its peer's address.
    pub(crate) fn poll_accept(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<(IoStream, Address, Address)>> {
        Poll::Ready(match self {
            Self::Tcp(listener, options) => {
                let (socket, peer) = ready!(listener.poll_accept(cx))?;
                // Setting the options fails only if the peer is already gone.
                let local = options.set(&socket).and_then(|()| socket.local_addr());
                let local = local.map_err(|error| io::Error::new(io::ErrorKind::ConnectionAborted, error))?;
                Ok((IoStream::Tcp(socket), Address::Tcp(local), Address::Tcp(peer)))
            }
            #[cfg(unix)]
            Self::Unix(name, listener) => {
                let (socket, _) = ready!(listener.poll_accept(cx))?;
                Ok((IoStream::Unix(socket), name.address.clone(), Address::Unnamed))
            }
            Self::Mem(listener) => match ready!(listener.incoming.poll_recv(cx)) {
                Some(stream) => Ok((IoStream::Mem(stream), Address::Mem(listener.name.clone()), Address::Unnamed)),
                None => return Poll::Pending,
            },
        })
    }
}

#[cfg(unix)]
fn unix_listeners(
    runtimes: &[Handle],
    address: &Address,
    listener: std::os::unix::net::UnixListener,
    mut owned: Option<SocketFile>,
) -> io::Result<Vec<Listener>> {
    on_each(runtimes, cloned(listener, runtimes.len(), std::os::unix::net::UnixListener::try_clone)?, |listener| {
        let name = UnixName { address: address.clone(), _owned: owned.take() };
        Ok(Listener::Unix(name, UnixListener::from_std(listener)?))
    })
}
