//! Connections to a NATS cluster.

use std::{fmt, io, sync::Arc, time::Duration};

use async_nats::{Client, ConnectErrorKind, ConnectOptions, Message, Subscriber};
use bytes::Bytes;
use futures_util::{FutureExt, StreamExt};
use tokio::time::timeout;

/// The servers of a NATS cluster, and how to connect to them.
///
/// ```
/// use async_nats::ConnectOptions;
/// use frpc_nats::NatsCluster;
///
/// let cluster = NatsCluster::new("nats://one:4222,nats://two:4222")
///     .options(|| ConnectOptions::new().user_and_password("orders".into(), "secret".into()));
/// # let _ = cluster;
/// ```
#[derive(Clone)]
pub struct NatsCluster {
    servers: Vec<String>,
    options: Arc<dyn Fn() -> ConnectOptions + Send + Sync>,
}

impl NatsCluster {
    /// Creates a cluster with these servers, separated by commas. A client learns of the other servers from the first one.
    pub fn new(servers: impl AsRef<str>) -> Self {
        let servers = servers.as_ref().split(',').map(|server| server.trim().to_owned()).collect();
        Self { servers, options: Arc::new(ConnectOptions::new) }
    }

    /// Sets the options of each connection, such as credentials and TLS.
    ///
    /// The crate sets the capacity of subscriptions, the interval of pings, and a name unless there is one.
    #[must_use]
    pub fn options(self, options: impl Fn() -> ConnectOptions + Send + Sync + 'static) -> Self {
        Self { options: Arc::new(options), ..self }
    }

    /// Opens a connection.
    pub(crate) async fn connect(&self) -> io::Result<Client> {
        let options = (self.options)().subscription_capacity(BACKLOG_MAX).ping_interval(PING_INTERVAL);
        options.connect(&self.servers[..]).await.map_err(|error| {
            let kind = match error.kind() {
                ConnectErrorKind::ServerParse => io::ErrorKind::InvalidInput,
                ConnectErrorKind::TimedOut => io::ErrorKind::TimedOut,
                ConnectErrorKind::Authentication | ConnectErrorKind::AuthorizationViolation => {
                    io::ErrorKind::PermissionDenied
                }
                _ => io::ErrorKind::ConnectionRefused,
            };
            io::Error::new(kind, format!("cannot connect to NATS: {error}"))
        })
    }
}

/// Waits until the connected server has processed everything sent before, such as subscriptions. `Client::flush` only
/// writes it to the socket.
pub(crate) async fn round_trip(client: &Client) -> io::Result<()> {
    let inbox = client.new_inbox();
    let mut echo = client.subscribe(inbox.clone()).await.map_err(io::Error::other)?;
    client.publish(inbox, Bytes::new()).await.map_err(io::Error::other)?;
    match timeout(ROUND_TRIP_MAX, echo.next()).await {
        Ok(Some(_)) => Ok(()),
        Ok(None) => Err(io::Error::new(io::ErrorKind::ConnectionAborted, "the connection to NATS has ended")),
        Err(_) => Err(io::Error::new(io::ErrorKind::TimedOut, "NATS did not answer in time")),
    }
}

/// Returns the next message if it has arrived. A task that takes all of them in one turn costs less than a turn for each.
pub(crate) fn next_of_batch(messages: &mut Subscriber) -> Option<Message> {
    messages.next().now_or_never().flatten()
}

impl fmt::Debug for NatsCluster {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Addresses may contain passwords.
        f.debug_struct("NatsCluster").field("servers", &self.servers.len()).finish_non_exhaustive()
    }
}

/// The maximum number of messages queued for a subscription until its task runs. Beyond it, NATS loses messages: calls run
/// into their timeouts, and streams fail.
pub(crate) const BACKLOG_MAX: usize = 16 * 1024;

/// The interval between two pings. After two unanswered ones, a server counts as dead.
const PING_INTERVAL: Duration = Duration::from_secs(2);

/// The time limit of a round trip to NATS.
const ROUND_TRIP_MAX: Duration = Duration::from_secs(5);
