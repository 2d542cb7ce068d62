//! Listening and connecting, for every kind of address.

mod connect;
mod mem;
#[cfg(target_family = "wasm")]
mod no_tcp;
mod resolve;
mod spread;
#[cfg(not(target_family = "wasm"))]
mod tcp;
#[cfg(unix)]
pub(super) mod unix;

#[cfg(unix)]
use std::os::fd::{AsFd, OwnedFd};
use std::{
    io,
    task::{Context, Poll, ready},
};

#[cfg(unix)]
use tokio::net::UnixListener;
use tokio::{net::TcpListener, runtime::Handle};

pub(crate) use self::connect::connect;
#[cfg(target_family = "wasm")]
use self::no_tcp as tcp;
#[cfg(unix)]
use self::unix::UnixName;
use self::{mem::MemListener, resolve::resolve, spread::spread, tcp::TcpSockets};
use super::{options::SocketOptions, target::TargetKind, wire::IoStream};
#[cfg(unix)]
use super::{passed::PassedSockets, socket_file::SocketFile};
use crate::Address;

/// A listen address after binding and before listening. TCP ports are already reserved.
pub(crate) enum BoundSocket {
    Tcp(TcpSockets),
    /// Listeners of one port, created by the application or another process.
    TcpListeners(Vec<std::net::TcpListener>),
    #[cfg(unix)]
    Unix(Address),
    /// Listeners of one name, created by the application or another process.
    #[cfg(unix)]
    UnixListeners(Vec<std::os::unix::net::UnixListener>, Option<SocketFile>),
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
                Ok(Self::TcpListeners(vec![listener]))
            }
            #[cfg(unix)]
            TargetKind::Unix(listener) => {
                listener.set_nonblocking(true)?;
                Ok(Self::UnixListeners(vec![listener], None))
            }
            #[cfg(unix)]
            TargetKind::Passed(passed) => Ok(match passed.sockets {
                PassedSockets::Tcp(listeners) => Self::TcpListeners(listeners),
                PassedSockets::Unix(listeners, file) => Self::UnixListeners(listeners, file),
            }),
        }
    }

    /// Starts listening, with at least one listener per runtime if this kind supports several. Returns the address
    /// and the listeners.
    ///
    /// From now on the kernel, or other tasks of the process, may connect.
    pub(crate) async fn listen(
        self,
        options: &SocketOptions,
        runtimes: &[Handle],
    ) -> io::Result<(Address, Vec<(Handle, Listener)>)> {
        let with_runtimes = |listeners: Vec<Listener>| runtimes.iter().cycle().cloned().zip(listeners).collect();
        match self {
            Self::Tcp(sockets) => {
                let sockets = sockets.listen(options.backlog)?;
                let address = Address::Tcp(sockets[0].local_addr()?);
                let listeners = on_each(runtimes, sockets, |socket| {
                    Ok(Listener::Tcp(TcpListener::from_std(socket)?, options.clone()))
                })?;
                Ok((address, with_runtimes(listeners)))
            }
            Self::TcpListeners(listeners) => {
                let address = Address::Tcp(listeners[0].local_addr()?);
                let listeners = spread(listeners, runtimes.len(), std::net::TcpListener::try_clone)?;
                let listeners = on_each(runtimes, listeners, |listener| {
                    Ok(Listener::Tcp(TcpListener::from_std(listener)?, options.clone()))
                })?;
                Ok((address, with_runtimes(listeners)))
            }
            #[cfg(unix)]
            Self::Unix(address) => {
                let (owned, listener) = unix::bind(&address).await?;
                let listeners = unix_listeners(runtimes, &address, vec![listener], owned)?;
                Ok((address, with_runtimes(listeners)))
            }
            #[cfg(unix)]
            Self::UnixListeners(listeners, file) => {
                let address = unix::address_of(&listeners[0].local_addr()?);
                let listeners = unix_listeners(runtimes, &address, listeners, file)?;
                Ok((address, with_runtimes(listeners)))
            }
            Self::Mem(name) => {
                let listener = MemListener::bind(&name)?;
                Ok((Address::Mem(name), with_runtimes(vec![Listener::Mem(listener)])))
            }
        }
    }
}

/// Registers the listeners with the runtimes in turn.
fn on_each<T>(
    runtimes: &[Handle],
    listeners: Vec<T>,
    mut register: impl FnMut(T) -> io::Result<Listener>,
) -> io::Result<Vec<Listener>> {
    let register = |(runtime, listener): (&Handle, T)| {
        let _inside = runtime.enter();
        register(listener)
    };
    runtimes.iter().cycle().zip(listeners).map(register).collect()
}

#[cfg(unix)]
impl Listener {
    /// Duplicates the socket for another process. Returns `None` for a listener that works in this process only.
    pub(crate) fn duplicate(&self) -> io::Result<Option<OwnedFd>> {
        match self {
            Self::Tcp(listener, _) => listener.as_fd().try_clone_to_owned().map(Some),
            Self::Unix(_, listener) => listener.as_fd().try_clone_to_owned().map(Some),
            Self::Mem(_) => Ok(None),
        }
    }

    /// Returns `true` if the end of this listener removes a socket file.
    pub(crate) fn has_file(&self) -> bool {
        matches!(self, Self::Unix(UnixName { owned: Some(_), .. }, _))
    }

    /// Sets whether the end of this listener removes its socket file, if it created one.
    pub(crate) fn set_removes_file(&mut self, removes_file: bool) {
        if let Self::Unix(UnixName { owned: Some(file), .. }, _) = self {
            file.is_kept = !removes_file;
        }
    }
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
    listeners: Vec<std::os::unix::net::UnixListener>,
    mut owned: Option<SocketFile>,
) -> io::Result<Vec<Listener>> {
    on_each(runtimes, spread(listeners, runtimes.len(), std::os::unix::net::UnixListener::try_clone)?, |listener| {
        let name = UnixName { address: address.clone(), owned: owned.take() };
        Ok(Listener::Unix(name, UnixListener::from_std(listener)?))
    })
}
