//! Publish and subscribe over a NATS cluster, with the [`Client`](frisbee_pubsub::Client) of `frisbee-pubsub`.
//!
//! A program moves from a broker on frisbee to a cluster, and back, by its configuration: everything but the address stays.
//!
//! ```no_run
//! # async fn example(url: &str) -> Result<(), Box<dyn std::error::Error>> {
//! // "tcp://localhost:7300", or "tls://one:4222,tls://two:4222?credentials=/run/app.creds"
//! let client = frisbee_nats::connect(url).await?;
//! let mut orders = client.subscribe("orders.*.created").await?;
//! client.publish("orders.eu.created", "one for Ada").await?;
//! println!("{:?}", orders.next_message().await);
//! # Ok(())
//! # }
//! ```
//!
//! # Messages that are kept
//!
//! [`Nats::make_stream`] has a cluster keep messages, [`Nats::durable`] reads them: from any point on, and from where it was after a
//! restart. Each message comes until it is acknowledged: at least once.
//!
//! # Brokers and a cluster
//!
//! [`Nats::bridge`] hands messages between a broker on frisbee and a cluster: clients stay where they are, and brokers hear each other.
//!
//! # Differences from the broker on frisbee
//!
//! - Publishers are not held up by subscribers: [`Policy::Block`](frisbee_pubsub::Policy::Block) acts as
//!   [`Disconnect`](frisbee_pubsub::Policy::Disconnect). A window bounds what waits in this process.
//! - Nothing is retained: publishing with `retain` is an error.
//! - An acknowledgement does not say how many subscriptions there are, and means that the server that this client is connected to
//!   has the message; of subjects that a stream keeps ([`Options::streams`]), that the stream has stored it.
//! - [`Client::flush`](frisbee_pubsub::Client::flush) waits until messages have left this process. What a server refuses of them is in the
//!   log.
//! - A subscription is known to the server that this client is connected to when it is ready. The others learn of it a moment later.
//! - A server that dies takes messages with it that nobody acknowledged. Subscriptions go on by themselves, with
//!   [`Event::Reconnected`](frisbee_pubsub::Event::Reconnected).
//! - Messages whose subject is longer or deeper than those of `frisbee-pubsub` may be are told as missing. A durable subscription
//!   terminates them ([`Durable::unreadable`]); the stream keeps them.
//! - A client needs the right to publish and to subscribe to `_INBOX.>`.

mod bridge;
mod durable;
mod error;
mod nats;
mod options;
mod queue;
mod subscription;

pub use self::{
    bridge::{Bridge, BridgeBuilder, BridgeMetrics},
    durable::{Delivery, Durable, DurableBuilder, Start, StreamOptions},
    error::{ConnectError, StreamError},
    nats::{Nats, connect},
    options::{Login, Options},
};
