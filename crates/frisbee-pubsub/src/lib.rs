//! Publish and subscribe over frisbee.
//!
//! A [`Client`] publishes messages under subjects and subscribes to patterns of subjects. A [`Broker`] is a frisbee
//! router. It delivers each message to the matching subscribers, and it can share a port and a connection with RPC
//! services. A client works through a [`Backend`], so you can replace the broker with another engine without changing
//! the code of publishers and subscribers.
//!
//! ```
//! use frisbee::Server;
//! use frisbee_pubsub::{Broker, Client};
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let server = Server::builder(Broker::new().router()).bind("tcp://127.0.0.1:0").await?;
//!
//! let shop = Client::connect(server.local_addr()).await?;
//! let accounting = Client::connect(server.local_addr()).await?;
//! let mut orders = accounting.subscribe("orders.*.created").await?;
//! shop.publish("orders.eu.created", "a book").await?;
//! assert_eq!(orders.next_message().await.unwrap().payload, "a book");
//! # Ok(())
//! # }
//! ```
//!
//! # Subscribers that do not keep up
//!
//! Each subscription has a window: a limit on the bytes in flight to the subscribing task or buffered on its side.
//! Further messages queue at the broker. When that queue is full too, the [`Policy`] of the subscription decides. The
//! broker counts every dropped message and reports it at its position in the stream ([`SubscriptionEvent::Missing`]). A slow or
//! lost subscriber delays no other client, unless its subscription asks for that ([`Policy::Block`]).
//!
//! Delivery is at most once: messages in flight on a broken connection are lost. If you need more, use a backend with
//! stored messages.
//!
//! # Features
//!
//! | feature | default | brings |
//! |---|---|---|
//! | `metrics` | no | `Broker::export_metrics`, for Prometheus and OpenTelemetry |
//! | `prost` | no | prost messages as [`Payload`]s of a [`Topic`] |
//!
//! # Limits
//!
//! A subject has at most [`SUBJECT_LEN_MAX`] bytes and [`DEPTH_MAX`] tokens. [`BrokerLimits`] names everything clients can
//! make grow at a broker. A client has at most 32,768 subscriptions, at most 256 of them with the same pattern, and at
//! most 16,384 unanswered acknowledgements. It drops messages sent without credit once a subscription buffers twice its
//! window.

mod broker;
mod client;
mod error;
#[cfg(fuzzing)]
#[doc(hidden)]
pub mod fuzzing;
mod local;
mod lock;
mod message;
mod remote;
mod subject;
mod sync;
mod topic;
mod trie;
mod wire;

pub use self::{
    broker::{Action, Authorize, Broker, BrokerBuilder, BrokerLimits, BrokerMetrics, BrokerRouter, PrefixMetrics},
    client::{Backend, BackendFuture, Client, EventSource, Subscribe, SubscribeOptions, Subscription},
    error::{PublishError, Refusal, RefusalCode, RequestError, SubscribeError, SubscriptionEnd, TryPublishError},
    message::{Message, Policy, Publication, SubscriptionEvent},
    remote::{ClientBuilder, ClientRouter, ConnectError},
    subject::{DEPTH_MAX, InvalidSubject, Pattern, SUBJECT_LEN_MAX, Subject},
    topic::{Payload, Topic, TopicEvent, TopicSubscription},
    wire::BASE,
};
