//! A client of a broker in the same process.

use frisbee::Server;
use tokio::io::duplex;

use crate::{Broker, Client, ConnectError};

impl Broker {
    /// Returns a client of the broker in the same process, which subscribes as any other does. What it publishes may have to wait for
    /// credit, as that of others. The broker's decisions on what is allowed are made for its connection too.
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
    /// Nothing is left of a dropped call.
    pub async fn client(&self) -> Result<Client, ConnectError> {
        self.check().map_err(|error| ConnectError::Setting(error.into()))?;
        let (ours, theirs) = duplex(BUFFER_LEN);
        let server = Server::builder(self.router()).without_listener();
        server.attach(theirs);
        Client::builder().base(self.base()).attach_and_keep(ours, server).await
    }
}

const BUFFER_LEN: usize = 64 * 1024;
