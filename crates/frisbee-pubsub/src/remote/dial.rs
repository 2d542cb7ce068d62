//! Connecting to a broker, and again when a connection is lost.

use std::{fmt, pin::pin, sync::Arc, time::Duration};

use frisbee::{Backoff, Connection, ToAddress};
use tokio::{
    io::{AsyncRead, AsyncWrite},
    time::{sleep, timeout},
};
use tokio_util::task::AbortOnDropHandle;
use tracing::info;

use crate::{
    Client, SubscriptionEnd,
    remote::{
        backend::FrisbeeBackend,
        inbox::Inbox,
        session::{Hindrance, Session},
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
/// let client = Client::builder().frisbee(settings).connect("tcp://localhost:7000").await?;
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct ClientBuilder {
    frisbee: frisbee::Client<()>,
    base: u16,
    wait_max: Duration,
}

impl Client {
    /// Connects to a broker at an address such as `"tcp://localhost:7000"`. When the connection is lost, the client connects again, and its
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
        ClientBuilder { frisbee: frisbee::Client::new(()), base: BASE, wait_max: WAIT_MAX }
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
        let inbox = self.checked_inbox(true)?;
        let address = address.to_address().map_err(ConnectError::Setting)?;
        let client = self.frisbee.with_router(inbox.clone());
        let connection = client.connect(&address).await.map_err(ConnectError::Connect)?;
        welcomed(&inbox.session).await?;
        let session = inbox.session.clone();
        let dialling = tokio::spawn(async move {
            let mut connection = connection;
            loop {
                connection.closed().await;
                let Some(next) = dial(&client, &address, &session).await else { return };
                connection = next;
            }
        });
        Ok(inbox.client_with(Some(Arc::new(AbortOnDropHandle::new(dialling)))))
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
        let inbox = self.checked_inbox(false)?;
        let client = self.frisbee.with_router(inbox.clone());
        let connection = client.attach(stream).await.map_err(ConnectError::Connect)?;
        welcomed(&inbox.session).await?;
        let holding = tokio::spawn(async move {
            let _kept = kept;
            connection.closed().await;
        });
        Ok(inbox.client_with(Some(Arc::new(AbortOnDropHandle::new(holding)))))
    }

    /// Returns the router of a client whose connections something else makes, and makes again.
    pub fn inbox(self) -> Inbox {
        Inbox { session: Session::new(Base::new(self.base), true), wait_max: self.wait_max }
    }

    fn checked_inbox(&self, reconnects: bool) -> Result<Inbox, ConnectError> {
        let base = Base::new(self.base);
        base.check().map_err(|error| ConnectError::Setting(error.into()))?;
        Ok(Inbox { session: Session::new(base, reconnects), wait_max: self.wait_max })
    }
}

impl Inbox {
    /// Returns a client on the connections that this is the router of.
    pub fn client(&self) -> Client {
        self.client_with(None)
    }

    fn client_with(&self, dialling: Option<Arc<AbortOnDropHandle<()>>>) -> Client {
        let backend = FrisbeeBackend { session: self.session.clone(), wait_max: self.wait_max, _dialling: dialling };
        Client::on(Arc::new(backend))
    }
}

/// Connects until there is a connection, or the client is closed or can never have one.
async fn dial(client: &frisbee::Client<Inbox>, address: &frisbee::Address, session: &Session) -> Option<Connection> {
    let mut backoff = Backoff::new(PAUSE);
    while !session.is_closed() {
        match client.connect(address).await {
            Ok(connection) => return Some(connection),
            Err(error) if error.is_final() => {
                info!(%error, "the broker is lost");
                session.close(SubscriptionEnd::Lost);
                return None;
            }
            Err(_) => sleep(backoff.pause()).await,
        }
    }
    None
}

/// Waits until a broker has answered.
async fn welcomed(session: &Session) -> Result<(), ConnectError> {
    let welcomed = async {
        loop {
            let mut changed = pin!(session.changed.notified());
            // Before the look: what changes right behind it would otherwise go unnoticed.
            changed.as_mut().enable();
            match session.connection() {
                Ok(_) => return Ok(()),
                Err(Hindrance::Failed(_)) => return Err(ConnectError::NoBroker),
                Err(Hindrance::Wait) => changed.await,
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
    /// There is no connection.
    Connect(frisbee::ConnectError),
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

impl std::error::Error for ConnectError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Setting(error) => Some(error),
            Self::Connect(error) => Some(error),
            Self::NoBroker => None,
        }
    }
}

const WAIT_MAX: Duration = Duration::from_secs(10);
const WELCOME_MAX: Duration = Duration::from_secs(5);
const PAUSE: Duration = Duration::from_millis(10);
