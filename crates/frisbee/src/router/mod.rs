//! Dispatch from packets to handlers: the one trait that a protocol on top of frisbee implements.

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
    table::HandlerTable,
};
use crate::{Connection, Operation, Packet, Stream};

/// Handles everything that arrives on one side of a connection. Servers and clients use the same trait.
///
/// Only [`route`](Self::route) is required. All other methods default to those of the [`fallback`](Self::fallback).
/// This is how routers are stacked: the outer router overrides `fallback`, handles its own packets, and calls the same
/// method of the fallback for all others.
///
/// All methods except [`route`](Self::route) and [`stream`](Self::stream) run on the task of the connection and must
/// not block. [`Dispatch`] decides where the future of a packet runs. Unless it is a separate task, it is dropped if
/// the connection ends first, except after a takeover. A panic in a router ends only its connection, with
/// [`CloseReason::HandlerPanicked`](crate::CloseReason::HandlerPanicked).
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
/// /// Broadcasts `SAY` packets to all other connections, and echoes every other packet.
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
///                     // A slow guest misses these packets.
///                     let _ = guest.try_send_frames(&frames);
///                 }
///             }
///             Event::Closed(_) => guests.retain(|guest| guest != connection),
///             _ => {}
///         }
///     }
/// }
///
/// /// Forwards received packets to a channel.
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
    /// Returns the facts that hold for all connections, or an error if this router cannot serve at all.
    ///
    /// Called before a server listens and before a client connects. An error fails the bind or the connect.
    ///
    /// The default is that of the [`fallback`](Self::fallback): nothing is announced to the peer, and packets are sent
    /// in order.
    fn describe(&self) -> Result<RouterInfo, Box<dyn Error + Send + Sync>> {
        self.fallback().describe()
    }

    /// Returns the router for everything that this one does not handle.
    ///
    /// The default fallback intercepts no packets, offers streams to [`Connection::accept_stream`], and otherwise
    /// behaves as documented at each method.
    fn fallback(&self) -> &impl Router {
        &DefaultRouter
    }

    /// Called for each event of a connection.
    fn event(&self, connection: &Connection, event: Event<'_>) {
        self.fallback().event(connection, event);
    }

    /// Takes packets that need no handler from the front of `packets`, such as replies to requests of this side.
    ///
    /// The first packet left at the front is routed or refused, and the method is called again for the packets after
    /// it. It is called right after decoding: before packets in the backlog, regardless of handler limits, and also
    /// during shutdown.
    ///
    /// A wrapping router passes other packets to its fallback with [`Arrivals::lend_until`]. If the fallback leaves a
    /// packet at the front, the wrapping router leaves it there too.
    ///
    /// The default takes none.
    #[inline]
    fn intercept(&self, packets: &mut Arrivals<'_>, connection: &Connection) {
        self.fallback().intercept(packets, connection);
    }

    /// Handles one packet.
    fn route(&self, packet: Packet, connection: &Connection) -> impl Future<Output = Outcome> + Send;

    /// Decides the outcome of a packet that is not handed to [`route`](Self::route).
    ///
    /// The outcome is typically a reply that tells the peer to try elsewhere or later, and is applied like one of
    /// `route`. A [too large](RefusalReason::TooLarge) packet may also be a reply to a request of this side. Never
    /// called for a packet taken by [`intercept`](Self::intercept), nor while the connection closes.
    ///
    /// The default is [`Outcome::Nothing`]. It drops a packet during a shutdown. A packet refused as
    /// [`RefusalReason::Busy`] or [`RefusalReason::Expired`] is then queued for its handler anyway, and reading pauses:
    /// a packet is not lost if its sender cannot be told.
    fn refuse(&self, refused: RefusedPacket, connection: &Connection) -> Outcome {
        self.fallback().refuse(refused, connection)
    }

    /// Returns the number of pending packets that [`intercept`](Self::intercept) will take, such as replies to calls in
    /// flight.
    ///
    /// While it is not 0, frisbee keeps reading even if no handler may start on the packets received so far. Packets
    /// beyond the limits are [refused](Self::refuse). Called while packets are queued for handlers.
    ///
    /// The default is 0: reading pauses until a handler may start.
    fn awaited(&self, connection: &Connection) -> usize {
        self.fallback().awaited(connection)
    }

    /// Returns how long the peer waits for a reply to `packet`, if known. Called for a packet queued for its handler.
    ///
    /// After this time, the packet is [refused](Self::refuse) as [`RefusalReason::Expired`] and its handler never
    /// starts. Once the oldest packet has waited for half of its time, this side is overloaded: the newest packets go
    /// first, and if the queue is full, the oldest is refused as [`RefusalReason::Busy`] instead of pausing reads.
    /// Handlers then work on requests still wanted by their callers. With [`Dispatch::Ordered`], the order does not
    /// change.
    ///
    /// The default is `None`: packets are queued in order, without a time limit.
    fn packet_timeout(&self, packet: &Packet, connection: &Connection) -> Option<Duration> {
        self.fallback().packet_timeout(packet, connection)
    }

    /// Serves a stream opened by the peer, as a separate task that may outlive the connection.
    ///
    /// The first packet may be a late packet of an earlier stream with the same id.
    ///
    /// A `refusal` means that the server is shutting down. The stream should not be served, but its peer can be told
    /// why; the shutdown waits for that.
    ///
    /// By default, the stream goes to [`Connection::accept_stream`] if
    /// [`Config::accept_backlog`](crate::Config::accept_backlog) allows. It is closed if the backlog is full or if
    /// there is a refusal.
    fn stream(
        &self,
        stream: Stream,
        refusal: Option<RefusalReason>,
        connection: &Connection,
    ) -> impl Future<Output = ()> + Send {
        self.fallback().stream(stream, refusal, connection)
    }
}

/// The outcome of a packet.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Outcome {
    /// Sends nothing.
    Nothing,
    /// Sends this packet.
    Reply(Packet),
    /// Closes the connection after everything sent before has arrived.
    Close,
    /// Sends this packet, and closes the connection after it has arrived.
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

/// A packet refused before it reached a handler.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct RefusedPacket {
    /// Id of the packet.
    pub id: u16,
    /// Operation of the packet.
    pub operation: Operation,
    /// Reason for the refusal.
    pub why: RefusalReason,
}

/// The reason for refusing a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum RefusalReason {
    /// The queue for handlers is full.
    Busy,
    /// The peer no longer waits for the reply ([`Router::packet_timeout`]).
    Expired,
    /// The server is shutting down.
    Draining,
    /// The content exceeds the limit of this side, and is discarded.
    TooLarge {
        /// Length of the content in bytes.
        announced: u32,
        /// [`Config::content_len_max`](crate::Config::content_len_max).
        limit: u32,
    },
}

impl fmt::Display for RefusalReason {
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

/// The execution of handlers for arriving packets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Dispatch {
    /// On the task of the connection. A handler that is ready immediately replies in the order of arrival. Any other
    /// handler runs concurrently with later packets and replies when it is done.
    #[default]
    InPlace,
    /// One handler per connection at a time, with replies in the order of arrival.
    Ordered,
    /// Each handler as a separate task, possibly on another core, with replies in any order. The task runs to
    /// completion even if the connection ends.
    Spawned,
    /// Like [`Spawned`](Self::Spawned), with a maximum number of concurrent handlers across all connections of the
    /// server.
    Limited(NonZeroUsize),
}

/// Drops every packet, for a client that only sends. Streams go to [`Connection::accept_stream`] if the configuration
/// allows.
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

/// End of every chain of fallbacks. Implements all methods, because it is its own fallback.
struct DefaultRouter;

impl Router for DefaultRouter {
    fn describe(&self) -> Result<RouterInfo, Box<dyn Error + Send + Sync>> {
        Ok(RouterInfo::default())
    }

    fn event(&self, _: &Connection, _: Event<'_>) {}

    #[inline]
    fn intercept(&self, _: &mut Arrivals<'_>, _: &Connection) {}

    async fn route(&self, _: Packet, _: &Connection) -> Outcome {
        Outcome::Nothing
    }

    fn refuse(&self, _: RefusedPacket, _: &Connection) -> Outcome {
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
        refusal: Option<RefusalReason>,
        connection: &Connection,
    ) -> impl Future<Output = ()> + Send {
        if refusal.is_none() {
            connection.offer_stream(stream);
        }
        future::ready(())
    }
}
