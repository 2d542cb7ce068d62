//! Listen targets of a server: addresses and existing listeners.

use std::{fmt, io, net::TcpListener};

use crate::{Address, ToAddress};

/// One or several places to listen on, for [`ServerBuilder::bind`](crate::ServerBuilder::bind).
///
/// | one place | several places for one server |
/// |---|---|
/// | `"tcp://127.0.0.1:7300"`, any [`ToAddress`] | an array, a slice or a `Vec` of addresses |
/// | a `TcpListener` or `UnixListener`, of std or tokio | an array or a `Vec` of them |
/// | a [`ListenTarget`] | an array or a `Vec` of them, for mixed kinds |
/// | | `SystemdListeners`, and the targets of a `Handover`, on Unix |
///
/// An existing listener keeps its options, and the file of an existing `UnixListener` is not removed at the end.
/// Both are the responsibility of its creator, for example a service manager.
///
/// ```
/// use frisbee::{ListenTarget, Server};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let listener = std::net::TcpListener::bind("127.0.0.1:0")?;
/// let targets = [ListenTarget::from(listener), ListenTarget::address("mem:docs")?];
/// let server = Server::builder(()).bind(targets).await?;
/// assert_eq!(server.local_addrs().len(), 2);
/// # Ok(())
/// # }
/// ```
pub trait ListenOn {
    /// Returns all places to listen on, or an error for an invalid address.
    fn into_targets(self) -> io::Result<Vec<ListenTarget>>;
}

/// One address or listener of a server.
#[derive(Debug)]
pub struct ListenTarget(pub(crate) TargetKind);

#[derive(Debug)]
pub(crate) enum TargetKind {
    Address(Address),
    Tcp(TcpListener),
    #[cfg(unix)]
    Unix(std::os::unix::net::UnixListener),
    #[cfg(unix)]
    Passed(super::passed::PassedListeners),
}

impl fmt::Display for TargetKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Address(address) => address.fmt(f),
            Self::Tcp(_) => f.write_str("a TCP listener"),
            #[cfg(unix)]
            Self::Unix(_) => f.write_str("a Unix listener"),
            #[cfg(unix)]
            Self::Passed(passed) => f.write_str(&passed.name),
        }
    }
}

impl TargetKind {
    /// Returns the requested address. Existing listeners have none.
    pub(crate) fn requested(&self) -> Option<String> {
        match self {
            Self::Address(address) => Some(address.to_string()),
            #[cfg(unix)]
            Self::Passed(passed) => Some(passed.name.clone()),
            _ => None,
        }
    }
}

impl ListenTarget {
    /// Creates a target from an address.
    pub fn address(address: impl ToAddress) -> io::Result<Self> {
        Ok(Self(TargetKind::Address(address.to_address()?)))
    }
}

impl From<Address> for ListenTarget {
    fn from(address: Address) -> Self {
        Self(TargetKind::Address(address))
    }
}

impl From<TcpListener> for ListenTarget {
    fn from(listener: TcpListener) -> Self {
        Self(TargetKind::Tcp(listener))
    }
}

#[cfg(unix)]
impl From<std::os::unix::net::UnixListener> for ListenTarget {
    fn from(listener: std::os::unix::net::UnixListener) -> Self {
        Self(TargetKind::Unix(listener))
    }
}

impl TryFrom<tokio::net::TcpListener> for ListenTarget {
    type Error = io::Error;

    fn try_from(listener: tokio::net::TcpListener) -> io::Result<Self> {
        listener.into_std().map(Self::from)
    }
}

#[cfg(unix)]
impl TryFrom<tokio::net::UnixListener> for ListenTarget {
    type Error = io::Error;

    fn try_from(listener: tokio::net::UnixListener) -> io::Result<Self> {
        listener.into_std().map(Self::from)
    }
}

impl<T: ToAddress> ListenOn for T {
    fn into_targets(self) -> io::Result<Vec<ListenTarget>> {
        Ok(vec![ListenTarget::address(self)?])
    }
}

impl ListenOn for ListenTarget {
    fn into_targets(self) -> io::Result<Vec<ListenTarget>> {
        Ok(vec![self])
    }
}

impl ListenOn for TcpListener {
    fn into_targets(self) -> io::Result<Vec<ListenTarget>> {
        Ok(vec![self.into()])
    }
}

impl ListenOn for tokio::net::TcpListener {
    fn into_targets(self) -> io::Result<Vec<ListenTarget>> {
        Ok(vec![self.try_into()?])
    }
}

#[cfg(unix)]
impl ListenOn for std::os::unix::net::UnixListener {
    fn into_targets(self) -> io::Result<Vec<ListenTarget>> {
        Ok(vec![self.into()])
    }
}

#[cfg(unix)]
impl ListenOn for tokio::net::UnixListener {
    fn into_targets(self) -> io::Result<Vec<ListenTarget>> {
        Ok(vec![self.try_into()?])
    }
}

impl<T: ListenOn> ListenOn for Vec<T> {
    fn into_targets(self) -> io::Result<Vec<ListenTarget>> {
        targets_of(self)
    }
}

impl<T: ListenOn, const N: usize> ListenOn for [T; N] {
    fn into_targets(self) -> io::Result<Vec<ListenTarget>> {
        targets_of(self)
    }
}

impl<T: ToAddress> ListenOn for &[T] {
    fn into_targets(self) -> io::Result<Vec<ListenTarget>> {
        targets_of(self)
    }
}

impl<T: ToAddress, const N: usize> ListenOn for &[T; N] {
    fn into_targets(self) -> io::Result<Vec<ListenTarget>> {
        targets_of(self)
    }
}

impl<T: ToAddress> ListenOn for &Vec<T> {
    fn into_targets(self) -> io::Result<Vec<ListenTarget>> {
        targets_of(self)
    }
}

pub(super) fn targets_of(all: impl IntoIterator<Item: ListenOn>) -> io::Result<Vec<ListenTarget>> {
    let mut targets = Vec::new();
    for one in all {
        targets.extend(one.into_targets()?);
    }
    if targets.is_empty() {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "nothing to listen on was given"));
    }
    Ok(targets)
}
