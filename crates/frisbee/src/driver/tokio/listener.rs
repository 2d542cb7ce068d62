//! Listening and connecting, for every kind of address.

use std::{
    collections::BTreeMap,
    io,
    net::SocketAddr,
    sync::{Mutex, PoisonError},
    task::{Context, Poll, ready},
    time::Duration,
};
#[cfg(unix)]
use std::{
    fs::File,
    os::unix::{
        fs::{FileTypeExt, MetadataExt},
        net,
    },
    path::{Path, PathBuf},
    time::{Instant, SystemTime},
};

#[cfg(unix)]
use rustix::{
    fs::{FlockOperation, flock},
    io::Errno,
};
use socket2::{Domain, Protocol, SockRef, Socket, TcpKeepalive, Type};
#[cfg(unix)]
use tokio::net::{UnixListener, UnixStream};
use tokio::{
    io::DuplexStream,
    net::{TcpListener, TcpStream, lookup_host},
    runtime::Handle,
    sync::mpsc,
};

use super::Wire;
use crate::{Address, SocketOptions, listen::Target};

/// What a server is about to listen on. TCP ports are taken; nothing listens.
pub(crate) enum Bound {
    Tcp(TcpSockets),
    /// A listener of the user's own.
    TcpListener(std::net::TcpListener),
    #[cfg(unix)]
    Unix(Address),
    /// A listener of the user's own.
    #[cfg(unix)]
    UnixListener(net::UnixListener),
    Mem(String),
}

/// A listener that is part of a runtime.
pub(crate) enum Listener {
    Tcp(TcpListener, SocketOptions),
    #[cfg(unix)]
    Unix(UnixName, UnixListener),
    Mem(MemListener),
}

impl Bound {
    /// Takes what can be taken without listening, for so many listeners.
    pub(crate) async fn bind(target: Target, options: &SocketOptions, listeners: usize) -> io::Result<Self> {
        match target {
            Target::Address(address @ (Address::Tcp(_) | Address::Host { .. })) => {
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
            Target::Address(address @ (Address::Unix(_) | Address::Abstract(_))) => Ok(Self::Unix(address)),
            Target::Address(Address::Mem(name)) => Ok(Self::Mem(name)),
            Target::Address(address) => Err(unsupported(&address)),
            Target::Tcp(listener) => {
                listener.set_nonblocking(true)?;
                Ok(Self::TcpListener(listener))
            }
            #[cfg(unix)]
            Target::Unix(listener) => {
                listener.set_nonblocking(true)?;
                Ok(Self::UnixListener(listener))
            }
        }
    }

    /// Listens, with a listener on each of the runtimes as far as this kind can have several. The kernel or others in the
    /// process may connect from now on. Returns the address as well.
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
                let (owned, listener) = bind_unix(&address).await?;
                let listeners = unix_listeners(runtimes, &address, listener, owned)?;
                Ok((address, with_runtimes(listeners)))
            }
            #[cfg(unix)]
            Self::UnixListener(listener) => {
                let address = unix_address(&listener.local_addr()?);
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

/// Copies a listener that cannot be spread over threads in a better way.
fn cloned<T>(listener: T, count: usize, clone: impl Fn(&T) -> io::Result<T>) -> io::Result<Vec<T>> {
    let mut all = Vec::with_capacity(count);
    for _ in 1..count {
        all.push(clone(&listener)?);
    }
    all.push(listener);
    Ok(all)
}

/// Makes a listener part of each runtime.
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

/// Sockets bound to one port, of which the kernel gives each connection to one.
pub(crate) struct TcpSockets {
    sockets: Vec<Socket>,
    /// Whether the port is not to be shared with anybody else.
    is_exclusive: bool,
}

impl TcpSockets {
    fn bind(addr: SocketAddr, options: &SocketOptions, count: usize) -> io::Result<Self> {
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

    /// The first socket listens before it shares its port. That fails if anybody listens there already, with a port that
    /// can be shared or without; and whoever tries the same from then on finds this one. Only the other sockets of this
    /// server, which do not ask first, come in beside it.
    fn listen(self, backlog: u32) -> io::Result<Vec<std::net::TcpListener>> {
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

impl Listener {
    /// Accepts the next connection. Returns its own and its peer's address as well.
    pub(crate) fn poll_accept(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<(Wire, Address, Address)>> {
        Poll::Ready(match self {
            Self::Tcp(listener, options) => {
                let (socket, peer) = ready!(listener.poll_accept(cx))?;
                // A socket that cannot be set up is one whose peer is gone already.
                let local = set_options(&socket, options).and_then(|()| socket.local_addr());
                let local = local.map_err(|error| io::Error::new(io::ErrorKind::ConnectionAborted, error))?;
                Ok((Wire::Tcp(socket), Address::Tcp(local), Address::Tcp(peer)))
            }
            #[cfg(unix)]
            Self::Unix(name, listener) => {
                let (socket, _) = ready!(listener.poll_accept(cx))?;
                Ok((Wire::Unix(socket), name.address.clone(), Address::Unnamed))
            }
            Self::Mem(listener) => match ready!(listener.incoming.poll_recv(cx)) {
                Some(stream) => Ok((Wire::Mem(stream), Address::Mem(listener.name.clone()), Address::Unnamed)),
                None => return Poll::Pending,
            },
        })
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
        // RFC 6761 keeps this domain free of names, whatever a resolver says.
        Address::Host { name, .. } if name.trim_end_matches('.').ends_with(".invalid") => {
            Err(io::Error::new(io::ErrorKind::NotFound, "names in the domain `invalid` do not exist"))
        }
        Address::Host { name, port } => match lookup_host((name.as_str(), *port)).await {
            Ok(addrs) => Ok(addrs.collect()),
            Err(error) if is_unknown(&error) => Err(io::Error::new(io::ErrorKind::NotFound, error)),
            Err(error) => Err(error),
        },
        _ => Ok(address.socket_addr().into_iter().collect()),
    }
}

/// Whether a resolver knows that there is no such name, as opposed to a failure that may pass. The standard library keeps
/// only the words of `gai_strerror`: these are those of glibc, musl and macOS. Windows has a code.
fn is_unknown(error: &io::Error) -> bool {
    const WORDS: [&str; 5] = [
        "Name or service not known",
        "No address associated with hostname",
        "Name does not resolve",
        "Name has no usable address",
        "nodename nor servname provided, or not known",
    ];
    const WSAHOST_NOT_FOUND: i32 = 11001;
    let text = error.to_string();
    error.raw_os_error() == Some(WSAHOST_NOT_FOUND) || WORDS.iter().any(|words| text.contains(words))
}

fn bind_tcp(addr: SocketAddr, reuse_port: bool) -> io::Result<Socket> {
    let socket = Socket::new(Domain::for_address(addr), Type::STREAM, Some(Protocol::TCP))?;
    // A restarted server must not wait for connections of its predecessor to be forgotten. Elsewhere, this would take
    // the port from whoever has it.
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

/// Ports cannot be shared here.
#[cfg(not(unix))]
fn set_reuse_port(_: &Socket, _: bool) -> io::Result<()> {
    Ok(())
}

fn set_options(socket: &TcpStream, options: &SocketOptions) -> io::Result<()> {
    socket.set_nodelay(options.nodelay)?;
    if let Some(time) = options.keepalive {
        // More than the system can count is as good as the most it can.
        let time = time.min(KEEPALIVE_MAX);
        SockRef::from(socket).set_tcp_keepalive(&TcpKeepalive::new().with_time(time).with_interval(time))?;
    }
    Ok(())
}

fn unsupported(address: &Address) -> io::Error {
    io::Error::new(io::ErrorKind::Unsupported, format!("{address} is not available on this system"))
}

/// The name of a Unix listener. The one that made a socket file removes it.
///
/// Stands in front of its listener everywhere, so that its file is gone before the socket is: a file whose socket is gone
/// could be replaced by somebody else at any time.
#[cfg(unix)]
pub(crate) struct UnixName {
    address: Address,
    /// The file, if it is ours.
    _owned: Option<SocketFile>,
}

/// A file that stands for a Unix socket, as it was when it was made.
#[cfg(unix)]
struct SocketFile {
    path: PathBuf,
    identity: Identity,
}

#[cfg(unix)]
impl SocketFile {
    fn new(path: &Path) -> io::Result<Self> {
        Ok(Self { path: path.to_owned(), identity: identity(path)? })
    }
}

#[cfg(unix)]
impl Drop for SocketFile {
    fn drop(&mut self) {
        // Somebody may have removed it, and somebody else may have a socket in its place.
        if identity(&self.path).is_ok_and(|identity| identity == self.identity) {
            let _ = std::fs::remove_file(&self.path);
        }
    }
}

/// What tells a file from another one in its place: device, number, and when it was made, where that is known. A number
/// is given to another file once a file is gone and its socket is closed.
#[cfg(unix)]
type Identity = (u64, u64, Option<SystemTime>);

#[cfg(unix)]
fn identity(path: &Path) -> io::Result<Identity> {
    let metadata = std::fs::symlink_metadata(path)?;
    Ok((metadata.dev(), metadata.ino(), metadata.created().ok()))
}

#[cfg(unix)]
async fn bind_unix(address: &Address) -> io::Result<(Option<SocketFile>, net::UnixListener)> {
    let (owned, listener) = match address {
        Address::Unix(path) => {
            // Between finding that a file was left behind and replacing it, another server could have done the same.
            let _lock = lock_directory(path).await?;
            // What a server that died left behind refuses connections. So does a file that never was a socket.
            if let Err(error) = UnixStream::connect(path).await
                && error.kind() == io::ErrorKind::ConnectionRefused
                && std::fs::symlink_metadata(path)?.file_type().is_socket()
            {
                std::fs::remove_file(path)?;
            }
            let listener = net::UnixListener::bind(path)?;
            (Some(SocketFile::new(path)?), listener)
        }
        #[cfg(target_os = "linux")]
        Address::Abstract(name) => (None, net::UnixListener::bind_addr(&abstract_addr(name)?)?),
        _ => return Err(unsupported(address)),
    };
    listener.set_nonblocking(true)?;
    Ok((owned, listener))
}

/// Waits until no other server binds in the directory of a path. The lock goes with the file.
#[cfg(unix)]
async fn lock_directory(path: &Path) -> io::Result<Option<File>> {
    let directory = path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
    // What is wrong with the directory will be told by the attempt to bind in it.
    let Ok(file) = File::open(directory) else { return Ok(None) };
    let since = Instant::now();
    loop {
        match flock(&file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => return Ok(Some(file)),
            Err(Errno::WOULDBLOCK) if since.elapsed() < LOCK_WAIT_MAX => tokio::time::sleep(LOCK_PAUSE).await,
            Err(Errno::WOULDBLOCK) => {
                let why = format!("somebody holds a lock on the directory {}", directory.display());
                return Err(io::Error::new(io::ErrorKind::TimedOut, why));
            }
            // A file system without locks has no servers that could race.
            Err(_) => return Ok(None),
        }
    }
}

#[cfg(unix)]
fn unix_listeners(
    runtimes: &[Handle],
    address: &Address,
    listener: net::UnixListener,
    mut owned: Option<SocketFile>,
) -> io::Result<Vec<Listener>> {
    on_each(runtimes, cloned(listener, runtimes.len(), net::UnixListener::try_clone)?, |listener| {
        let name = UnixName { address: address.clone(), _owned: owned.take() };
        Ok(Listener::Unix(name, UnixListener::from_std(listener)?))
    })
}

#[cfg(unix)]
fn unix_address(addr: &net::SocketAddr) -> Address {
    #[cfg(target_os = "linux")]
    if let Some(name) = std::os::linux::net::SocketAddrExt::as_abstract_name(addr) {
        return Address::Abstract(String::from_utf8_lossy(name).into_owned());
    }
    addr.as_pathname().map_or(Address::Unnamed, |path| Address::Unix(path.to_owned()))
}

#[cfg(target_os = "linux")]
fn abstract_addr(name: &str) -> io::Result<net::SocketAddr> {
    use std::os::linux::net::SocketAddrExt;
    net::SocketAddr::from_abstract_name(name)
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

/// Binding takes microseconds.
#[cfg(unix)]
const LOCK_WAIT_MAX: Duration = Duration::from_secs(5);
#[cfg(unix)]
const LOCK_PAUSE: Duration = Duration::from_millis(1);
/// Linux counts no further.
const KEEPALIVE_MAX: Duration = Duration::from_secs(32_767);
const MEM_BUFFER_LEN: usize = 64 * 1024;
const MEM_BACKLOG: usize = 1024;
