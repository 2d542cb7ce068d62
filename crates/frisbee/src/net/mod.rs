//! Sockets of every kind. No other module opens or configures a socket.

mod credentials;
mod listener;
#[cfg(not(all(feature = "uring", target_os = "linux")))]
pub(crate) mod no_uring;
mod on_ring;
mod options;
mod raw;
mod ring_error;
mod ring_kind;
mod secure;
mod target;
#[cfg(all(feature = "uring", target_os = "linux"))]
pub(crate) mod uring;
mod wire;

#[cfg(not(all(feature = "uring", target_os = "linux")))]
pub(crate) use self::no_uring as uring;
#[cfg(feature = "tls")]
pub(crate) use self::secure::PeerProof;
pub use self::{
    credentials::PeerCredentials,
    options::SocketOptions,
    raw::Raw,
    ring_error::RingError,
    target::{ListenOn, ListenTarget},
};
pub(crate) use self::{
    listener::{BoundSocket, Listener, connect},
    ring_kind::RingKind,
    secure::{PeerIdentity, SecuredStream, TlsHandshake},
    wire::IoStream,
};
