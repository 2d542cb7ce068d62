//! Sockets whose reading and writing goes through a ring of io_uring, one for each thread.

mod access;
mod borrowed;
mod buffers;
mod kernel;
mod ring;

use std::{
    env,
    future::Future,
    io::{self, IoSlice},
    os::fd::OwnedFd,
    pin::Pin,
    sync::OnceLock,
    task::{Context, Poll},
};

use bytes::Bytes;
use socket2::SockRef;
use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    net::{TcpStream, UnixStream},
    runtime::Builder,
};

use self::{access::Access, borrowed::Borrowed, kernel::Kernel, ring::Ring};
use super::Wire;

/// Asks the kernel whether sockets can go on rings here, until it has given a final answer.
pub(crate) fn probe() -> io::Result<()> {
    way().map(|_| ())
}

/// Tells whether this thread has a ring.
pub(crate) fn is_here() -> bool {
    Ring::here(|_| ()).is_some()
}

/// Runs on a runtime of this thread alone, with a ring.
pub(crate) fn block_on<F: Future<Output = io::Result<()>>>(begin: impl FnOnce() -> F) -> io::Result<()> {
    let way = way()?;
    if is_chosen("tokio-uring") {
        return Borrowed::runtime()?.block_on(async {
            ring::install(Access::Borrowed(Borrowed::default()))?;
            begin().await
        });
    }
    let runtime = Builder::new_current_thread().enable_all().on_thread_park(ring::linger).build()?;
    runtime.block_on(async {
        ring::install(Access::Own(Kernel::new(way)?))?;
        begin().await
    })
}

/// The kinds of ring.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Way {
    /// The kernel reads by itself, into buffers that it picks, and does its work when it is told to: Linux 6.1 and later.
    Native,
    /// Sockets wait on the ring, and send on it what is small: Linux 5.19 and later. Nothing is read on it. A read in
    /// flight could not be ended without losing what it brings.
    Portable,
}

fn way() -> io::Result<Way> {
    /// What the kernel will say again. It remembers an error's text, because an error cannot be cloned.
    static FINAL: OnceLock<Result<Way, (io::ErrorKind, String)>> = OnceLock::new();
    let describe = |error: io::Error| (error.kind(), format!("io_uring is not available: {error}"));
    let found = match FINAL.get() {
        Some(found) => found.clone(),
        None => match find_way() {
            Err(error) if !is_final(&error) => Err(describe(error)),
            found => FINAL.get_or_init(|| found.map_err(describe)).clone(),
        },
    };
    found.map_err(|(kind, text)| io::Error::new(kind, text))
}

/// Tells whether this kernel will never answer otherwise. It may run out of memory or descriptors and have some again.
fn is_final(error: &io::Error) -> bool {
    use libc::{EACCES, EINVAL, ENOSYS, EOPNOTSUPP, EPERM};
    matches!(error.raw_os_error(), Some(EACCES | EINVAL | ENOSYS | EOPNOTSUPP | EPERM))
}

fn find_way() -> io::Result<Way> {
    let probe = |way| Kernel::new(way)?.probe();
    // tokio-uring wants of the kernel what the portable way does.
    if !is_chosen("portable") && !is_chosen("tokio-uring") {
        match probe(Way::Native) {
            // The kernel does not know all of it.
            Err(error) if error.raw_os_error() == Some(libc::EINVAL) => {}
            native => return native.map(|()| Way::Native),
        }
    }
    probe(Way::Portable).map(|()| Way::Portable)
}

fn is_chosen(choice: &str) -> bool {
    env::var_os(CHOICE).is_some_and(|chosen| chosen == choice)
}

/// The environment variable that has a newer kernel treated as an older one, with the value `portable`, or has the ring of
/// tokio-uring used, with its name.
const CHOICE: &str = "FRISBEE_URING";

/// A connected socket on the ring of its thread. It works on that thread only.
pub(crate) struct Socket {
    ring: u64,
    key: usize,
    kind: Kind,
}

/// What a socket is for tokio.
#[derive(Clone, Copy)]
enum Kind {
    Tcp,
    Unix,
}

impl Kind {
    fn wire(self, fd: OwnedFd) -> io::Result<Wire> {
        Ok(match self {
            Self::Tcp => Wire::Tcp(TcpStream::from_std(fd.into())?),
            Self::Unix => Wire::Unix(UnixStream::from_std(fd.into())?),
        })
    }
}

impl Wire {
    /// Moves a socket onto the ring of this thread, if it has one.
    pub(crate) fn onto_ring(self) -> io::Result<Self> {
        if !is_here() {
            return Ok(self);
        }
        let (fd, kind): (OwnedFd, _) = match self {
            Self::Tcp(socket) => (socket.into_std()?.into(), Kind::Tcp),
            Self::Unix(socket) => (socket.into_std()?.into(), Kind::Unix),
            other => return Ok(other),
        };
        Socket::new(fd, kind).map(Self::Ring)
    }

    /// A wire that works on any thread, and what was received and not read.
    pub(crate) async fn off_ring(self) -> io::Result<(Self, Bytes)> {
        let Self::Ring(socket) = self else { return Ok((self, Bytes::new())) };
        let kind = socket.kind;
        let (fd, unread) = socket.into_fd().await?;
        Ok((kind.wire(fd)?, unread))
    }
}

impl Socket {
    /// Puts a connected socket on the ring of this thread, which has one.
    fn new(fd: OwnedFd, kind: Kind) -> io::Result<Self> {
        // The kernel waits by itself; it would not if the socket forbade it.
        SockRef::from(&fd).set_nonblocking(false)?;
        let placed = Ring::here(|ring| Self { ring: ring.id(), key: ring.insert(fd), kind });
        placed.ok_or_else(no_ring)
    }

    /// Takes the socket off the ring, with what was received and not read.
    async fn into_fd(self) -> io::Result<(OwnedFd, Bytes)> {
        let removed = std::future::poll_fn(|cx| self.with(|ring, key| ring.poll_remove(key, cx))).await;
        std::mem::forget(self);
        let (fd, unread) = removed?;
        SockRef::from(&fd).set_nonblocking(true)?;
        Ok((fd, unread))
    }

    fn with<T>(&self, visit: impl FnOnce(&mut Ring, usize) -> Poll<io::Result<T>>) -> Poll<io::Result<T>> {
        let visited = Ring::here(|ring| (ring.id() == self.ring).then(|| visit(ring, self.key)));
        visited.flatten().unwrap_or_else(|| Poll::Ready(Err(ring::failure(self.ring).unwrap_or_else(no_ring))))
    }
}

fn no_ring() -> io::Error {
    io::Error::other("the connection is used away from the ring of its thread")
}

impl Drop for Socket {
    fn drop(&mut self) {
        let waited = Ring::here(|ring| (ring.id() == self.ring).then(|| ring.drop(self.key)));
        drop(waited);
    }
}

impl AsyncRead for Socket {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        self.with(|ring, key| ring.poll_read(key, cx, buf))
    }
}

impl AsyncWrite for Socket {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        self.poll_write_vectored(cx, &[IoSlice::new(buf)])
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.with(|ring, key| ring.poll_write(key, cx, slices))
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.with(|ring, key| ring.poll_flush(key, cx))
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.with(|ring, key| ring.poll_shutdown(key, cx))
    }
}
