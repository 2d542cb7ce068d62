//! The optional TLS handshake between a socket and frisbee.

use std::{any::Any, future::Future, io, pin::Pin, sync::Arc};

use super::wire::Wire;
use crate::Address;

/// The identity proved by a peer, stored in the state of its connection.
pub(crate) type Identity = Option<Proof>;

/// A fact proved by a peer, such as its certificates. The type is known only to the TLS module.
#[derive(Clone)]
#[cfg_attr(not(feature = "tls"), expect(dead_code, reason = "without TLS nobody proves anything"))]
pub(crate) struct Proof(pub(crate) Arc<dyn Any + Send + Sync>);

/// A connection after its handshake.
pub(crate) struct Secured {
    pub(crate) wire: Wire,
    pub(crate) identity: Identity,
    /// The protocol negotiated by ALPN.
    pub(crate) alpn: Option<Vec<u8>>,
}

type Handshake = Pin<Box<dyn Future<Output = io::Result<Secured>> + Send>>;

type Begin = dyn Fn(Wire, &Address) -> Handshake + Send + Sync;

/// A handshake for new connections, given the address of the peer.
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
