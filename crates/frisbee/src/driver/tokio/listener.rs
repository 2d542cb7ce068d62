//! Listening and connecting, for every kind of address.

use std::{
    collections::BTreeMap,
    io,
    net::SocketAddr,
    path::PathBuf,
    sync::{Mutex, PoisonError},
};

use socket2::{Domain, Protocol, SockRef, Socket, TcpKeepalive, Type};
#[cfg(unix)]
use tokio::net::{UnixListener, UnixStream};
use tokio::{
    io::DuplexStream,
    net::{TcpListener, TcpStream, lookup_host},
    sync::mpsc,
};

use super::Wire;
use crate::{Address, SocketOptions};

/// A listener that is bound but not yet part of a runtime.
pub(crate) enum Bound {
    Tcp(std::net::TcpListener, SocketOptions),
    #[cfg(unix)]
    /// The name comes first, so that its file is gone before the socket is.
    Unix(UnixName, std::os::unix::net::UnixListener),
    Mem(MemListener),
}

pub(crate) enum Listener {
    Tcp(TcpListener, SocketOptions),
    #[cfg(unix)]
    Unix(UnixName, UnixListener),
    Mem(MemListener),
}

impl Bound {
    pub(crate) async fn bind(address: &Address, options: &SocketOptions) -> io::Result<Self> {
        match address {
            Address::Tcp(_) | Address::Host { .. } => {
                let mut last = io::Error::new(io::ErrorKind::NotFound, "the name has no address");
                for addr in resolve(address).await? {
                    match bind_tcp(addr, options) {
                        Ok(listener) => return Ok(Self::Tcp(listener, options.clone())),
                        Err(error) => last = error,
                    }
                }
                Err(last)
            }
            #[cfg(unix)]
            Address::Unix(_) | Address::Abstract(_) => UnixName::bind(address).await,
            Address::Mem(name) => MemListener::bind(name).map(Self::Mem),
            _ => Err(unsupported(address)),
        }
    }

    /// One more listener for the same address, if its kind can share the work of accepting.
    pub(crate) fn share(&self) -> io::Result<Option<Self>> {
        Ok(match self {
            Self::Tcp(listener, options) if options.reuse_port => {
                Some(Self::Tcp(bind_tcp(listener.local_addr()?, options)?, options.clone()))
            }
            Self::Tcp(listener, options) => Some(Self::Tcp(listener.try_clone()?, options.clone())),
            #[cfg(unix)]
            Self::Unix(name, listener) => {
                Some(Self::Unix(UnixName { owned_path: None, address: name.address.clone() }, listener.try_clone()?))
            }
            Self::Mem(_) => None,
        })
    }

    pub(crate) fn local_addr(&self) -> io::Result<Address> {
        Ok(match self {
            Self::Tcp(listener, _) => Address::Tcp(listener.local_addr()?),
            #[cfg(unix)]
            Self::Unix(name, _) => name.address.clone(),
            Self::Mem(listener) => Address::Mem(listener.name.clone()),
        })
    }

    /// Makes it part of the current runtime.
    pub(crate) fn listen(self) -> io::Result<Listener> {
        Ok(match self {
            Self::Tcp(listener, options) => Listener::Tcp(TcpListener::from_std(listener)?, options),
            #[cfg(unix)]
            Self::Unix(name, listener) => Listener::Unix(name, UnixListener::from_std(listener)?),
            Self::Mem(listener) => Listener::Mem(listener),
        })
    }
}

impl Listener {
    /// The next connection, with its own and its peer's address.
    pub(crate) async fn accept(&mut self) -> io::Result<(Wire, Address, Address)> {
        match self {
            Self::Tcp(listener, options) => {
                let (socket, peer) = listener.accept().await?;
                // A socket that cannot be set up is one whose peer is gone already.
                let local = set_options(&socket, options).and_then(|()| socket.local_addr());
                let local = local.map_err(|error| io::Error::new(io::ErrorKind::ConnectionAborted, error))?;
                Ok((Wire::Tcp(socket), Address::Tcp(local), Address::Tcp(peer)))
            }
            #[cfg(unix)]
            Self::Unix(name, listener) => {
                let (socket, _) = listener.accept().await?;
                Ok((Wire::Unix(socket), name.address.clone(), Address::Unnamed))
            }
            Self::Mem(listener) => match listener.incoming.recv().await {
                Some(stream) => Ok((Wire::Mem(stream), Address::Mem(listener.name.clone()), Address::Unnamed)),
                None => std::future::pending().await,
            },
        }
    }
}

/// Connects once. Of several addresses that a name has, each attempt starts with another.
pub(crate) async fn connect(
    address: &Address,
    options: &SocketOptions,
    attempt: usize,
) -> io::Result<(Wire, Address, Address)> {
    match address {
        Address::Tcp(_) | Address::Host { .. } => {
            let mut last = io::Error::new(io::ErrorKind::NotFound, "the name has no address");
            let mut addrs = resolve(address).await?;
            let first = attempt.checked_rem(addrs.len()).unwrap_or(0);
            addrs.rotate_left(first);
            for addr in addrs {
                match TcpStream::connect(addr).await {
                    Ok(socket) => {
                        set_options(&socket, options)?;
                        let local = socket.local_addr()?;
                        return Ok((Wire::Tcp(socket), Address::Tcp(local), Address::Tcp(addr)));
                    }
                    Err(error) => last = error,
                }
            }
            Err(last)
        }
        #[cfg(unix)]
        Address::Unix(path) => Ok((Wire::Unix(UnixStream::connect(path).await?), Address::Unnamed, address.clone())),
        #[cfg(target_os = "linux")]
        Address::Abstract(name) => {
            // Tokio takes a leading zero byte for the abstract namespace.
            let socket = UnixStream::connect(format!("\0{name}")).await?;
            Ok((Wire::Unix(socket), Address::Unnamed, address.clone()))
        }
        Address::Mem(name) => {
            let (ours, theirs) = tokio::io::duplex(MEM_BUFFER_LEN);
            let listener = mem_listeners(|all| all.get(name).cloned());
            let refused = || io::Error::new(io::ErrorKind::ConnectionRefused, format!("nobody listens on {address}"));
            listener.ok_or_else(refused)?.send(theirs).await.map_err(|_| refused())?;
            Ok((Wire::Mem(ours), Address::Unnamed, address.clone()))
        }
        _ => Err(unsupported(address)),
    }
}

async fn resolve(address: &Address) -> io::Result<Vec<SocketAddr>> {
    match address {
        Address::Host { name, port } => Ok(lookup_host((name.as_str(), *port)).await?.collect()),
        _ => Ok(address.socket_addr().into_iter().collect()),
    }
}

fn bind_tcp(addr: SocketAddr, options: &SocketOptions) -> io::Result<std::net::TcpListener> {
    let socket = Socket::new(Domain::for_address(addr), Type::STREAM, Some(Protocol::TCP))?;
    #[cfg(unix)]
    {
        // A restarted server must not wait for connections of its predecessor to be forgotten.
        socket.set_reuse_address(true)?;
        socket.set_reuse_port(options.reuse_port)?;
    }
    socket.set_nonblocking(true)?;
    socket.bind(&addr.into())?;
    socket.listen(i32::try_from(options.backlog).unwrap_or(i32::MAX))?;
    Ok(socket.into())
}

fn set_options(socket: &TcpStream, options: &SocketOptions) -> io::Result<()> {
    socket.set_nodelay(options.nodelay)?;
    if let Some(time) = options.keepalive {
        SockRef::from(socket).set_tcp_keepalive(&TcpKeepalive::new().with_time(time).with_interval(time))?;
    }
    Ok(())
}

fn unsupported(address: &Address) -> io::Error {
    io::Error::new(io::ErrorKind::Unsupported, format!("{address} is not available on this system"))
}

/// The name of a Unix listener. The one that made a socket file removes it.
#[cfg(unix)]
pub(crate) struct UnixName {
    owned_path: Option<PathBuf>,
    address: Address,
}

#[cfg(unix)]
impl UnixName {
    async fn bind(address: &Address) -> io::Result<Bound> {
        use std::os::unix::{fs::FileTypeExt, net};
        let (listener, owned_path) = match address {
            Address::Unix(path) => {
                // What a server that died left behind refuses connections. So does a file that never was a socket.
                if let Err(error) = UnixStream::connect(path).await
                    && error.kind() == io::ErrorKind::ConnectionRefused
                    && std::fs::metadata(path)?.file_type().is_socket()
                {
                    std::fs::remove_file(path)?;
                }
                (net::UnixListener::bind(path)?, Some(path.clone()))
            }
            #[cfg(target_os = "linux")]
            Address::Abstract(name) => (net::UnixListener::bind_addr(&abstract_addr(name)?)?, None),
            _ => return Err(unsupported(address)),
        };
        listener.set_nonblocking(true)?;
        Ok(Bound::Unix(Self { owned_path, address: address.clone() }, listener))
    }
}

#[cfg(unix)]
impl Drop for UnixName {
    fn drop(&mut self) {
        if let Some(path) = &self.owned_path {
            // Somebody else may have removed it already.
            let _ = std::fs::remove_file(path);
        }
    }
}

#[cfg(target_os = "linux")]
fn abstract_addr(name: &str) -> io::Result<std::os::unix::net::SocketAddr> {
    use std::os::linux::net::SocketAddrExt;
    std::os::unix::net::SocketAddr::from_abstract_name(name)
}

pub(crate) struct MemListener {
    name: String,
    incoming: mpsc::Receiver<DuplexStream>,
}

impl MemListener {
    fn bind(name: &str) -> io::Result<Self> {
        let (sender, incoming) = mpsc::channel(MEM_BACKLOG);
        mem_listeners(|all| match all.get(name) {
            Some(other) if !other.is_closed() => Err(io::ErrorKind::AddrInUse.into()),
            _ => {
                all.insert(name.into(), sender);
                Ok(Self { name: name.into(), incoming })
            }
        })
    }
}

impl Drop for MemListener {
    fn drop(&mut self) {
        mem_listeners(|all| all.remove(&self.name));
    }
}

/// The listeners of this process, by name.
fn mem_listeners<T>(visit: impl FnOnce(&mut BTreeMap<String, mpsc::Sender<DuplexStream>>) -> T) -> T {
    static ALL: Mutex<BTreeMap<String, mpsc::Sender<DuplexStream>>> = Mutex::new(BTreeMap::new());
    visit(&mut ALL.lock().unwrap_or_else(PoisonError::into_inner))
}

const MEM_BUFFER_LEN: usize = 64 * 1024;
const MEM_BACKLOG: usize = 1024;
