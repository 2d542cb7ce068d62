//! The peer of a call over frisbee.

use std::future::{Future, pending};

use frisbee::{Address, Connection};

use crate::call::{
    context,
    exchange::Call,
    head::{CallOrigin, Head},
    request::Request,
};
use crate::wire::peer::WirePeer;

impl Head {
    /// Returns the connection of a received call. `None` unless it arrived over frisbee.
    pub fn connection(&self) -> Option<Connection> {
        Connection::from_any(self.origin()?.get())
    }

    /// Returns the address of the caller.
    pub fn peer_addr(&self) -> Option<Address> {
        match self.connection() {
            Some(connection) => Some(connection.peer_addr().clone()),
            None => WirePeer::of_head(self).map(|peer| peer.address.clone()),
        }
    }

    /// Completes when the caller cancels the call or its connection ends. Never completes if the call ends normally.
    ///
    /// A handler does not need it, because a handler is dropped when its caller is gone. Tasks spawned by the handler
    /// are not dropped: create this future in the handler and move it into the task.
    pub fn cancelled(&self) -> impl Future<Output = ()> + Send + use<> {
        let connection = self.connection();
        // On other wires, the handler's own drop is the signal. The token passes it on to tasks.
        let token = self.cancellation().cloned().or_else(|| self.origin().and_then(|_| context::token()));
        async move {
            match (token, connection) {
                (Some(token), Some(connection)) => tokio::select! {
                    // A simulation needs a fixed order. Both events have the same effect.
                    biased;
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
    /// Returns the connection of a received request, for custom packets and streams. `None` unless it arrived over
    /// frisbee.
    pub fn connection(&self) -> Option<Connection> {
        self.head().connection()
    }

    /// Returns the address of a received request's caller.
    pub fn peer_addr(&self) -> Option<Address> {
        self.head().peer_addr()
    }

    /// Completes when the caller cancels the call or its connection ends; see [`Head::cancelled`].
    pub fn cancelled(&self) -> impl Future<Output = ()> + Send + use<T> {
        self.head().cancelled()
    }

    /// Returns the verified certificate chain of the peer, starting with its own certificate.
    #[cfg(feature = "tls")]
    pub fn peer_certificates(
        &self,
    ) -> Option<std::sync::Arc<Vec<frisbee::rustls::pki_types::CertificateDer<'static>>>> {
        match self.connection() {
            Some(connection) => connection.peer_certificates(),
            None => WirePeer::of_head(self.head())?.certificates.clone(),
        }
    }
}

impl Call {
    /// Returns the address of a received call's caller.
    pub fn peer_addr(&self) -> Option<Address> {
        self.head().peer_addr()
    }
}

/// Stores the connection in a call. Only the frisbee wire reads it back.
#[inline]
pub(crate) fn origin(connection: &Connection) -> CallOrigin {
    CallOrigin::new(connection.clone().into_any())
}
