//! Sockets opened by another process.

use std::{
    io,
    net::TcpListener,
    ops::Range,
    os::{
        fd::{AsFd, BorrowedFd, OwnedFd, RawFd},
        unix::net::UnixListener,
    },
};

use rustix::{
    fd::FromRawFd as _,
    io::{FdFlags, fcntl_getfd, fcntl_setfd},
    net::{AddressFamily, SocketType, getsockname, sockopt},
};

use super::target::ListenTarget;

/// A descriptor from another process, of any kind.
#[derive(Debug)]
pub(super) struct AdoptedSocket(OwnedFd);

/// A listener of a known kind.
pub(super) enum AdoptedListener {
    Tcp(TcpListener),
    Unix(UnixListener),
}

/// Takes ownership of descriptors that this process has inherited, by number: of all of them or of none.
///
/// The caller takes each number once.
pub(super) fn adopt(descriptors: Range<RawFd>) -> io::Result<Vec<AdoptedSocket>> {
    for descriptor in descriptors.clone() {
        #[expect(unsafe_code, reason = "an inherited descriptor is a number in the environment")]
        // SAFETY: the borrow ends with this statement. If the descriptor is not open, the call returns an error.
        let flags = fcntl_getfd(unsafe { BorrowedFd::borrow_raw(descriptor) });
        match flags {
            // Descriptors of this program have this flag, because the standard library and all crates set it.
            Ok(flags) if flags.contains(FdFlags::CLOEXEC) => {
                return Err(wrong(&format!(
                    "descriptor {descriptor} was opened by this program, and not passed to it"
                )));
            }
            Ok(_) => {}
            Err(_) => return Err(wrong(&format!("descriptor {descriptor} is not open"))),
        }
    }
    let take = |descriptor| {
        #[expect(unsafe_code, reason = "an inherited descriptor is a number in the environment")]
        // SAFETY: it is open and was inherited, so no other part of this program owns it.
        AdoptedSocket::new(unsafe { OwnedFd::from_raw_fd(descriptor) })
    };
    descriptors.map(take).collect()
}

impl AdoptedSocket {
    /// Keeps the descriptor from further programs that this process starts.
    pub(super) fn new(descriptor: OwnedFd) -> io::Result<Self> {
        fcntl_setfd(&descriptor, FdFlags::CLOEXEC)?;
        Ok(Self(descriptor))
    }

    /// Checks that this is a listening stream socket.
    pub(super) fn into_listener(self) -> io::Result<AdoptedListener> {
        let socket = self.0.as_fd();
        let kind = sockopt::socket_type(socket).map_err(|_| wrong("is not a socket"))?;
        if kind != SocketType::STREAM {
            return Err(wrong("is not a stream socket"));
        }
        if !sockopt::socket_acceptconn(socket)? {
            return Err(wrong("is a connection and not a listener"));
        }
        let listener = match getsockname(socket)?.address_family() {
            AddressFamily::INET | AddressFamily::INET6 => AdoptedListener::Tcp(self.0.into()),
            AddressFamily::UNIX => AdoptedListener::Unix(self.0.into()),
            _ => return Err(wrong("is neither a TCP nor a Unix socket")),
        };
        Ok(listener)
    }

    pub(super) fn into_target(self) -> io::Result<ListenTarget> {
        Ok(match self.into_listener()? {
            AdoptedListener::Tcp(listener) => listener.into(),
            AdoptedListener::Unix(listener) => listener.into(),
        })
    }
}

fn wrong(why: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidInput, why)
}
