//! The peer of a call over a wire other than frisbee.

use std::{fmt, sync::Arc};

use frisbee::{Address, Raw};

use crate::call::head::{CallOrigin, Head};

/// The peer of a connection of a [`Wire`](crate::Wire), as seen by handlers. Cheap to clone; a wire creates one per
/// connection.
#[derive(Clone)]
pub struct WirePeer(Arc<CallerIdentity>);

pub(crate) struct CallerIdentity {
    pub(crate) address: Address,
    #[cfg(feature = "tls")]
    pub(crate) certificates: Option<Arc<Vec<frisbee::rustls::pki_types::CertificateDer<'static>>>>,
}

impl WirePeer {
    /// Returns the peer of a connection, with its address and certificates.
    pub fn of(socket: &Raw) -> Self {
        Self(Arc::new(CallerIdentity {
            address: socket.peer_addr().clone(),
            #[cfg(feature = "tls")]
            certificates: socket.peer_certificates(),
        }))
    }

    /// Returns a peer with only an address.
    pub fn at(address: impl Into<Address>) -> Self {
        Self(Arc::new(CallerIdentity {
            address: address.into(),
            #[cfg(feature = "tls")]
            certificates: None,
        }))
    }

    /// Returns the peer of a call, if the call arrived over such a wire.
    pub(crate) fn of_head(head: &Head) -> Option<&CallerIdentity> {
        head.origin()?.get().downcast_ref()
    }
}

impl Head {
    /// Sets the peer of a call, for wires other than frisbee.
    pub fn set_peer(&mut self, peer: &WirePeer) {
        self.set_origin(CallOrigin::new(peer.0.clone()));
    }
}

impl fmt::Debug for WirePeer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Peer").field(&self.0.address).finish()
    }
}
