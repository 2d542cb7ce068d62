//! The optional TLS handshake between a socket and frisbee.

use std::{any::Any, future::Future, io, pin::Pin, sync::Arc};

use super::wire::IoStream;
use crate::Address;

/// The identity proved by a peer, stored in the state of its connection.
pub(crate) type PeerIdentity = Option<PeerProof>;

/// A fact proved by a peer, such as its certificates. The type is known only to the TLS module.
#[derive(Clone)]
#[cfg_attr(not(feature = "tls"), expect(dead_code, reason = "without TLS nobody proves anything"))]
pub(crate) struct PeerProof(pub(crate) Arc<dyn Any + Send + Sync>);

/// A connection after its handshake.
pub(crate) struct SecuredStream {
    pub(crate) wire: IoStream,
    pub(crate) identity: PeerIdentity,
    /// The protocol negotiated by ALPN.
    pub(crate) alpn: Option<Vec<u8>>,
}

type HandshakeFuture = Pin<Box<dyn Future<Output = io::Result<SecuredStream>> + Send>>;

type HandshakeFn = dyn Fn(IoStream, &Address) -> HandshakeFuture + Send + Sync;

/// A handshake for new connections, given the address of the peer.
#[derive(Clone)]
pub(crate) struct TlsHandshake(Arc<HandshakeFn>);

impl TlsHandshake {
    #[cfg_attr(not(feature = "tls"), expect(dead_code, reason = "without TLS nobody makes one"))]
    pub(crate) fn new(handshake: impl Fn(IoStream, &Address) -> HandshakeFuture + Send + Sync + 'static) -> Self {
        Self(Arc::new(handshake))
    }

    pub(crate) fn handshake(&self, wire: IoStream, peer: &Address) -> HandshakeFuture {
        self.0(wire, peer)
    }
}
