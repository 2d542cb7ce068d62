//! Publish and subscribe over a NATS cluster, with the [`Client`](frisbee_pubsub::Client) of `frisbee-pubsub`.
//!
//! A program switches between a broker on frisbee and a NATS cluster by its configuration. Only the address changes.
//!
//! ```no_run
//! # async fn example(url: &str) -> Result<(), Box<dyn std::error::Error>> {
//! // "tcp://localhost:7300", or "tls://one:4222,tls://two:4222?credentials=/run/app.creds"
//! let client = frisbee_pubsub_nats::connect(url).await?;
//! let mut orders = client.subscribe("orders.*.created").await?;
//! client.publish("orders.eu.created", "one for Ada").await?;
//! println!("{:?}", orders.next_message().await);
//! # Ok(())
//! # }
//! ```
//!
//! # Stored messages
//!
//! [`Nats::make_stream`] creates a stream, which stores messages in the cluster. [`Nats::durable`] reads them from any
//! starting point and, after a restart, from the last position. Delivery is at least once: a message is redelivered
//! until it is acknowledged.
//!
//! [`DurableBuilder::serve`] turns a durable subscription into the response stream of a call, with the caller's requests as
//! acknowledgements. [`DurableBuilder::serve_taken`] does so for calls without a request stream.
//!
//! # Brokers and a cluster
//!
//! [`Nats::bridge`] forwards messages between a broker on frisbee and a cluster. Clients stay connected to their
//! broker, and several brokers can exchange messages.
//!
//! # Differences from the broker on frisbee
//!
//! - Subscribers cannot hold up publishers. [`Policy::Block`](frisbee_pubsub::Policy::Block) acts like
//!   [`Disconnect`](frisbee_pubsub::Policy::Disconnect), and a window limits the messages buffered in this process.
//! - There are no retained values. Publishing with `retain` is an error.
//! - An acknowledgement contains no number of subscriptions. It means that the connected server has received the
//!   message or, for the subjects in [`NatsOptions::streams`], that the stream has stored it.
//! - [`Client::flush`](frisbee_pubsub::Client::flush) waits for the connected server, at most for
//!   [`acknowledge_max`](NatsOptions::acknowledge_max), and fails if the server refused a subject. On a busy machine, a late
//!   refusal is returned by the next flush. Acknowledged publishing and requests report refusals in the same way.
//! - A new subscription is known to the connected server. The other servers of the cluster learn of it a moment later.
//! - If a server dies, messages without an acknowledgement may be lost. Subscriptions resume with
//!   [`SubscriptionEvent::Reconnected`](frisbee_pubsub::SubscriptionEvent::Reconnected).
//! - A message with a longer or deeper subject than `frisbee-pubsub` allows is reported as missing. A durable
//!   subscription terminates it instead ([`Durable::unreadable`]), and the stream keeps it.
//! - A client needs permission to publish and subscribe to `_INBOX.>`.

mod bridge;
mod durable;
mod error;
mod nats;
mod options;
mod queue;
mod refusals;
mod source;
mod subscription;

pub use self::{
    bridge::{Bridge, BridgeBuilder, BridgeMetrics},
    durable::{Delivery, Durable, DurableBuilder, StartPosition, StreamOptions},
    error::{ConnectError, StreamError},
    nats::{Nats, connect},
    options::{Login, NatsOptions},
    source::{MessageReceipt, ServedMessage, ServedMessages},
};
