//! Publish and subscribe on frisbee.
//!
//! A [`Client`] publishes messages under subjects, and subscribes to patterns of them. A [`Broker`] is a router of frisbee that hands them
//! on; it can stand beside RPC services on one port and one connection. Behind the client is a [`Backend`], so that another engine can take
//! over from the broker without a change to the code that uses it.
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
//! Each subscription has a window: what may be on its way to the task that takes its messages, or wait there. What is beyond waits at the
//! broker, and when its room is full as well, the [`Policy`] of the subscription decides. Every message that is dropped is counted, and
//! told at its place by [`Event::Missing`]. A subscriber that is slow, or gone, holds up nobody else, unless it asked for that
//! ([`Policy::Block`]).
//!
//! Messages that a connection loses when it breaks are not kept: delivery is at most once. Those who need more take a backend that stores messages.
//!
//! # Features
//!
//! | feature | default | brings |
//! |---|---|---|
//! | `prost` | no | messages of prost as [`Payload`]s of a [`Topic`] |
//!
//! # Limits
//!
//! A subject has at most [`SUBJECT_LEN_MAX`] bytes and [`DEPTH_MAX`] tokens. Everything that clients can make grow at a broker has a name in
//! [`Limits`]. A client has at most 32,768 subscriptions, of which 256 have the same pattern, and waits for 16,384 acknowledgements at
//! once; what a broker sends without credit is dropped beyond twice the window.

mod broker;
mod client;
mod error;
#[cfg(fuzzing)]
#[doc(hidden)]
pub mod fuzzing;
mod local;
mod message;
mod remote;
mod subject;
mod topic;
mod trie;
mod wire;

pub use self::{
    broker::{Action, Authorize, Broker, BrokerBuilder, BrokerRouter, Limits, Metrics, PrefixMetrics},
    client::{Backend, BackendFuture, Client, Events, Subscribe, SubscribeOptions, Subscription},
    error::{PublishError, Refusal, RefusalCode, RequestError, SubscribeError, SubscriptionEnd, TryPublishError},
    message::{Event, Message, Policy, Publication},
    remote::{ClientBuilder, ConnectError, Inbox},
    subject::{DEPTH_MAX, InvalidSubject, Pattern, SUBJECT_LEN_MAX, Subject},
    topic::{Payload, Topic, TopicEvent, TopicSubscription},
    wire::BASE,
};
