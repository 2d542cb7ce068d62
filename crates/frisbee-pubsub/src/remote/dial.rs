//! Connecting to a broker, and reconnecting after a loss.

use std::{error::Error, fmt, pin::pin, sync::Arc, time::Duration};

use frisbee::{Connection, ReconnectState, Reconnecting, ToAddress};
use tokio::{
    io::{AsyncRead, AsyncWrite},
    time::timeout,
};
use tokio_util::task::AbortOnDropHandle;

use crate::{
    Client, SubscriptionEnd,
    remote::{
        backend::{ConnectionKeeper, FrisbeeBackend},
        inbox::ClientRouter,
        session::{ClientSession, ConnectionOwnership, NotReady},
    },
    wire::{BASE, OperationBase},
};

/// A builder for clients of a frisbee broker.
///
/// ```no_run
/// use std::time::Duration;
///
/// use frisbee_pubsub::Client;
///
/// # async fn example() -> Result<(), Box<dyn std::error::Error>> {
/// let settings = frisbee::Client::new(()).timeout(Duration::from_secs(3));
/// let client = Client::builder().frisbee(settings).connect("tcp://localhost:7300").await?;
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct ClientBuilder {
    frisbee: frisbee::Client<()>,
    base: u16,
    wait_max: Duration,
    answer_max: Duration,
    connect_max: Duration,
}

impl Client {
    /// Connects to a broker at an address such as `"tcp://localhost:7300"`. After a lost connection the client
    /// reconnects and resumes its subscriptions ([`SubscriptionEvent::Reconnected`](crate::SubscriptionEvent::Reconnected)).
    ///
    /// # Cancel safety
    ///
    /// A dropped call leaves no connection.
    pub async fn connect(address: impl ToAddress) -> Result<Self, ConnectError> {
        Self::builder().connect(address).await
    }

    /// Returns a builder for a client with other settings.
    pub fn builder() -> ClientBuilder {
        ClientBuilder {
            frisbee: frisbee::Client::new(()),
            base: BASE,
            wait_max: WAIT_MAX,
            answer_max: ANSWER_MAX,
            connect_max: CONNECT_MAX,
        }
    }
}

impl ClientBuilder {
    /// Sets the frisbee client used to connect. It defines limits, TLS, the timeout of an attempt and the number of
    /// attempts.
    pub fn frisbee(mut self, client: frisbee::Client<()>) -> Self {
        self.frisbee = client;
        self
    }

    /// Sets the first operation number of publish and subscribe. Must equal the broker's. Default 7000.
    pub fn base(mut self, operation: u16) -> Self {
        self.base = operation;
        self
    }

    /// Limits the time for the first connection, including retries. Default 10 s.
    pub fn connect_max(mut self, limit: Duration) -> Self {
        self.connect_max = limit;
        self
    }

    /// Limits the time a publication waits for a lost connection to return. Default 10 s. Then it fails with
    /// [`PublishError::NotConnected`](crate::PublishError::NotConnected).
    pub fn wait_max(mut self, limit: Duration) -> Self {
        self.wait_max = limit;
        self
    }

    /// Limits the time for the answer of the broker to an acknowledged publication, a subscription or a flush. Default 30 s.
    ///
    /// A subscription may wait for a connection in this time. After it, calls fail with
    /// [`PublishError::NoAnswer`](crate::PublishError::NoAnswer) or
    /// [`SubscribeError::NoAnswer`](crate::SubscribeError::NoAnswer).
    pub fn answer_max(mut self, limit: Duration) -> Self {
        self.answer_max = limit;
        self
    }

    /// Connects as [`Client::connect`] does.
    ///
    /// # Cancel safety
    ///
    /// A dropped call leaves no connection.
    pub async fn connect(self, address: impl ToAddress) -> Result<Client, ConnectError> {
        let inbox = self.checked_inbox(ConnectionOwnership::Several)?;
        let keeper = SessionKeeper(inbox.session.clone());
        let link = self
            .frisbee
            .with_router(inbox.clone())
            .reconnecting()
            // Longer than the timeout in `welcomed`, which reports the better error.
            .setup_timeout(2 * WELCOME_MAX)
            .on_connected(move |connection| welcomed(keeper.0.clone(), connection))
            .start(address)
            .map_err(|error| ConnectError::Connect(Arc::new(error)))?;
        connected(&link, self.connect_max).await?;
        Ok(inbox.client_with(ConnectionKeeper::Link(link)))
    }

    /// Uses an existing stream as the connection to a broker. When the stream ends, the client and its subscriptions
    /// end too.
    ///
    /// # Cancel safety
    ///
    /// A dropped call closes the stream.
    pub async fn attach(
        self,
        stream: impl AsyncRead + AsyncWrite + Send + Unpin + 'static,
    ) -> Result<Client, ConnectError> {
        self.attach_and_keep(stream, ()).await
    }

    /// Uses a stream as [`attach`](Self::attach) does and keeps a value alive while the connection is open.
    pub(crate) async fn attach_and_keep(
        self,
        stream: impl AsyncRead + AsyncWrite + Send + Unpin + 'static,
        kept: impl Send + 'static,
    ) -> Result<Client, ConnectError> {
        let inbox = self.checked_inbox(ConnectionOwnership::One)?;
        let client = self.frisbee.with_router(inbox.clone());
        let attached = client.attach(stream).await;
        let connection = attached.map_err(|error| ConnectError::Connect(Arc::new(error)))?;
        welcomed(inbox.session.clone(), connection.without_keeping_open()).await?;
        let holding = tokio::spawn(async move {
            let _kept = kept;
            connection.closed().await;
        });
        Ok(inbox.client_with(ConnectionKeeper::Task { _ends_with_this: Arc::new(AbortOnDropHandle::new(holding)) }))
    }

    /// Returns a router for connections that other code creates, and replaces after a loss.
    pub fn router(self) -> ClientRouter {
        ClientRouter {
            session: ClientSession::new(OperationBase::new(self.base), ConnectionOwnership::Foreign),
            wait_max: self.wait_max,
            answer_max: self.answer_max,
        }
    }

    fn checked_inbox(&self, connections: ConnectionOwnership) -> Result<ClientRouter, ConnectError> {
        let base = OperationBase::new(self.base);
        base.check().map_err(|error| ConnectError::Setting(error.into()))?;
        let session = ClientSession::new(base, connections);
        Ok(ClientRouter { session, wait_max: self.wait_max, answer_max: self.answer_max })
    }
}

impl ClientRouter {
    /// Returns a client on this router's connections.
    pub fn client(&self) -> Client {
        self.client_with(ConnectionKeeper::Others)
    }

    fn client_with(&self, keeper: ConnectionKeeper) -> Client {
        let Self { session, wait_max, answer_max } = self.clone();
        let backend = FrisbeeBackend { session, wait_max, answer_max, keeper };
        Client::on(Arc::new(backend))
    }
}

/// Ends a session with the task that connects, also if the runtime drops it.
struct SessionKeeper(Arc<ClientSession>);

impl Drop for SessionKeeper {
    fn drop(&mut self) {
        self.0.close(SubscriptionEnd::Lost);
    }
}

/// Waits for the first connection, at most for the given time.
async fn connected(link: &Reconnecting, limit: Duration) -> Result<(), ConnectError> {
    let (mut states, mut last) = (link.states(), None);
    let connected = async {
        while let Some(state) = states.next().await {
            match state {
                ReconnectState::Connected(_) => return Ok(()),
                ReconnectState::Connecting(Some(error)) if is_no_broker(&error) => return Err(ConnectError::NoBroker),
                ReconnectState::Connecting(Some(error)) => last = Some(error),
                ReconnectState::Ended(Some(error)) => return Err(ConnectError::Connect(error)),
                _ => {}
            }
        }
        Err(ConnectError::NoBroker)
    };
    let result = timeout(limit, connected).await;
    result.unwrap_or_else(|_| Err(last.map_or(ConnectError::NoBroker, ConnectError::Connect)))
}

/// Returns `true` if a connection was established, but no broker answered on it.
fn is_no_broker(error: &frisbee::ConnectError) -> bool {
    let io = error.source().and_then(|source| source.downcast_ref::<std::io::Error>());
    let inner = io.and_then(std::io::Error::get_ref).and_then(|inner| inner.downcast_ref());
    matches!(inner, Some(ConnectError::NoBroker))
}

/// Waits until a broker has answered on a connection.
async fn welcomed(session: Arc<ClientSession>, connection: Connection) -> Result<(), ConnectError> {
    let welcomed = async {
        loop {
            let mut changed = pin!(session.changed.notified());
            // Register before the check. A change right after the check would not wake this task otherwise.
            changed.as_mut().enable();
            match session.connection() {
                Ok(current) if current == connection => return Ok(()),
                Err(NotReady::Failed(_)) => return Err(ConnectError::NoBroker),
                _ => changed.await,
            }
        }
    };
    timeout(WELCOME_MAX, welcomed).await.unwrap_or(Err(ConnectError::NoBroker))
}

/// Reason for a failed connection to a broker.
#[derive(Debug)]
#[non_exhaustive]
pub enum ConnectError {
    /// A setting or the address is invalid.
    Setting(std::io::Error),
    /// No connection could be established. Contains the error of the last attempt.
    Connect(Arc<frisbee::ConnectError>),
    /// A connection was established, but no broker answered on these operations.
    NoBroker,
}

impl fmt::Display for ConnectError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Setting(error) => error.fmt(f),
            Self::Connect(error) => error.fmt(f),
            Self::NoBroker => f.write_str(
                "the peer did not answer as a broker: it has none, or one with another `base`, or the connection \
                 was lost",
            ),
        }
    }
}

impl Error for ConnectError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        match self {
            Self::Setting(error) => Some(error),
            Self::Connect(error) => Some(&**error),
            Self::NoBroker => None,
        }
    }
}

const ANSWER_MAX: Duration = Duration::from_secs(30);
const WAIT_MAX: Duration = Duration::from_secs(10);
const CONNECT_MAX: Duration = Duration::from_secs(10);
const WELCOME_MAX: Duration = Duration::from_secs(5);
