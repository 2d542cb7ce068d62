//! The place where TLS, or nothing, comes between a socket and frisbee.

use std::{any::Any, future::Future, io, pin::Pin, sync::Arc};

use super::wire::Wire;
use crate::Address;

/// The proven identity of a peer; kept as state of the connection.
pub(crate) type Identity = Option<Proof>;

/// Something that a peer proved of itself.
#[derive(Clone)]
#[cfg_attr(not(feature = "tls"), expect(dead_code, reason = "without TLS nobody proves anything"))]
pub(crate) struct Proof(pub(crate) Arc<dyn Any + Send + Sync>);

/// A connection whose handshake is done.
pub(crate) struct Secured {
    pub(crate) wire: Wire,
    pub(crate) identity: Identity,
    /// The protocol that both sides agreed on.
    pub(crate) alpn: Option<Vec<u8>>,
}

type Handshake = Pin<Box<dyn Future<Output = io::Result<Secured>> + Send>>;

type Begin = dyn Fn(Wire, &Address) -> Handshake + Send + Sync;

/// A way to secure a fresh connection with the peer at an address.
#[derive(Clone)]
pub(crate) struct Secure(Arc<Begin>);

impl Secure {
    #[cfg_attr(not(feature = "tls"), expect(dead_code, reason = "without TLS nobody makes one"))]
    pub(crate) fn new(handshake: impl Fn(Wire, &Address) -> Handshake + Send + Sync + 'static) -> Self {
        Self(Arc::new(handshake))
    }

    pub(crate) fn handshake(&self, wire: Wire, peer: &Address) -> Handshake {
        self.0(wire, peer)
    }
}
