//! Unix sockets and their files.

use std::{
    fs::File,
    io,
    os::unix::{fs::FileTypeExt, net},
    path::Path,
    time::{Duration, Instant},
};

use rustix::{
    fs::{FlockOperation, flock},
    io::Errno,
};
use tokio::net::UnixStream;

use crate::{Address, net::socket_file::SocketFile};

/// The name of a Unix listener. The creator of a socket file removes it.
///
/// Always declared before its listener, so the file is removed before the socket closes. Another server may
/// replace a file without a live socket at any time, and this one would then remove the wrong file.
pub(crate) struct UnixName {
    pub(super) address: Address,
    /// The socket file, if this listener created it.
    pub(super) owned: Option<SocketFile>,
}

pub(in crate::net) async fn bind(address: &Address) -> io::Result<(Option<SocketFile>, net::UnixListener)> {
    let (owned, listener) = match address {
        Address::Unix(path) => {
            // Without the lock, another server could replace a stale file between this server's check and its
            // replacement.
            let _lock = lock_directory(path).await?;
            // The file of a dead server refuses connections. A regular file does too, so the file type is checked.
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
        _ => return Err(address.unsupported()),
    };
    listener.set_nonblocking(true)?;
    Ok((owned, listener))
}

/// Waits until no other server binds in the directory of `path`. Dropping the file releases the lock.
async fn lock_directory(path: &Path) -> io::Result<Option<File>> {
    let directory = path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
    // Binding in this directory reports the same problem.
    let Ok(file) = File::open(directory) else { return Ok(None) };
    let since = Instant::now();
    loop {
        match flock(&file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => return Ok(Some(file)),
            Err(Errno::WOULDBLOCK) if since.elapsed() < LOCK_WAIT_MAX => tokio::time::sleep(LOCK_PAUSE).await,
            Err(Errno::WOULDBLOCK) => {
                let why = format!("another process holds a lock on the directory {}", directory.display());
                return Err(io::Error::new(io::ErrorKind::TimedOut, why));
            }
            // Not all file systems have locks. Without one, the race between servers remains.
            Err(_) => return Ok(None),
        }
    }
}

pub(super) fn address_of(addr: &net::SocketAddr) -> Address {
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

/// Far longer than a bind, which takes microseconds.
const LOCK_WAIT_MAX: Duration = Duration::from_secs(5);

/// The pause between attempts to lock a directory.
const LOCK_PAUSE: Duration = Duration::from_millis(1);
