//! From packets to handlers: the one trait that a protocol on frisbee implements.

mod arrivals;
mod event;
mod info;
mod table;

use std::{
    error::Error,
    fmt,
    future::{self, Future},
    num::NonZeroUsize,
    sync::Arc,
    time::Duration,
};

pub use self::{
    arrivals::Arrivals,
    event::Event,
    info::{RouterInfo, SendOrder},
    table::Table,
};
use crate::{Connection, Operation, Packet, Stream};

/// Handles what arrives on one side of a connection. Servers and clients take one alike.
///
/// Only [`route`](Self::route) has to be implemented. What a router does not implement is left to its
/// [`fallback`](Self::fallback). Routers are stacked that way: a router in front of another one overrides `fallback`, takes what is
/// its own, and calls the same method of the fallback for everything else.
///
/// All methods but [`route`](Self::route) and [`stream`](Self::stream) run on the task of the connection and must not block. The
/// future of a packet is polled once where the packet was read; [`Dispatch`] says how it continues. It is dropped when the
/// connection ends before it is done, unless the mode spawns it. A router that panics ends its connection with
/// [`CloseReason::HandlerPanicked`](crate::CloseReason::HandlerPanicked) and nothing else.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// use std::sync::Mutex;
///
/// use frisbee::{Arrivals, Client, Connection, Event, FrameBuffer, Operation, Outcome, Packet, Router, Server};
///
/// const SAY: Operation = Operation::new(1000).unwrap();
///
/// /// Sends what one connection says to all the others, and echoes every other packet.
/// #[derive(Default)]
/// struct Party {
///     guests: Mutex<Vec<Connection>>,
/// }
///
/// impl Router for Party {
///     fn intercept(&self, packets: &mut Arrivals<'_>, connection: &Connection) {
///         let said = connection.state_or_insert_with(Mutex::<FrameBuffer>::default);
///         while let Some(packet) = packets.next_if(|packet| packet.operation == SAY) {
///             said.lock().unwrap().push_content(packet.name(), &[], &packet.content);
///         }
///     }
///
///     async fn route(&self, packet: Packet, _: &Connection) -> Outcome {
///         Outcome::Reply(packet)
///     }
///
///     fn event(&self, connection: &Connection, event: Event<'_>) {
///         let mut guests = self.guests.lock().unwrap();
///         match event {
///             Event::Opened => guests.push(connection.clone()),
///             Event::Received => {
///                 let Some(said) = connection.state::<Mutex<FrameBuffer>>() else { return };
///                 let frames = said.lock().unwrap().take();
///                 for guest in guests.iter().filter(|guest| *guest != connection) {
///                     // A guest that does not keep up misses something.
///                     let _ = guest.try_send_frames(&frames);
///                 }
///             }
///             Event::Closed(_) => guests.retain(|guest| guest != connection),
///             _ => {}
///         }
///     }
/// }
///
/// /// Hands what it hears to a channel.
/// struct Guest(tokio::sync::mpsc::UnboundedSender<Packet>);
///
/// impl Router for Guest {
///     async fn route(&self, packet: Packet, _: &Connection) -> Outcome {
///         self.0.send(packet).unwrap();
///         Outcome::Nothing
///     }
/// }
///
/// let server = Server::builder(Party::default()).bind("tcp://127.0.0.1:0").await?;
/// let (sender, mut heard) = tokio::sync::mpsc::unbounded_channel();
/// let ann = Client::new(Guest(sender)).check_peer().connect(server.local_addr()).await?;
/// let bob = Client::new(()).check_peer().connect(server.local_addr()).await?;
/// bob.send(Packet::new(1, SAY, "hello")).await?;
/// assert_eq!(heard.recv().await.unwrap().content, "hello");
/// # drop(ann);
/// # Ok(())
/// # }
/// ```
pub trait Router: Send + Sync + 'static {
    /// Returns what is the same for all connections, or an error if this router cannot serve at all. Called before a server listens
    /// and before a client connects, which both fail with this error.
    ///
    /// The default is that of the [`fallback`](Self::fallback): nothing is said to the peer, and packets are sent in order.
    fn describe(&self) -> Result<RouterInfo, Box<dyn Error + Send + Sync>> {
        self.fallback().describe()
    }

    /// Returns the router that gets everything this one does not implement.
    ///
    /// The default takes no packets, offers streams to [`Connection::accept_stream`], and does what else the methods of this trait
    /// call their default.
    fn fallback(&self) -> &impl Router {
        &Defaults
    }

    /// Learns what happened to a connection.
    fn event(&self, connection: &Connection, event: Event<'_>) {
        self.fallback().event(connection, event);
    }

    /// Takes packets that need no handler, such as the answers to something that this side asked for, from the front of those that
    /// arrived together. The first packet that it leaves there is routed or refused, and it is called again for those after that.
    /// Called as soon as the packets are there: before packets that wait for a handler, whatever the limits on handlers, and while
    /// the server shuts down.
    ///
    /// A router in front of another one passes on what is not its own by [`Arrivals::lend_until`]. It leaves a packet in front that
    /// the other router left there.
    ///
    /// The default takes none.
    #[inline]
    fn intercept(&self, packets: &mut Arrivals<'_>, connection: &Connection) {
        self.fallback().intercept(packets, connection);
    }

    /// Handles one packet.
    fn route(&self, packet: Packet, connection: &Connection) -> impl Future<Output = Outcome> + Send;

    /// Says what becomes of a packet that is not handed to [`route`](Self::route), typically by an answer that tells
    /// the peer to try elsewhere or later. A packet that is [too large](Refusal::TooLarge) may also be the answer to
    /// something that this side asked for. The outcome is acted on as one of `route` is. Never called for a packet that
    /// [`intercept`](Self::intercept) took, nor while the connection closes.
    ///
    /// The default is [`Outcome::Nothing`], which drops a packet that comes during a shutdown. A packet that is refused as
    /// [`Refusal::Busy`] or [`Refusal::Expired`] then waits for its handler after all, and reading pauses: a packet whose sender
    /// cannot be told is not lost.
    fn refuse(&self, refused: Refused, connection: &Connection) -> Outcome {
        self.fallback().refuse(refused, connection)
    }

    /// Returns how many packets of the peer this side waits for that [`intercept`](Self::intercept) will take, such as the answers
    /// to calls under way. As long as there are any, frisbee reads on even if no handler may start on the packets that are there;
    /// those beyond the limits are [refused](Self::refuse). Called while such packets wait.
    ///
    /// The default is 0: reading pauses until a handler may start.
    fn awaited(&self, connection: &Connection) -> usize {
        self.fallback().awaited(connection)
    }

    /// Returns how long the peer waits for the answer to a packet, if it said so. Called for a packet that has to wait for its
    /// handler.
    ///
    /// When that time is over, the packet is [refused](Self::refuse) as [`Refusal::Expired`] and its handler never starts. When
    /// the oldest packet has waited for half of its time, the newest go first, and when there is no room
    /// for more, the oldest is refused as [`Refusal::Busy`] and reading does not pause: an overloaded side
    /// then does what is still wanted. With [`Dispatch::Ordered`], the order stays.
    ///
    /// The default is `None`: packets wait without a limit, in order.
    fn packet_timeout(&self, packet: &Packet, connection: &Connection) -> Option<Duration> {
        self.fallback().packet_timeout(packet, connection)
    }

    /// Serves a stream that the peer opened, as a task of its own that outlives the connection if it wants to. The
    /// first packet may be a late one of a stream that ended before.
    ///
    /// With a `refusal`, the server shuts down: the stream is not to be served, but its peer can be told why. The shutdown waits for
    /// that.
    ///
    /// By default, the stream goes to [`Connection::accept_stream`] if [`Config::accept_backlog`](crate::Config::accept_backlog)
    /// allows, and is closed otherwise or if there is a refusal.
    fn stream(
        &self,
        stream: Stream,
        refusal: Option<Refusal>,
        connection: &Connection,
    ) -> impl Future<Output = ()> + Send {
        self.fallback().stream(stream, refusal, connection)
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
    fn describe(&self) -> Result<RouterInfo, Box<dyn Error + Send + Sync>> {
        Ok(RouterInfo { send_order: SendOrder::Unused, ..RouterInfo::default() })
    }

    async fn route(&self, _: Packet, _: &Connection) -> Outcome {
        Outcome::Nothing
    }
}

impl<R: Router> Router for Arc<R> {
    fn fallback(&self) -> &impl Router {
        &**self
    }

    #[inline(always)]
    fn route(&self, packet: Packet, connection: &Connection) -> impl Future<Output = Outcome> + Send {
        (**self).route(packet, connection)
    }
}

/// The end of every chain of fallbacks. It implements all methods, because it is its own fallback.
struct Defaults;

impl Router for Defaults {
    fn describe(&self) -> Result<RouterInfo, Box<dyn Error + Send + Sync>> {
        Ok(RouterInfo::default())
    }

    fn event(&self, _: &Connection, _: Event<'_>) {}

    #[inline]
    fn intercept(&self, _: &mut Arrivals<'_>, _: &Connection) {}

    async fn route(&self, _: Packet, _: &Connection) -> Outcome {
        Outcome::Nothing
    }

    fn refuse(&self, _: Refused, _: &Connection) -> Outcome {
        Outcome::Nothing
    }

    fn awaited(&self, _: &Connection) -> usize {
        0
    }

    fn packet_timeout(&self, _: &Packet, _: &Connection) -> Option<Duration> {
        None
    }

    fn stream(
        &self,
        stream: Stream,
        refusal: Option<Refusal>,
        connection: &Connection,
    ) -> impl Future<Output = ()> + Send {
        if refusal.is_none() {
            connection.offer_stream(stream);
        }
        future::ready(())
    }
}
