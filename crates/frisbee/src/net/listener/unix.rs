//! Unix sockets, and the files that stand for them.

use std::{
    fs::File,
    io,
    os::unix::{
        fs::{FileTypeExt, MetadataExt},
        net,
    },
    path::{Path, PathBuf},
    time::{Duration, Instant, SystemTime},
};

use rustix::{
    fs::{FlockOperation, flock},
    io::Errno,
};
use tokio::net::UnixStream;

use crate::Address;

/// The name of a Unix listener. The one that made a socket file removes it.
///
/// Stands in front of its listener everywhere, so that its file is gone before the socket is: a file whose socket is gone
/// could be replaced by somebody else at any time.
pub(crate) struct UnixName {
    pub(super) address: Address,
    /// The file, if it is ours.
    pub(super) _owned: Option<SocketFile>,
}

/// A file that stands for a Unix socket, as it was when it was made.
pub(super) struct SocketFile {
    path: PathBuf,
    identity: Identity,
}

impl SocketFile {
    fn new(path: &Path) -> io::Result<Self> {
        Ok(Self { path: path.to_owned(), identity: identity(path)? })
    }
}

impl Drop for SocketFile {
    fn drop(&mut self) {
        // Somebody may have removed it, and somebody else may have a socket in its place.
        if identity(&self.path).is_ok_and(|identity| identity == self.identity) {
            let _ = std::fs::remove_file(&self.path);
        }
    }
}

/// The marks that tell a file from another one in its place: device, number, and time of making, where that is known. A
/// number is given to another file once a file is gone and its socket is closed.
type Identity = (u64, u64, Option<SystemTime>);

fn identity(path: &Path) -> io::Result<Identity> {
    let metadata = std::fs::symlink_metadata(path)?;
    Ok((metadata.dev(), metadata.ino(), metadata.created().ok()))
}

pub(super) async fn bind(address: &Address) -> io::Result<(Option<SocketFile>, net::UnixListener)> {
    let (owned, listener) = match address {
        Address::Unix(path) => {
            // Between finding that a file was left behind and replacing it, another server could have done the same.
            let _lock = lock_directory(path).await?;
            // The file of a server that died refuses connections. So does a file that never was a socket.
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

/// Waits until no other server binds in the directory of a path. The lock goes with the file.
async fn lock_directory(path: &Path) -> io::Result<Option<File>> {
    let directory = path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
    // The attempt to bind in the directory will tell any trouble with it.
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

/// Binding takes microseconds.
const LOCK_WAIT_MAX: Duration = Duration::from_secs(5);

const LOCK_PAUSE: Duration = Duration::from_millis(1);
