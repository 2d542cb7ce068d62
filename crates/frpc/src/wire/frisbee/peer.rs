//! The peer of a call that came over frisbee.

use std::future::{Future, pending};

use frisbee::{Address, Connection};

use crate::call::{
    context,
    exchange::Call,
    head::{Head, Origin},
    request::Request,
};
use crate::wire::peer::Peer;

impl Head {
    /// Returns the connection that the call came on. `None` for a call that did not come over frisbee.
    pub fn connection(&self) -> Option<Connection> {
        Connection::from_any(self.origin()?.get())
    }

    /// Returns the address that the call came from.
    pub fn peer_addr(&self) -> Option<Address> {
        match self.connection() {
            Some(connection) => Some(connection.peer_addr().clone()),
            None => Peer::of_head(self).map(|peer| peer.address.clone()),
        }
    }

    /// Waits until the caller has given the call up, or its connection has ended. For ever if the call ends otherwise.
    ///
    /// A handler need not look: it is dropped when the caller goes away. Tasks that it spawned are not: make the future in the
    /// handler and give it to them.
    pub fn cancelled(&self) -> impl Future<Output = ()> + Send + use<> {
        let connection = self.connection();
        // Of a call that came over a wire, the handler itself is dropped; it can tell others.
        let token = self.cancellation().cloned().or_else(|| self.origin().and_then(|_| context::token()));
        async move {
            match (token, connection) {
                (Some(token), Some(connection)) => tokio::select! {
                    () = token.cancelled() => {}
                    _ = connection.closed() => {}
                },
                (Some(token), None) => token.cancelled().await,
                (None, Some(connection)) => drop(connection.closed().await),
                (None, None) => pending().await,
            }
        }
    }
}

impl<T> Request<T> {
    /// Returns the connection that a received request came on, for packets and streams of the handler's own. `None` for a
    /// request that was not received, or did not come over frisbee.
    pub fn connection(&self) -> Option<Connection> {
        self.head().connection()
    }

    /// Returns the address that a received request came from.
    pub fn peer_addr(&self) -> Option<Address> {
        self.head().peer_addr()
    }

    /// Waits until the caller of a received request has given up, or its connection has ended; see [`Head::cancelled`].
    pub fn cancelled(&self) -> impl Future<Output = ()> + Send + use<T> {
        self.head().cancelled()
    }

    /// Returns the certificate chain that the peer proved to own, its own certificate first.
    #[cfg(feature = "tls")]
    pub fn peer_certificates(
        &self,
    ) -> Option<std::sync::Arc<Vec<frisbee::rustls::pki_types::CertificateDer<'static>>>> {
        match self.connection() {
            Some(connection) => connection.peer_certificates(),
            None => Peer::of_head(self.head())?.certificates.clone(),
        }
    }
}

impl Call {
    /// Returns the address that a received call came from.
    pub fn peer_addr(&self) -> Option<Address> {
        self.head().peer_addr()
    }
}

/// Keeps the connection of a call where only this wire looks.
#[inline]
pub(crate) fn origin(connection: &Connection) -> Origin {
    Origin::new(connection.clone().into_any())
}
