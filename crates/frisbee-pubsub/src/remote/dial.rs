//! Connecting to a broker, and again when a connection is lost.

use std::{error::Error, fmt, pin::pin, sync::Arc, time::Duration};

use frisbee::{Connection, ReconnectState, Reconnecting, ToAddress};
use tokio::{
    io::{AsyncRead, AsyncWrite},
    time::timeout,
};
use tokio_util::task::AbortOnDropHandle;

use crate::{
    Client,
    remote::{
        backend::{FrisbeeBackend, Keeper},
        inbox::Inbox,
        session::{Connections, Hindrance, Session},
    },
    wire::{BASE, Base},
};

/// Makes clients of a broker on frisbee.
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
    connect_max: Duration,
}

impl Client {
    /// Connects to a broker at an address such as `"tcp://localhost:7300"`. When the connection is lost, the client connects again, and its
    /// subscriptions go on ([`Event::Reconnected`](crate::Event::Reconnected)).
    ///
    /// # Cancel safety
    ///
    /// Nothing is left of a dropped call.
    pub async fn connect(address: impl ToAddress) -> Result<Self, ConnectError> {
        Self::builder().connect(address).await
    }

    /// Begins to make a client with settings of its own.
    pub fn builder() -> ClientBuilder {
        ClientBuilder { frisbee: frisbee::Client::new(()), base: BASE, wait_max: WAIT_MAX, connect_max: CONNECT_MAX }
    }
}

impl ClientBuilder {
    /// Sets how connections are made: limits, TLS, the time for an attempt and the number of attempts.
    pub fn frisbee(mut self, client: frisbee::Client<()>) -> Self {
        self.frisbee = client;
        self
    }

    /// Sets the first operation number of publish and subscribe, which has to be that of the broker. Default 7000.
    pub fn base(mut self, operation: u16) -> Self {
        self.base = operation;
        self
    }

    /// Limits the time for the first connection, in which attempts are made again. Default 10 s.
    pub fn connect_max(mut self, limit: Duration) -> Self {
        self.connect_max = limit;
        self
    }

    /// Sets how long what is published waits for a connection when there is none. Default 10 s; then it fails with
    /// [`PublishError::NotConnected`](crate::PublishError::NotConnected).
    pub fn wait_max(mut self, limit: Duration) -> Self {
        self.wait_max = limit;
        self
    }

    /// Connects as [`Client::connect`] does.
    ///
    /// # Cancel safety
    ///
    /// Nothing is left of a dropped call.
    pub async fn connect(self, address: impl ToAddress) -> Result<Client, ConnectError> {
        let inbox = self.checked_inbox(Connections::Several)?;
        let session = inbox.session.clone();
        let link = self
            .frisbee
            .with_router(inbox.clone())
            .reconnecting()
            .setup_timeout(2 * WELCOME_MAX)
            .on_connected(move |connection| welcomed(session.clone(), connection))
            .start(address)
            .map_err(|error| ConnectError::Connect(Arc::new(error)))?;
        connected(&link, self.connect_max).await?;
        Ok(inbox.client_with(Keeper::Link(link)))
    }

    /// Talks to a broker over a stream of the user's own. When it ends, so do the client and its subscriptions.
    ///
    /// # Cancel safety
    ///
    /// The stream is closed if the future is dropped.
    pub async fn attach(
        self,
        stream: impl AsyncRead + AsyncWrite + Send + Unpin + 'static,
    ) -> Result<Client, ConnectError> {
        self.attach_and_keep(stream, ()).await
    }

    /// Talks over a stream as [`attach`](Self::attach) does, and keeps a value as long as the connection is there.
    pub(crate) async fn attach_and_keep(
        self,
        stream: impl AsyncRead + AsyncWrite + Send + Unpin + 'static,
        kept: impl Send + 'static,
    ) -> Result<Client, ConnectError> {
        let inbox = self.checked_inbox(Connections::One)?;
        let client = self.frisbee.with_router(inbox.clone());
        let attached = client.attach(stream).await;
        let connection = attached.map_err(|error| ConnectError::Connect(Arc::new(error)))?;
        welcomed(inbox.session.clone(), connection.without_keeping_open()).await?;
        let holding = tokio::spawn(async move {
            let _kept = kept;
            connection.closed().await;
        });
        Ok(inbox.client_with(Keeper::Task { _ends_with_this: Arc::new(AbortOnDropHandle::new(holding)) }))
    }

    /// Returns the router of a client whose connections something else makes, and makes again.
    pub fn inbox(self) -> Inbox {
        Inbox { session: Session::new(Base::new(self.base), Connections::Foreign), wait_max: self.wait_max }
    }

    fn checked_inbox(&self, connections: Connections) -> Result<Inbox, ConnectError> {
        let base = Base::new(self.base);
        base.check().map_err(|error| ConnectError::Setting(error.into()))?;
        Ok(Inbox { session: Session::new(base, connections), wait_max: self.wait_max })
    }
}

impl Inbox {
    /// Returns a client on the connections that this is the router of.
    pub fn client(&self) -> Client {
        self.client_with(Keeper::Others)
    }

    fn client_with(&self, keeper: Keeper) -> Client {
        let backend = FrisbeeBackend { session: self.session.clone(), wait_max: self.wait_max, keeper };
        Client::on(Arc::new(backend))
    }
}

/// Waits for the first connection, within this time.
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

/// Returns whether a connection was made, and nobody answered as a broker.
fn is_no_broker(error: &frisbee::ConnectError) -> bool {
    let io = error.source().and_then(|source| source.downcast_ref::<std::io::Error>());
    let inner = io.and_then(std::io::Error::get_ref).and_then(|inner| inner.downcast_ref());
    matches!(inner, Some(ConnectError::NoBroker))
}

/// Waits until a broker has answered on a connection.
async fn welcomed(session: Arc<Session>, connection: Connection) -> Result<(), ConnectError> {
    let welcomed = async {
        loop {
            let mut changed = pin!(session.changed.notified());
            // Before the look: what changes right behind it would otherwise go unnoticed.
            changed.as_mut().enable();
            match session.connection() {
                Ok(current) if current == connection => return Ok(()),
                Err(Hindrance::Failed(_)) => return Err(ConnectError::NoBroker),
                _ => changed.await,
            }
        }
    };
    timeout(WELCOME_MAX, welcomed).await.unwrap_or(Err(ConnectError::NoBroker))
}

/// The reason why there is no client.
#[derive(Debug)]
#[non_exhaustive]
pub enum ConnectError {
    /// A setting or the address is no good.
    Setting(std::io::Error),
    /// There is no connection. With the error of the last attempt.
    Connect(Arc<frisbee::ConnectError>),
    /// There is a connection, and no broker at its other end that answers on these operations.
    NoBroker,
}

impl fmt::Display for ConnectError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Setting(error) => error.fmt(f),
            Self::Connect(error) => error.fmt(f),
            Self::NoBroker => f.write_str(
                "the peer does not answer as a broker: it may have none, or one with other operations (base), or have lost the \
                 connection",
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

const WAIT_MAX: Duration = Duration::from_secs(10);
const CONNECT_MAX: Duration = Duration::from_secs(10);
const WELCOME_MAX: Duration = Duration::from_secs(5);
