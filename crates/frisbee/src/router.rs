//! From packets to handlers: the one trait that a protocol on frisbee implements.

use std::{
    collections::VecDeque,
    error::Error,
    fmt,
    future::{self, Future},
    num::NonZeroUsize,
    sync::Arc,
    time::Duration,
};

use bytes::Bytes;

use crate::{
    CloseReason, Connection, Operation, Packet, PacketName, Stream,
    proto::{GoAway, Peer},
};

/// Handles what arrives on one side of a connection. Servers and clients take one alike.
///
/// The future of a packet is polled once where the packet was read; how it goes on is a matter of [`Dispatch`]. It is
/// dropped when the connection ends before it is done, unless the mode spawns it. A handler that panics ends its
/// connection with [`CloseReason::HandlerPanicked`] and nothing else.
///
/// ```
/// use frisbee::{Connection, Operation, Outcome, Packet, Router};
///
/// struct Echo;
///
/// impl Router for Echo {
///     async fn route(&self, packet: Packet, _: &Connection) -> Outcome {
///         Outcome::Reply(packet)
///     }
/// }
/// ```
pub trait Router: Send + Sync + 'static {
    /// Takes a packet that needs no handler, such as the answer to something that this side asked for, or gives it back
    /// to be routed. Called as soon as the packet is there: ahead of packets that wait for a handler, whatever the
    /// limits on handlers, and while the server shuts down. It must not block.
    fn intercept(&self, packet: Packet, connection: &Connection) -> Option<Packet> {
        let _ = connection;
        Some(packet)
    }

    /// Takes packets that arrived together with one that [`intercept`](Self::intercept) took, as that would: from the front, up to
    /// the first that it would give back. Returns how many it took. For a router that looks several up faster than one after the
    /// other, under one lock. It must not block.
    ///
    /// Unless implemented, each of them is intercepted by itself.
    fn intercept_more(&self, packets: &mut VecDeque<Packet>, connection: &Connection) -> usize {
        let _ = (packets, connection);
        0
    }

    /// Learns that everything that one read brought has been handed to [`intercept`](Self::intercept) and
    /// [`route`](Self::route), for a router that gathers and acts on all of it at once. What waits for a handler comes later, and
    /// this is called again behind that, and behind handlers that were not ready at once. Also called when there was nothing for
    /// the router. It must not block.
    ///
    /// ```
    /// use std::sync::Mutex;
    ///
    /// use frisbee::{Connection, FrameBuffer, Outcome, Packet, Router};
    ///
    /// /// Sends what one connection says to all the others.
    /// #[derive(Default)]
    /// struct Party {
    ///     guests: Mutex<Vec<Connection>>,
    /// }
    ///
    /// impl Router for Party {
    ///     fn intercept(&self, packet: Packet, connection: &Connection) -> Option<Packet> {
    ///         let said = connection.state_or_insert_with(Mutex::<FrameBuffer>::default);
    ///         said.lock().unwrap().push_content(packet.name(), &[], &packet.content);
    ///         None
    ///     }
    ///
    ///     fn received(&self, connection: &Connection) {
    ///         let Some(said) = connection.state::<Mutex<FrameBuffer>>() else { return };
    ///         let frames = said.lock().unwrap().take();
    ///         for guest in self.guests.lock().unwrap().iter().filter(|guest| *guest != connection) {
    ///             // One who does not keep up misses something.
    ///             let _ = guest.try_send_frames(&frames);
    ///         }
    ///     }
    ///
    ///     async fn route(&self, _: Packet, _: &Connection) -> Outcome {
    ///         Outcome::Nothing
    ///     }
    ///
    ///     fn opened(&self, connection: &Connection) {
    ///         self.guests.lock().unwrap().push(connection.clone());
    ///     }
    /// }
    /// ```
    fn received(&self, connection: &Connection) {
        let _ = connection;
    }

    /// Learns that the outbox takes packets again, after it had no room for some, whoever sent them. Those may have taken the room
    /// already: it is called once for each time that something found no room. It may be called before a sender on another thread has
    /// noted that it was refused, who therefore tries once more behind that. It must not block.
    fn writable(&self, connection: &Connection) {
        let _ = connection;
    }

    /// Tells whether a packet is one that [`intercept`](Self::intercept) gives back in any case, which then is not asked. It must
    /// not panic.
    #[doc(hidden)]
    fn is_request(&self, packet: &Packet) -> bool {
        let _ = packet;
        false
    }

    /// Handles one packet.
    fn route(&self, packet: Packet, connection: &Connection) -> impl Future<Output = Outcome> + Send;

    /// Says what becomes of a packet that is not handed to [`route`](Self::route), typically by an answer that tells
    /// the peer to try elsewhere or later. A packet that is [too large](Refusal::TooLarge) may also be the answer to
    /// something that this side asked for. The outcome is acted on as one of `route` is. Never called for a packet that
    /// [`intercept`](Self::intercept) took, nor while the connection closes. It must not block.
    ///
    /// [`Outcome::Nothing`], which is what it returns unless implemented, lets a packet go that comes during a shutdown.
    /// One that is refused as [`Refusal::Busy`] or [`Refusal::Expired`] then waits for its handler after all, and reading with it: a packet that
    /// nobody can be told of is not lost.
    fn refuse(&self, refused: Refused, connection: &Connection) -> Outcome {
        let _ = (refused, connection);
        Outcome::Nothing
    }

    /// Returns how many packets of the peer this side waits for that [`intercept`](Self::intercept) will take, such as
    /// the answers to calls under way. As long as there are any, packets that no handler may start on do not keep
    /// frisbee from reading what is behind them; those beyond the limits are [refused](Self::refuse). Called where such
    /// packets wait. It must not block.
    ///
    /// Unless implemented, this side waits for nothing: reading pauses until a handler may start.
    fn awaited(&self, connection: &Connection) -> usize {
        let _ = connection;
        0
    }

    /// Returns how long the peer waits for the answer to a packet, if it said so. Asked where a packet has to wait for its
    /// handler. It must not block.
    ///
    /// When that time is over, the packet is [refused](Self::refuse) as [`Refusal::Expired`] and its handler never starts. When
    /// the packet that came first has waited for half of its time, those that came last go first, and when there is no room
    /// for more, the oldest is refused as [`Refusal::Busy`] and reading does not pause: a side that has more to do than it can
    /// then does what is still wanted. With [`Dispatch::Ordered`], the order stays.
    ///
    /// Unless implemented, packets wait for as long as it takes, in order.
    fn packet_timeout(&self, packet: &Packet, connection: &Connection) -> Option<Duration> {
        let _ = (packet, connection);
        None
    }

    /// Serves a stream that the peer opened, as a task of its own that outlives the connection if it wants to. The
    /// first packet may be a late one of a stream that ended before.
    ///
    /// Unless implemented, the stream goes to [`Connection::accept_stream`] if
    /// [`Config::accept_backlog`](crate::Config::accept_backlog) allows, and is closed otherwise.
    fn stream(&self, stream: Stream, connection: &Connection) -> impl Future<Output = ()> + Send {
        connection.offer_stream(stream);
        future::ready(())
    }

    /// Turns away a stream that the peer opened while the server shuts down, as [`refuse`](Self::refuse) does with
    /// packets. The shutdown waits for it.
    ///
    /// Unless implemented, the stream is closed.
    fn refuse_stream(&self, stream: Stream, connection: &Connection) -> impl Future<Output = ()> + Send {
        let _ = connection;
        drop(stream);
        future::ready(())
    }

    /// Returns the part of the application in what this side says of itself to an extended peer: its name, and bytes that
    /// mean something to the same application there ([`Hello::part`](crate::proto::Hello::part)). Called once for each connection, before
    /// [`opened`](Self::opened).
    fn part(&self) -> Option<(&'static str, Bytes)> {
        None
    }

    /// Learns what the peer speaks: before any packet that an extended peer sends behind that, and at once if a connecting
    /// side finds its peer plain. It must not block.
    fn recognized(&self, connection: &Connection, peer: &Peer) {
        let _ = (connection, peer);
    }

    /// Returns whether this side closes a connection by itself, as [`going_away`](Self::going_away) asks it to, once it waits for
    /// nothing more. An extended peer is told so, and may wait for that ([`ServerBuilder::lame_duck`](crate::ServerBuilder::lame_duck)).
    /// Called once for each connection, before [`opened`](Self::opened).
    fn leaves(&self) -> bool {
        false
    }

    /// Returns whether packets may overtake larger ones on their way to the peer, and data of streams too, as long as
    /// those with the same id stay in order. Large contents then do not hold up small ones: an extended peer gets them in
    /// pieces, with others in between. A packet that asks for a takeover is better sent when nothing large is under way: it could
    /// overtake that, whose rest would be raw bytes. Called once for each connection, before [`opened`](Self::opened).
    ///
    /// Unless implemented, all that one task sends arrives in order.
    fn interleaves(&self) -> bool {
        false
    }

    /// Learns that the peer wants no new packets and streams on this connection; what is under way goes on. It must not
    /// block.
    fn going_away(&self, connection: &Connection, why: &GoAway) {
        let _ = (connection, why);
    }

    /// Learns that a packet that was [withdrawn](Connection::withdraw) will not be answered. It must not block.
    fn withdrawn(&self, packet: PacketName, connection: &Connection) {
        let _ = (packet, connection);
    }

    /// Learns that a connection was established. Called once, before any packet of it.
    fn opened(&self, connection: &Connection) {
        let _ = connection;
    }

    /// Finds out whether this router can serve at all. Called before a server listens and before a client connects,
    /// which both fail with this error. A router on top of another one asks that as well.
    fn check(&self) -> Result<(), Box<dyn Error + Send + Sync>> {
        Ok(())
    }

    /// Learns that a connection ended. Called once for each [`opened`](Self::opened), after the last packet.
    fn closed(&self, connection: &Connection, reason: &CloseReason) {
        let _ = (connection, reason);
    }
}

/// The outcome of a packet.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Outcome {
    /// Nothing is sent.
    Nothing,
    /// This packet is sent.
    Reply(Packet),
    /// The connection is closed once everything sent before has arrived.
    Close,
    /// This packet is sent, and the connection is closed once it has arrived.
    ReplyAndClose(Packet),
}

impl From<()> for Outcome {
    fn from((): ()) -> Self {
        Self::Nothing
    }
}

impl From<Packet> for Outcome {
    fn from(packet: Packet) -> Self {
        Self::Reply(packet)
    }
}

impl From<Option<Packet>> for Outcome {
    fn from(packet: Option<Packet>) -> Self {
        packet.map_or(Self::Nothing, Self::Reply)
    }
}

/// A packet that no handler gets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Refused {
    /// The id of the packet.
    pub id: u16,
    /// The operation of the packet.
    pub operation: Operation,
    /// The reason.
    pub why: Refusal,
}

/// The reason why no handler gets a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Refusal {
    /// As much waits for handlers as may.
    Busy,
    /// The peer does not wait for the answer any more ([`Router::packet_timeout`]).
    Expired,
    /// The server shuts down.
    Draining,
    /// The content of the packet is larger than this side accepts, and is discarded.
    TooLarge {
        /// Bytes of content.
        announced: u32,
        /// [`Config::content_len_max`](crate::Config::content_len_max).
        limit: u32,
    },
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Busy => f.write_str("the peer is busy (its limits on handlers and waiting requests are reached)"),
            Self::Expired => f.write_str("the time of the call was over before the peer could begin"),
            Self::Draining => f.write_str("the peer is shutting down"),
            Self::TooLarge { announced, limit } => {
                write!(f, "the server accepts at most {limit} bytes (content_len_max), the request has {announced}")
            }
        }
    }
}

/// The way in which handlers of arriving packets run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Dispatch {
    /// A handler runs on its connection's task. One that is ready at once replies in the order of arrival; one that
    /// has to wait goes on concurrently with later packets and replies when it is done.
    #[default]
    InPlace,
    /// One handler of a connection after the other: replies are in the order of arrival.
    Ordered,
    /// Every handler is a task of its own, may run on another core, and runs to its end even if the connection ends:
    /// replies in any order.
    Spawned,
    /// As [`Spawned`](Self::Spawned), with at most this number at once over all connections of the server: replies in any
    /// order.
    Limited(NonZeroUsize),
}

/// Drops every packet and refuses every stream: for a client that only sends.
impl Router for () {
    async fn route(&self, _: Packet, _: &Connection) -> Outcome {
        Outcome::Nothing
    }
}

impl<R: Router> Router for Arc<R> {
    fn is_request(&self, packet: &Packet) -> bool {
        (**self).is_request(packet)
    }

    #[inline]
    fn intercept(&self, packet: Packet, connection: &Connection) -> Option<Packet> {
        (**self).intercept(packet, connection)
    }

    fn intercept_more(&self, packets: &mut VecDeque<Packet>, connection: &Connection) -> usize {
        (**self).intercept_more(packets, connection)
    }

    #[inline]
    fn received(&self, connection: &Connection) {
        (**self).received(connection);
    }

    fn writable(&self, connection: &Connection) {
        (**self).writable(connection);
    }

    #[inline(always)]
    fn route(&self, packet: Packet, connection: &Connection) -> impl Future<Output = Outcome> + Send {
        (**self).route(packet, connection)
    }

    fn refuse(&self, refused: Refused, connection: &Connection) -> Outcome {
        (**self).refuse(refused, connection)
    }

    fn awaited(&self, connection: &Connection) -> usize {
        (**self).awaited(connection)
    }

    fn packet_timeout(&self, packet: &Packet, connection: &Connection) -> Option<Duration> {
        (**self).packet_timeout(packet, connection)
    }

    fn stream(&self, stream: Stream, connection: &Connection) -> impl Future<Output = ()> + Send {
        (**self).stream(stream, connection)
    }

    fn refuse_stream(&self, stream: Stream, connection: &Connection) -> impl Future<Output = ()> + Send {
        (**self).refuse_stream(stream, connection)
    }

    fn check(&self) -> Result<(), Box<dyn Error + Send + Sync>> {
        (**self).check()
    }

    fn part(&self) -> Option<(&'static str, Bytes)> {
        (**self).part()
    }

    fn recognized(&self, connection: &Connection, peer: &Peer) {
        (**self).recognized(connection, peer);
    }

    fn leaves(&self) -> bool {
        (**self).leaves()
    }

    fn interleaves(&self) -> bool {
        (**self).interleaves()
    }

    fn going_away(&self, connection: &Connection, why: &GoAway) {
        (**self).going_away(connection, why);
    }

    fn withdrawn(&self, packet: PacketName, connection: &Connection) {
        (**self).withdrawn(packet, connection);
    }

    fn opened(&self, connection: &Connection) {
        (**self).opened(connection);
    }

    fn closed(&self, connection: &Connection, reason: &CloseReason) {
        (**self).closed(connection, reason);
    }
}
