//! A client of a broker in the same process.

use frisbee::{Connection, Event, Outcome, Packet, Router, Server};
use tokio::io::duplex;

use crate::{Broker, Client, ConnectError, lock::lock, sync::Mutex};

impl Broker {
    /// Returns a client of this broker, connected within the process.
    ///
    /// The client behaves as a remote one: it needs credit to publish, and the broker asks
    /// [`Authorize`](crate::Authorize) about its actions. Its connection carries no identity; use
    /// [`client_as`](Self::client_as) to attach one.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// use frisbee_pubsub::Broker;
    ///
    /// let broker = Broker::new();
    /// let client = broker.client().await?;
    /// let mut greetings = client.subscribe("greetings.*").await?;
    /// broker.publish("greetings.en", "hello").await?;
    /// assert_eq!(greetings.next_message().await.unwrap().payload, "hello");
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Cancel safety
    ///
    /// A dropped call leaves no client and no connection.
    pub async fn client(&self) -> Result<Client, ConnectError> {
        self.client_over(()).await
    }

    /// Returns a client of this broker in the same process, as [`client`](Self::client) does, with an identity.
    ///
    /// The value is attached to the client's connection. [`Authorize`](crate::Authorize) reads it there with
    /// [`Connection::state`].
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// use frisbee::Connection;
    /// use frisbee_pubsub::Broker;
    ///
    /// struct Service(&'static str);
    ///
    /// let broker = Broker::builder().authorize(|connection: &Connection, _, _: &str| match connection.state() {
    ///     Some(Service("billing")) => Ok(()),
    ///     _ => Err("only billing does that".into()),
    /// });
    /// let broker = broker.build();
    /// let billing = broker.client_as(Service("billing")).await?;
    /// billing.publish_acknowledged("invoices.paid", "4711").await?;
    /// assert!(broker.client().await?.publish_acknowledged("invoices.paid", "4711").await.is_err());
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Cancel safety
    ///
    /// A dropped call leaves no client and no connection.
    pub async fn client_as<T: Send + Sync + 'static>(&self, identity: T) -> Result<Client, ConnectError> {
        self.client_over(IdentityRouter(Mutex::new(Some(identity)))).await
    }

    async fn client_over(&self, fallback: impl Router) -> Result<Client, ConnectError> {
        self.check().map_err(|error| ConnectError::Setting(error.into()))?;
        let (ours, theirs) = duplex(BUFFER_LEN);
        let server = Server::builder(self.over(fallback)).without_listener();
        server.attach(theirs);
        Client::builder().base(self.base()).attach_and_keep(ours, server).await
    }
}

/// Attaches a value to the only connection of this router.
struct IdentityRouter<T>(Mutex<Option<T>>);

impl<T: Send + Sync + 'static> Router for IdentityRouter<T> {
    fn event(&self, connection: &Connection, event: Event<'_>) {
        let Event::Opened = event else { return };
        let identity = lock(&self.0).take();
        // Cannot fail: a new connection has no value of this type.
        let _ = identity.map(|identity| connection.set_state(identity).is_ok());
    }

    async fn route(&self, _: Packet, _: &Connection) -> Outcome {
        Outcome::Nothing
    }
}

const BUFFER_LEN: usize = 64 * 1024;
