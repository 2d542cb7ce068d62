//! A client connection with automatic reconnects.

use std::{
    error::Error,
    fmt,
    future::Future,
    io,
    panic::AssertUnwindSafe,
    pin::{Pin, pin},
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use futures_util::{
    FutureExt as _,
    future::{Either, select},
};
use tokio::{
    sync::watch,
    time::{sleep, timeout},
};
use tokio_util::sync::{CancellationToken, DropGuard};
use tracing::info;

use crate::{
    Backoff, Client, ConnectError, Connection, InvalidSetting, Packet, Router, SendError, ToAddress,
    client::DialTarget, proto::PACKET_COST,
};

impl<R: Router> Client<R> {
    /// Makes the client reconnect automatically after each lost connection, until stopped.
    ///
    /// Each attempt has the [timeout](Self::timeout) of this client. The pauses between attempts begin with its
    /// [pause](crate::ConnectRetry::pause) and grow like those of [`Backoff`], until a connection receives a packet.
    /// [`attempts`](crate::ConnectRetry::attempts) does not limit their number. All connections share one router, and
    /// the router receives the events of each.
    ///
    /// ```
    /// use frisbee::{Client, Connection, Operation, Packet, ReconnectState, Server, HandlerTable};
    ///
    /// const SUBSCRIBE: Operation = Operation::new(20).unwrap();
    /// const NEWS: Operation = Operation::new(21).unwrap();
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let broker = HandlerTable::new().on(SUBSCRIBE, async |_: Packet| Packet::new(0, NEWS, "read all about it"));
    /// # let server = Server::builder(broker).bind("tcp://127.0.0.1:0").await?;
    /// # let address = server.local_addr();
    /// # let (news, mut inbox) = tokio::sync::mpsc::unbounded_channel();
    /// let router = HandlerTable::new().on(NEWS, move |packet: Packet| {
    ///     let news = news.clone();
    ///     async move { news.send(packet.content).unwrap() }
    /// });
    /// let subscribe = async |connection: Connection| connection.send(Packet::new(1, SUBSCRIBE, "sports")).await.map(drop);
    /// let link = Client::new(router).reconnecting().on_connected(subscribe).start(address)?;
    /// assert_eq!(inbox.recv().await.unwrap(), "read all about it");
    ///
    /// link.connection().unwrap().close();
    /// assert_eq!(inbox.recv().await.unwrap(), "read all about it", "on another connection");
    /// # Ok(())
    /// # }
    /// ```
    pub fn reconnecting(self) -> ReconnectingClient<R> {
        ReconnectingClient {
            client: self.leaving(),
            waiting_len_max: 1024 * 1024,
            setup_timeout: Duration::from_secs(10),
            setup: None,
        }
    }
}

/// Settings of a reconnecting client. Created by [`Client::reconnecting`].
pub struct ReconnectingClient<R> {
    client: Client<R>,
    waiting_len_max: usize,
    setup_timeout: Duration,
    setup: Option<Box<SetupFn>>,
}

type SetupFn =
    dyn Fn(Connection) -> Pin<Box<dyn Future<Output = Result<(), Box<dyn Error + Send + Sync>>> + Send>> + Send + Sync;

impl<R: Router> ReconnectingClient<R> {
    /// Sets the limit on bytes waiting for a connection in [`Reconnecting::send`]. Default 1 MiB.
    ///
    /// Each packet counts as its content plus 64 bytes. With 0, sending without a connection fails.
    pub fn waiting_len_max(mut self, waiting_len_max: usize) -> Self {
        self.waiting_len_max = waiting_len_max;
        self
    }

    /// Sets a function to run first on each new connection, for example to subscribe again.
    ///
    /// Other users get the connection, and waiting packets are sent, only after it succeeds. If it fails, panics
    /// or exceeds [`setup_timeout`](Self::setup_timeout), the connection closes, and the next attempt follows
    /// after a pause.
    pub fn on_connected<F, E>(mut self, setup: impl Fn(Connection) -> F + Send + Sync + 'static) -> Self
    where
        F: Future<Output = Result<(), E>> + Send + 'static,
        E: Into<Box<dyn Error + Send + Sync>>,
    {
        self.setup = Some(Box::new(move |connection| {
            let done = setup(connection);
            Box::pin(async move { done.await.map_err(Into::into) })
        }));
        self
    }

    /// Sets the time limit for [`on_connected`](Self::on_connected). Default 10 s.
    pub fn setup_timeout(mut self, setup_timeout: Duration) -> Self {
        self.setup_timeout = setup_timeout;
        self
    }

    /// Starts connecting to an address on the current tokio runtime, and continues until the last handle is
    /// dropped.
    ///
    /// # Errors
    ///
    /// An invalid address, unusable [settings](Client::check), or an error of [`Router::describe`]. An unreachable
    /// server is no error here; see [`Reconnecting::connected`].
    pub fn start(self, address: impl ToAddress) -> Result<Reconnecting, ConnectError> {
        let target = self.client.begin(address)?;
        let zero = "no connection could ever be set up";
        if let Err(error) = InvalidSetting::refuse_zero("setup_timeout", &self.setup_timeout, zero) {
            return Err(ConnectError::of_setup(&target.address, 0, error.into()));
        }
        let (states, seen) = watch::channel(ReconnectState::Connecting(None));
        let (closing, waiting_len_max) = (CancellationToken::new(), self.waiting_len_max);
        let keeper = ReconnectTask { target, settings: self, states };
        tokio::spawn(keeper.run(closing.clone()));
        let handle = ReconnectHandle {
            states: seen,
            waiting_len: AtomicUsize::new(0),
            waiting_len_max,
            closing: closing.drop_guard(),
        };
        Ok(Reconnecting(Arc::new(handle)))
    }
}

impl<R> fmt::Debug for ReconnectingClient<R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ReconnectingClient")
            .field("client", &self.client)
            .field("waiting_len_max", &self.waiting_len_max)
            .field("setup_timeout", &self.setup_timeout)
            .finish_non_exhaustive()
    }
}

/// A handle to a connection with automatic reconnects. Cheap to clone.
///
/// After the last handle is dropped, queued packets are written and the connection closes for good. Packets queued
/// on a lost connection are lost too: only the application knows which ones to send again.
///
/// A server asks its clients to leave before a shutdown. The client then makes a second connection and keeps using
/// the first until the second is ready. Nothing sent during the shutdown is lost.
#[derive(Clone)]
pub struct Reconnecting(Arc<ReconnectHandle>);

struct ReconnectHandle {
    states: watch::Receiver<ReconnectState>,
    /// Bytes of packets waiting for a connection.
    waiting_len: AtomicUsize,
    waiting_len_max: usize,
    /// Ends the connecting task on drop.
    closing: DropGuard,
}

/// The state of a connection with automatic reconnects.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum ReconnectState {
    /// There is no connection. Contains the error of the last attempt since the previous connection, if any.
    Connecting(Option<Arc<ConnectError>>),
    /// There is a connection. This handle does not keep it open.
    Connected(Connection),
    /// There will be no further connection. It was [closed](Reconnecting::close), or the first attempt failed with
    /// this final error, or the runtime of [`start`](ReconnectingClient::start) has shut down.
    Ended(Option<Arc<ConnectError>>),
}

impl Reconnecting {
    /// Returns the current connection, if any. The returned handle does not keep it open.
    pub fn connection(&self) -> Option<Connection> {
        match &*self.0.states.borrow() {
            ReconnectState::Connected(connection) => Some(connection.clone()),
            _ => None,
        }
    }

    /// Waits for a connection.
    ///
    /// # Errors
    ///
    /// [`NotSent::Ended`] if there will be none. An unreachable server is no error: the call waits for it. A
    /// permanent failure, such as a wrong certificate, is an error on the first attempt only; see
    /// [`ConnectError::is_final`].
    ///
    /// # Cancel safety
    ///
    /// Dropping the future has no effect.
    pub async fn connected(&self) -> Result<Connection, NotSent> {
        self.connected_after(None).await
    }

    /// Sends a packet, waiting for a connection and for room in the outbox.
    ///
    /// Packets of one task arrive in order. Some may be lost with a connection.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future sends the packet whole or not at all.
    pub async fn send(&self, packet: Packet) -> Result<(), NotSent> {
        let connection = self.connection();
        if let Some(connection) = &connection {
            match connection.send(packet.clone()).await {
                Err(SendError::Closed) => {}
                sent => return sent.map(drop).map_err(NotSent::Failed),
            }
        }
        // Boxed, so only a call that has to wait takes memory for waiting.
        Box::pin(self.send_later(packet, connection)).await
    }

    /// Sends a packet without waiting. Fails without a connection, and with a full outbox.
    ///
    /// To keep the packet for a retry, pass a clone. It shares the content.
    pub fn try_send(&self, packet: Packet) -> Result<(), NotSent> {
        let connection = self.connection().ok_or(NotSent::NotConnected)?;
        match connection.try_send(packet) {
            Ok(_) => Ok(()),
            Err(crate::TrySendError::Full(_)) => Err(NotSent::Failed(SendError::OutboxFull)),
            Err(crate::TrySendError::Failed(SendError::Closed)) => Err(NotSent::NotConnected),
            Err(crate::TrySendError::Failed(error)) => Err(NotSent::Failed(error)),
        }
    }

    /// Returns the states of the connection, starting with the current one.
    pub fn states(&self) -> ReconnectStates {
        let mut states = self.0.states.clone();
        states.mark_changed();
        ReconnectStates(states)
    }

    /// Closes the connection like [`Connection::close`], and stops reconnecting. Waiting packets fail.
    pub fn close(&self) {
        self.0.closing.token().cancel();
    }

    /// Waits for a connection other than `lost`.
    async fn connected_after(&self, lost: Option<&Connection>) -> Result<Connection, NotSent> {
        let mut states = self.0.states.clone();
        let is_news = |state: &ReconnectState| match state {
            ReconnectState::Connecting(_) => false,
            ReconnectState::Connected(connection) => Some(connection) != lost,
            ReconnectState::Ended(_) => true,
        };
        match states.wait_for(is_news).await.as_deref() {
            Ok(ReconnectState::Connected(connection)) => Ok(connection.clone()),
            Ok(ReconnectState::Ended(error)) => Err(NotSent::Ended(error.clone())),
            Ok(ReconnectState::Connecting(_)) | Err(_) => unreachable!("the last state is Ended"),
        }
    }

    async fn send_later(&self, packet: Packet, mut lost: Option<Connection>) -> Result<(), NotSent> {
        let _place = WaitingBytes::take(&self.0, packet.content.len() + PACKET_COST)?;
        loop {
            let connection = self.connected_after(lost.as_ref()).await?;
            match connection.send(packet.clone()).await {
                Err(SendError::Closed) => lost = Some(connection),
                sent => return sent.map(drop).map_err(NotSent::Failed),
            }
        }
    }
}

impl fmt::Debug for Reconnecting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Reconnecting").field(&*self.0.states.borrow()).finish()
    }
}

/// The share of one packet in the bytes waiting for a connection.
struct WaitingBytes<'a> {
    handle: &'a ReconnectHandle,
    len: usize,
}

impl<'a> WaitingBytes<'a> {
    fn take(handle: &'a ReconnectHandle, len: usize) -> Result<Self, NotSent> {
        let place = Self { handle, len };
        // The counter guards no other memory, so relaxed ordering is enough.
        let before = handle.waiting_len.fetch_add(len, Ordering::Relaxed);
        if before.saturating_add(len) <= handle.waiting_len_max { Ok(place) } else { Err(NotSent::NotConnected) }
    }
}

impl Drop for WaitingBytes<'_> {
    fn drop(&mut self) {
        self.handle.waiting_len.fetch_sub(self.len, Ordering::Relaxed);
    }
}

/// A sequence of states of a connection with automatic reconnects.
#[derive(Clone)]
pub struct ReconnectStates(watch::Receiver<ReconnectState>);

impl ReconnectStates {
    /// Waits for the next change of state. Returns `None` after [`ReconnectState::Ended`].
    ///
    /// A change since the last call is returned immediately. Slow callers see only the latest state.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future has no effect.
    pub async fn next(&mut self) -> Option<ReconnectState> {
        self.0.changed().await.ok()?;
        Some(self.0.borrow_and_update().clone())
    }
}

impl fmt::Debug for ReconnectStates {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("ReconnectStates").field(&*self.0.borrow()).finish()
    }
}

/// An error from sending on a connection with automatic reconnects.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum NotSent {
    /// There is no connection now, and the packet cannot wait for one: the call does not wait, or the limit on
    /// waiting bytes is reached ([`ReconnectingClient::waiting_len_max`]).
    NotConnected,
    /// There will be no further connection. Contains the error of the last attempt, unless this side closed the
    /// connection.
    Ended(Option<Arc<ConnectError>>),
    /// The current connection refused the packet.
    Failed(SendError),
}

impl fmt::Display for NotSent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotConnected => {
                f.write_str("there is no connection, and no more packets may wait for one (waiting_len_max)")
            }
            Self::Ended(None) => f.write_str("this side has closed the connection for good"),
            Self::Ended(Some(error)) => error.fmt(f),
            Self::Failed(error) => error.fmt(f),
        }
    }
}

impl Error for NotSent {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        match self {
            Self::Ended(error) => error.as_ref().and_then(|error| error.source()),
            Self::NotConnected | Self::Failed(_) => None,
        }
    }
}

/// The task that makes the connections.
struct ReconnectTask<R> {
    target: DialTarget,
    settings: ReconnectingClient<R>,
    states: watch::Sender<ReconnectState>,
}

impl<R: Router> ReconnectTask<R> {
    async fn run(self, closing: CancellationToken) {
        let error = closing.run_until_cancelled(self.keep_connected()).await;
        self.states.send_replace(ReconnectState::Ended(error));
    }

    /// Makes connections until cancelled. Returns the error of the first attempt if it is final.
    async fn keep_connected(&self) -> Arc<ConnectError> {
        let mut backoff = Backoff::new(self.settings.client.first_pause());
        let mut connection = match self.connect(&mut backoff, AttemptPhase::First).await {
            Ok(connection) => connection,
            Err(error) => return error,
        };
        loop {
            // This task's handle keeps the connection open; the published one does not.
            self.states.send_replace(ReconnectState::Connected(connection.without_keeping_open()));
            let heard = packets_received(&connection);
            connection.shared().until_left().await;
            // The connection was usable, so the next pauses start short again.
            if heard < self::packets_received(&connection) {
                backoff.reset();
            }
            connection = match self.connect_again(&connection, &mut backoff).await {
                Ok(next) => next,
                Err(error) => return error,
            };
        }
    }

    /// Makes the next connection after `last`, which is lost or about to be left.
    async fn connect_again(&self, last: &Connection, backoff: &mut Backoff) -> Result<Connection, Arc<ConnectError>> {
        let again = async {
            sleep(backoff.pause()).await;
            self.connect(backoff, AttemptPhase::Later).await
        };
        // A connection about to be left stays in use until the next one is ready, or until its server stops
        // waiting.
        let lost = pin!(last.shared().until_finishing());
        match select(lost, pin!(again)).await {
            Either::Left(((), again)) => {
                self.states.send_replace(ReconnectState::Connecting(None));
                again.await
            }
            Either::Right((next, _)) => next,
        }
    }

    /// Attempts to connect until a connection is ready for use.
    async fn connect(&self, backoff: &mut Backoff, attempts: AttemptPhase) -> Result<Connection, Arc<ConnectError>> {
        let mut number = 0;
        loop {
            let error = match self.attempt(number).await {
                Ok(connection) => return Ok(connection),
                Err(error) => Arc::new(error),
            };
            if attempts == AttemptPhase::First && number == 0 && error.is_final() {
                return Err(error);
            }
            number += 1;
            let pause = backoff.pause();
            info!(%error, ?pause, "not connected, trying again after a pause");
            self.states.send_if_modified(|state| {
                // A connection about to be left is still in use.
                let is_without = matches!(state, ReconnectState::Connecting(_));
                if is_without {
                    *state = ReconnectState::Connecting(Some(error));
                }
                is_without
            });
            sleep(pause).await;
        }
    }

    async fn attempt(&self, number: usize) -> Result<Connection, ConnectError> {
        let connection = self.settings.client.attempt(&self.target, number).await?;
        match self.set_up(&connection).await {
            Ok(()) => Ok(connection),
            Err(source) => Err(ConnectError::of_setup(&self.target.address, number + 1, source)),
        }
    }

    async fn set_up(&self, connection: &Connection) -> io::Result<()> {
        let Some(setup) = &self.settings.setup else { return Ok(()) };
        let limit = self.settings.setup_timeout;
        let done = AssertUnwindSafe(async { setup(connection.without_keeping_open()).await }).catch_unwind();
        match select(pin!(timeout(limit, done)), pin!(connection.closed())).await {
            Either::Left((Ok(Ok(done)), _)) => done.map_err(io::Error::other),
            Either::Left((Ok(Err(_)), _)) => Err(io::Error::other("the on_connected function panicked")),
            Either::Left((Err(_), _)) => {
                Err(io::Error::new(io::ErrorKind::TimedOut, format!("not set up within {limit:?} (setup_timeout)")))
            }
            Either::Right((reason, _)) => Err(io::Error::other(reason)),
        }
    }
}

impl<R> Drop for ReconnectTask<R> {
    fn drop(&mut self) {
        if !matches!(&*self.states.borrow(), ReconnectState::Ended(_)) {
            let source = io::Error::other("the runtime of the connection shut down");
            let error = ConnectError::of_setup(&self.target.address, 0, source);
            self.states.send_replace(ReconnectState::Ended(Some(Arc::new(error))));
        }
    }
}

#[derive(Clone, Copy, PartialEq)]
enum AttemptPhase {
    /// There was no connection before.
    First,
    Later,
}

/// Returns the number of packets received from the peer so far.
fn packets_received(connection: &Connection) -> u64 {
    connection.metrics().counters.packets_in
}
