//! The lifetime of one server connection.

use std::{
    pin::pin,
    sync::{Arc, atomic::Ordering},
    time::Duration,
};

use bytes::BytesMut;
use futures_util::future::{Either, select};
use tokio::time::{Instant, sleep, timeout};
use tracing::{Instrument as _, debug};

use super::{
    protocols::{AnyProtocol, Drain, ProtocolList},
    retirement::{enforce_age_limit, serve_until_old},
    shared::ServerShared,
    slot::ConnectionSlot,
};
use crate::{
    Address, Connection, Router,
    connection::ConnectionShared,
    driver::{BufferedStream, SHUTDOWN_GRACE, drive, refuse},
    net::{IoStream, PeerCredentials, PeerIdentity, Raw, SecuredStream, TlsHandshake},
    proto::{self, ForeignProtocol, HeaderFormat, Role},
};

/// The steps before frisbee: TLS and detection of other protocols.
#[derive(Clone)]
pub(super) struct HandshakeSteps {
    pub(super) secure: Option<TlsHandshake>,
    pub(super) protocols: ProtocolList,
}

/// A connection after its handshake.
enum OpenedConnection {
    Packets(PacketConnection),
    /// Another protocol serves it. Boxed, because the future of a connection keeps the space of both variants.
    Other(Box<OtherConnection>),
}

/// A connection ready for packets.
struct PacketConnection {
    begun: Box<BufferedStream>,
    connection: Connection,
    slot: ConnectionSlot,
}

/// A connection for another protocol, and what frisbee needs if the protocol leaves the stream to it.
struct OtherConnection {
    protocol: Arc<dyn AnyProtocol>,
    /// Boxed for the same reason.
    socket: Box<Raw>,
    origin: StreamOrigin,
    is_plain: bool,
    slot: ConnectionSlot,
}

/// The ends of a connection.
struct StreamOrigin {
    local: Address,
    peer: Address,
    identity: PeerIdentity,
    credentials: Option<PeerCredentials>,
}

/// Serves a connection from its handshake to its end.
pub(super) fn serve<R: Router>(
    server: Arc<ServerShared>,
    slot: ConnectionSlot,
    wire: IoStream,
    local: Address,
    peer: Address,
    router: Arc<R>,
    front: HandshakeSteps,
) -> impl Future<Output = ()> + Send {
    // Boxed, to free the memory of the handshake at its end.
    let opening = Box::pin(open(server.clone(), slot, wire, local, peer, front));
    async move {
        match opening.await {
            // Boxed, so only servers with an age limit use the memory.
            Some(OpenedConnection::Packets(opened)) if server.limits.connection_age_max.is_some() => {
                Box::pin(serve_packets(&server, opened, router)).await;
            }
            // The slot is held until the connection ends.
            Some(OpenedConnection::Packets(PacketConnection { begun, connection, slot: _slot })) => {
                drive(begun, connection, router, server.scope.clone()).await;
            }
            // A separate task: this one has room for a driver of packets, and other protocols need less.
            Some(OpenedConnection::Other(other)) => {
                drop(tokio::spawn(serve_other(server, *other, router).in_current_span()))
            }
            None => {}
        }
    }
}

/// Serves packets until the connection ends, and enforces its age limit.
async fn serve_packets<R: Router>(server: &ServerShared, opened: PacketConnection, router: Arc<R>) {
    let PacketConnection { begun, connection, slot: _slot } = opened;
    let driving = drive(begun, connection.clone(), router, server.scope.clone());
    match server.limits.connection_age_max {
        Some(age_max) => drive_until_old(driving, connection, age_max, server.limits.connection_age_grace).await,
        None => driving.await,
    }
}

/// Serves another protocol until it ends, and packets afterwards if it leaves the stream to frisbee.
fn serve_other<R: Router>(
    server: Arc<ServerShared>,
    other: OtherConnection,
    router: Arc<R>,
) -> impl Future<Output = ()> + Send {
    let OtherConnection { protocol, socket, origin, is_plain, slot } = other;
    async move {
        let age_max = server.limits.connection_age_max;
        let leaving = age_max.map_or_else(|| server.draining.clone(), |_| server.draining.child_token());
        let drain = Drain::new(leaving.clone(), server.scope.permits.clone());
        let carrier = protocol.name();
        let mut serving = protocol.serve(*socket, drain.clone());
        if let Some(age_max) = age_max {
            serving = Box::pin(serve_until_old(serving, leaving, age_max));
        }
        // The kill is polled first, so dropping a server does not wait for a clean end.
        let killed = pin!(server.scope.kill.cancelled());
        select(killed, serving).await;
        // Without a stream to serve as frisbee, the connection ends here and frees its slot.
        let Some(wire) = drain.take_left() else { return };
        let wire = if is_plain { onto_ring(wire) } else { Some(wire) };
        let Some(wire) = wire else { return };
        let opened = begin_packets(&server, BufferedStream { wire, first: BytesMut::new() }, origin, slot);
        opened.connection.set_carrier(carrier);
        Box::pin(serve_packets(&server, opened, router)).await;
    }
}

/// Performs the handshake. Returns `None` if the connection has ended or does not speak frisbee.
async fn open(
    server: Arc<ServerShared>,
    slot: ConnectionSlot,
    wire: IoStream,
    local: Address,
    peer: Address,
    front: HandshakeSteps,
) -> Option<OpenedConnection> {
    let HandshakeSteps { secure, protocols } = front;
    let is_plain = secure.is_none();
    // Must come before the move onto a ring: credentials are not available there.
    let credentials = wire.peer_credentials();
    let SecuredStream { mut wire, identity, alpn } = match secure {
        None => SecuredStream { wire, identity: None, alpn: None },
        Some(secure) => {
            let handshake = timeout(server.config.handshake_max, secure.handshake(wire, &peer));
            match unless_shut_down(&server, handshake).await {
                Some(Ok(Ok(secured))) => {
                    server.tls_handshakes.fetch_add(1, Ordering::Relaxed);
                    slot.set_secure();
                    secured
                }
                failed => {
                    server.handshakes_failed.fetch_add(1, Ordering::Relaxed);
                    server.tls_failed.fetch_add(1, Ordering::Relaxed);
                    let error = failed.map(|result| result.map(|handshake| handshake.err()));
                    debug!(?error, "a TLS handshake failed");
                    return None;
                }
            }
        }
    };
    let mut first = BytesMut::new();
    if !protocols.is_empty() {
        // Boxed, so only servers with other protocols use the memory.
        let recognizing = Box::pin(protocols.recognize(&mut wire, alpn.as_deref(), server.config.handshake_max));
        match unless_shut_down(&server, recognizing).await {
            Some(Ok((None, read))) if may_be_packets(&read) => first = read,
            Some(Ok((None, read))) => {
                server.handshakes_failed.fetch_add(1, Ordering::Relaxed);
                let seen = read[..read.len().min(SEEN_LEN)].escape_ascii();
                debug!(%peer, %seen, "closed a connection that speaks no protocol of this server");
                if let Some(foreign) = ForeignProtocol::recognize(None, &read) {
                    let refusing = Box::pin(refuse(wire, foreign, &server.config));
                    server.scope.kill.run_until_cancelled(refusing).await;
                }
                return None;
            }
            Some(Ok((Some(protocol), read))) => {
                let traffic = slot.set_protocol(protocol.name());
                if is_plain {
                    wire = onto_ring(wire)?;
                }
                // The header format does not matter: another protocol has no packets.
                let socket = Raw::new(wire, read.freeze(), HeaderFormat::Magic10, local.clone(), peer.clone());
                let (protocol, socket) =
                    (protocol.clone(), Box::new(socket.with_identity(identity.clone()).with_traffic(traffic)));
                let origin = StreamOrigin { local, peer, identity, credentials };
                let other = OtherConnection { protocol, socket, origin, is_plain, slot };
                return Some(OpenedConnection::Other(Box::new(other)));
            }
            Some(Err(error)) => {
                server.handshakes_failed.fetch_add(1, Ordering::Relaxed);
                debug!(%error, "a connection sent too little to detect its protocol");
                return None;
            }
            None => return None,
        }
    }
    if is_plain {
        wire = onto_ring(wire)?;
    }
    let origin = StreamOrigin { local, peer, identity, credentials };
    Some(OpenedConnection::Packets(begin_packets(&server, BufferedStream { wire, first }, origin, slot)))
}

/// Creates the connection of a stream for packets.
fn begin_packets(
    server: &ServerShared,
    begun: BufferedStream,
    origin: StreamOrigin,
    slot: ConnectionSlot,
) -> PacketConnection {
    let StreamOrigin { local, peer, identity, credentials } = origin;
    let now = Instant::now().into_std();
    let proto = proto::Connection::new(Role::Server, server.config.clone(), now);
    let connection =
        Connection::new(Arc::new(ConnectionShared::new(proto, server.config.clone(), local, peer, identity, now)));
    if let Some(credentials) = credentials {
        // Fails only for a second value of this type.
        let _ = connection.set_state(credentials);
    }
    slot.fill(&connection);
    // A shutdown during the handshake has not seen this connection. Checked after `fill`, so none is missed.
    if server.draining.is_cancelled() {
        server.retire(&connection);
    }
    PacketConnection { begun: Box::new(begun), connection, slot }
}

/// Waits for a handshake or a protocol decision. Returns `None` if the server is dropped, or shuts down in the
/// meantime.
///
/// A shutdown leaves a short grace time, so a connection accepted just before it can send its first call.
async fn unless_shut_down<T>(server: &ServerShared, future: impl Future<Output = T>) -> Option<T> {
    let shut_down = async {
        server.draining.cancelled().await;
        sleep(SHUTDOWN_GRACE).await;
    };
    let begun = async {
        match select(pin!(future), pin!(shut_down)).await {
            Either::Left((begun, _)) => Some(begun),
            Either::Right(_) => None,
        }
    };
    server.scope.kill.run_until_cancelled(begun).await.flatten()
}

/// Moves a socket onto the ring of this thread, if any. Returns `None` on failure, and the connection ends.
fn onto_ring(wire: IoStream) -> Option<IoStream> {
    wire.onto_ring().inspect_err(|error| debug!(%error, "a connection was lost before it was served")).ok()
}

/// Returns `true` if an unrecognized connection may speak frisbee.
///
/// On a port with other protocols, the first byte of a packet is zero: part of the magic number, or of an id below
/// 256. Text read as a packet header would announce hundreds of megabytes.
fn may_be_packets(first: &[u8]) -> bool {
    first.first().is_none_or(|byte| *byte == 0)
}

/// The number of an unrecognized connection's first bytes in the log.
const SEEN_LEN: usize = 16;

/// Drives a connection and enforces its age limit.
async fn drive_until_old(
    driving: impl Future<Output = ()>,
    connection: Connection,
    age_max: Duration,
    grace: Duration,
) {
    let aging = pin!(enforce_age_limit(&connection, age_max, grace));
    if let Either::Right(((), driving)) = select(pin!(driving), aging).await {
        driving.await;
    }
}
