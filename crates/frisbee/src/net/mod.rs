//! Sockets of every kind. No other module opens or configures a socket.

#[cfg(unix)]
mod adopted;
mod credentials;
mod flow;
mod frames;
#[cfg(unix)]
mod handover;
mod listener;
mod low_water;
#[cfg(not(all(feature = "uring", target_os = "linux")))]
pub(crate) mod no_uring;
mod on_ring;
mod options;
#[cfg(unix)]
mod passed;
mod raw;
mod ring_error;
mod ring_kind;
mod secure;
#[cfg(unix)]
mod socket_file;
#[cfg(unix)]
mod systemd;
mod target;
#[cfg(all(feature = "uring", target_os = "linux"))]
pub(crate) mod uring;
mod wire;

#[cfg(unix)]
pub(crate) use self::handover::{NextProcess, SharedListener};
#[cfg(not(all(feature = "uring", target_os = "linux")))]
pub(crate) use self::no_uring as uring;
#[cfg(feature = "tls")]
pub(crate) use self::secure::PeerProof;
pub use self::{
    credentials::PeerCredentials,
    flow::FlowState,
    frames::{FrameCount, FrameCounts},
    options::SocketOptions,
    raw::Raw,
    ring_error::RingError,
    target::{ListenOn, ListenTarget},
};
#[cfg(unix)]
pub use self::{handover::Handover, systemd::SystemdListeners};
pub(crate) use self::{
    listener::{BoundSocket, Listener, connect},
    raw::StreamTraffic,
    ring_kind::RingKind,
    secure::{PeerIdentity, SecuredStream, TlsHandshake},
    wire::IoStream,
};
