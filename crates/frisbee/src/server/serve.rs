//! The life of one connection of a server.

use std::{
    pin::pin,
    sync::{Arc, atomic::Ordering},
    time::Duration,
};

use bytes::BytesMut;
use futures_util::future::{Either, select};
use tokio::time::{Instant, sleep, timeout};
use tracing::debug;

use super::{
    protocols::{Drain, Protocols},
    retirement::end_of_old_age,
    shared::ServerShared,
    slot::ConnectionSlot,
};
use crate::{
    Address, Connection, Router,
    driver::{Begun, drive, refuse},
    net::{Raw, Secure, Secured, Wire},
    proto::{self, Foreign, HeaderFormat, Role},
    shared::Shared,
};

/// The part of a server that sees a connection before frisbee does.
#[derive(Clone)]
pub(super) struct Front {
    pub(super) secure: Option<Secure>,
    pub(super) protocols: Protocols,
}

/// A connection that frisbee is about to be spoken on.
struct Opened {
    begun: Box<Begun>,
    connection: Connection,
    slot: ConnectionSlot,
}

/// Takes a connection through its handshake and its life.
pub(super) fn serve<R: Router>(
    server: Arc<ServerShared>,
    slot: ConnectionSlot,
    wire: Wire,
    local: Address,
    peer: Address,
    router: Arc<R>,
    front: Front,
) -> impl Future<Output = ()> + Send {
    // Boxed, so that a connection holds no memory for its handshake when that is over.
    let opening = Box::pin(open(server.clone(), slot, wire, local, peer, front));
    async move {
        let Some(opened) = opening.await else { return };
        // The slot is held until the connection is over.
        let Opened { begun, connection, slot: _slot } = opened;
        let Some(age_max) = server.retirement.age_max else {
            return drive(begun, connection, router, server.scope.clone()).await;
        };
        let driving = drive(begun, connection.clone(), router, server.scope.clone());
        // Boxed, so that only servers that look at the age hold the memory for it.
        Box::pin(drive_until_old(driving, connection, age_max, server.retirement.age_grace)).await;
    }
}

/// Takes a connection through its handshake. `None` if frisbee is not what follows: then it is over.
async fn open(
    server: Arc<ServerShared>,
    slot: ConnectionSlot,
    wire: Wire,
    local: Address,
    peer: Address,
    front: Front,
) -> Option<Opened> {
    let Front { secure, protocols } = front;
    let is_plain = secure.is_none();
    // Before the socket goes onto a ring, which cannot be asked for them.
    let credentials = wire.peer_credentials();
    let Secured { mut wire, identity, alpn } = match secure {
        None => Secured { wire, identity: None, alpn: None },
        Some(secure) => {
            let handshake = timeout(server.config.handshake_max, secure.handshake(wire, &peer));
            match unless_shut_down(&server, handshake).await {
                Some(Ok(Ok(secured))) => secured,
                failed => {
                    server.handshakes_failed.fetch_add(1, Ordering::Relaxed);
                    let error = failed.map(|result| result.map(|handshake| handshake.err()));
                    debug!(?error, "a TLS handshake failed");
                    return None;
                }
            }
        }
    };
    let mut first = BytesMut::new();
    if !protocols.is_empty() {
        // Boxed, so that only servers with other protocols hold the memory for it.
        let recognizing = Box::pin(protocols.recognize(&mut wire, alpn.as_deref(), server.config.handshake_max));
        match unless_shut_down(&server, recognizing).await {
            Some(Ok((None, read))) if may_be_packets(&read) => first = read,
            Some(Ok((None, read))) => {
                server.handshakes_failed.fetch_add(1, Ordering::Relaxed);
                let seen = read[..read.len().min(SEEN_LEN)].escape_ascii();
                debug!(%peer, %seen, "closed a connection that speaks none of the protocols served here");
                if let Some(foreign) = Foreign::recognize(None, &read) {
                    let refusing = Box::pin(refuse(wire, foreign, &server.config));
                    server.scope.kill.run_until_cancelled(refusing).await;
                }
                return None;
            }
            Some(Ok((Some(protocol), read))) => {
                if is_plain {
                    wire = onto_ring(wire)?;
                }
                // The format is that of packets, of which this connection has none.
                let socket = Raw::new(wire, read.freeze(), HeaderFormat::Magic10, local.clone(), peer.clone());
                let drain = Drain::new(server.draining.clone());
                let serving = protocol.serve(socket.with_identity(identity.clone()), drain.clone());
                // Looked at first: a server that is dropped does not wait for goodbyes.
                let killed = pin!(server.scope.kill.cancelled());
                select(killed, serving).await;
                // Without packets behind it, the connection is over, and its slot free.
                wire = drain.take_left()?;
            }
            Some(Err(error)) => {
                server.handshakes_failed.fetch_add(1, Ordering::Relaxed);
                debug!(%error, "a connection did not say which protocol it speaks");
                return None;
            }
            None => return None,
        }
    }
    if is_plain {
        wire = onto_ring(wire)?;
    }
    let now = Instant::now().into_std();
    let proto = proto::Connection::new(Role::Server, server.config.clone(), now);
    let connection = Connection::new(Arc::new(Shared::new(proto, server.config.clone(), local, peer, identity, now)));
    if let Some(credentials) = credentials {
        // Nothing of this type can be there before.
        let _ = connection.set_state(credentials);
    }
    slot.fill(&connection);
    // A shutdown that began during the handshake did not find the connection. Looked up only now that it can be found.
    if server.draining.is_cancelled() {
        server.retire(&connection);
    }
    Some(Opened { begun: Box::new(Begun { wire, first }), connection, slot })
}

/// Waits for a peer that has not said which protocol it speaks. `None` if the server is dropped, or shuts down and the peer does not
/// go on within a short time: nothing is under way on such a connection. One that was accepted last has that time for its first call.
async fn unless_shut_down<T>(server: &ServerShared, future: impl Future<Output = T>) -> Option<T> {
    let shut_down = async {
        server.draining.cancelled().await;
        sleep(BEGINNING_GRACE).await;
    };
    let begun = async {
        match select(pin!(future), pin!(shut_down)).await {
            Either::Left((begun, _)) => Some(begun),
            Either::Right(_) => None,
        }
    };
    server.scope.kill.run_until_cancelled(begun).await.flatten()
}

/// The time that a shutdown gives connections to say what they are.
const BEGINNING_GRACE: Duration = Duration::from_secs(1);

/// Moves a socket onto the ring of this thread, if it has one. `None` if that cannot be: then the connection is over.
fn onto_ring(wire: Wire) -> Option<Wire> {
    wire.onto_ring().inspect_err(|error| debug!(%error, "the connection was gone before it was served")).ok()
}

/// Tells whether a connection that no other protocol recognizes is one of frisbee. Beside other protocols the first byte of a packet
/// is zero: that of the magic number, or, in front of an id below 256, of the id. Taken for a packet, text would announce hundreds of
/// megabytes.
fn may_be_packets(first: &[u8]) -> bool {
    first.first().is_none_or(|byte| *byte == 0)
}

/// The most of the first bytes of a stranger that the log is told.
const SEEN_LEN: usize = 16;

/// Drives a connection, and has it end when it is too old.
async fn drive_until_old(
    driving: impl Future<Output = ()>,
    connection: Connection,
    age_max: Duration,
    grace: Duration,
) {
    let aging = pin!(end_of_old_age(&connection, age_max, grace));
    if let Either::Right(((), driving)) = select(pin!(driving), aging).await {
        driving.await;
    }
}
