//! The life of one connection of a server.

use std::sync::{Arc, atomic::Ordering};

use tokio::time::{Instant, timeout};
use tracing::debug;

use super::{shared::ServerShared, slot::ConnectionSlot};
use crate::{
    Address, Connection, Router,
    driver::drive,
    net::{Secure, Wire},
    proto::{self, Role},
    shared::Shared,
};

/// Takes a connection through its handshake and its life.
pub(super) async fn serve<R: Router>(
    server: Arc<ServerShared>,
    slot: ConnectionSlot,
    wire: Wire,
    local: Address,
    peer: Address,
    router: Arc<R>,
    secure: Option<Secure>,
) {
    let mut identity = None;
    // Before the socket goes onto a ring, which cannot be asked for them.
    let credentials = wire.peer_credentials();
    let wire = match secure {
        None => match wire.onto_ring() {
            Ok(wire) => wire,
            Err(error) => {
                debug!(%error, "the connection was gone before it was served");
                return;
            }
        },
        Some(secure) => {
            let handshake = timeout(server.config.handshake_max, secure.handshake(wire, &peer));
            match server.scope.kill.run_until_cancelled(handshake).await {
                Some(Ok(Ok((wire, peer_identity)))) => {
                    identity = peer_identity;
                    wire
                }
                failed => {
                    server.handshakes_failed.fetch_add(1, Ordering::Relaxed);
                    let error = failed.map(|result| result.map(|handshake| handshake.err()));
                    debug!(?error, "a TLS handshake failed");
                    return;
                }
            }
        }
    };
    let proto = proto::Connection::new(Role::Server, server.config.clone(), Instant::now().into_std());
    let connection = Connection::new(Arc::new(Shared::new(proto, server.config.clone(), local, peer, identity)));
    if let Some(credentials) = credentials {
        connection.set_state(credentials);
    }
    slot.fill(&connection);
    // A shutdown that began during the handshake did not find the connection. Looked up only now that it can be found.
    if server.draining.is_cancelled() {
        connection.shared().drain();
    }
    drive(wire, connection, router, server.scope.clone()).await;
}
