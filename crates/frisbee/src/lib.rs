//! A messaging framework for custom protocols.
//!
//! A [`Packet`] has an id, an [`Operation`] number of your choice and content. A [`Server`] or [`Client`] passes
//! each received packet to a [`Router`], the one trait of a protocol. A router can implement request and reply,
//! publish and subscribe, a metrics push or a proxy. Frisbee does the rest: zero-copy framing, batched writes,
//! heartbeats, limits, TLS and shutdown. A [`Connection`] can also carry [`Stream`]s, and can be [taken
//! over](Connection::takeover) as the plain byte stream below it.
//!
//! The wire format is compatible with frisbee-go, in both header formats. Programs in Go and Rust can talk to each
//! other.
//!
#![cfg_attr(feature = "tokio", doc = "```")]
#![cfg_attr(not(feature = "tokio"), doc = "```ignore")]
//! use std::time::Duration;
//!
//! use frisbee::{Client, Operation, Packet, Server, HandlerTable};
//!
//! const ECHO: Operation = Operation::new(20).unwrap();
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let router = HandlerTable::new().on(ECHO, async |packet: Packet| packet);
//! let server = Server::builder(router).bind("tcp://127.0.0.1:0").await?;
//!
//! let (replies, mut inbox) = tokio::sync::mpsc::unbounded_channel();
//! let router = HandlerTable::new().on(ECHO, move |reply: Packet| {
//!     let replies = replies.clone();
//!     async move { replies.send(reply).unwrap() }
//! });
//! let connection = Client::new(router).connect(server.local_addr()).await?;
//! connection.send(Packet::new(1, ECHO, "hello")).await?;
//! assert_eq!(inbox.recv().await.unwrap().content, "hello");
//! server.shutdown(Duration::from_secs(5)).await;
//! # Ok(())
//! # }
//! ```
//!
//! # Limits
//!
//! Everything a peer can grow has a named bound. [`Config`] has the bounds of a connection,
//! [`ServerLimits`] the bounds of a server. A peer that
//! breaks a rule of the wire format loses its connection, with a [`CloseReason`] that names the rule.
//!
//! # Features
//!
//! | feature | default | adds |
//! |---|---|---|
//! | `tokio` | yes | clients, servers, connection handles |
//! | `tls` | yes | TLS through rustls, from PEM ([`ServerTls`], [`ClientTls`]) or a custom configuration |
//! | `tls-ring` | no | ring as the crypto provider for TLS from PEM, unless the process has installed another |
//! | `tls-native-roots` | no | the root certificates of the operating system, for clients |
//! | `uring` | no | the io_uring [`Engine`]s, on Linux kernels that allow io_uring |
//!
//! Without any feature, the crate is only [`proto`]: the protocol without I/O, for custom drivers.

#[cfg(all(feature = "tokio", target_family = "wasm"))]
extern crate frisbee_wasm as tokio;

#[doc(hidden)]
pub mod clock;
mod config;
mod content;
mod error;
mod packet;
pub mod proto;

#[cfg(feature = "tokio")]
mod address;
#[cfg(feature = "tokio")]
mod arrival;
#[cfg(feature = "tokio")]
mod backoff;
#[cfg(feature = "tokio")]
mod client;
#[cfg(feature = "tokio")]
mod connection;
#[cfg(feature = "tokio")]
mod driver;
#[cfg(feature = "tokio")]
mod engine;
#[cfg(feature = "tokio")]
mod lazy_map;
#[cfg(feature = "tokio")]
mod net;
#[cfg(feature = "tls")]
mod pem;
#[cfg(feature = "tokio")]
mod reconnect;
#[cfg(feature = "tls")]
mod reload;
#[cfg(feature = "tokio")]
mod router;
#[cfg(feature = "tokio")]
mod server;
#[cfg(feature = "tokio")]
mod sync;
#[cfg(feature = "tokio")]
#[doc(hidden)]
pub mod task;
#[cfg(feature = "tls")]
mod tls;

pub use config::{Config, OutboxLimit, WhenFull};
pub use content::Content;
pub use error::{
    CloseReason, InvalidSetting, OpenError, ProtocolError, SendError, StreamEnd, StreamSendError, TrySendError,
};
pub use packet::{Operation, Packet, PacketName};
pub use proto::{FrameBuffer, Frames, GoAway, HeaderFormat, Hello, PeerProtocol};

#[cfg(feature = "tokio")]
pub use self::{
    address::{Address, ToAddress},
    backoff::{Backoff, ConnectRetry},
    client::{Client, ConnectError},
    connection::{Connection, ConnectionMetrics, SendPosition, Stream, StreamReader, StreamSender},
    driver::HandlerPermit,
    engine::Engine,
    net::{FlowState, FrameCount, FrameCounts, ListenOn, ListenTarget, PeerCredentials, Raw, RingError, SocketOptions},
    reconnect::{NotSent, ReconnectState, ReconnectStates, Reconnecting, ReconnectingClient},
    router::{
        Arrivals, Dispatch, Event, HandlerTable, Outcome, RefusalReason, RefusedPacket, Router, RouterInfo, SendOrder,
    },
    server::{
        ConnectionInfo, Drain, Protocol, ProtocolMatch, Server, ServerBuilder, ServerLimits, ServerMetrics,
        ServerObserver,
    },
};

#[cfg(feature = "tokio")]
#[doc(hidden)]
pub use self::driver::keep_freed_memory;
#[cfg(all(feature = "tokio", unix))]
pub use self::net::{Handover, SystemdListeners};
#[cfg(feature = "tls")]
pub use self::pem::{ClientTls, Pem, ServerTls, TlsError, TlsName};
#[cfg(all(feature = "tokio", loom))]
#[doc(hidden)]
pub use self::{connection::ConnectionModel, sync::Notify};

/// The version of rustls for configurations passed to [`Client::tls`] and [`ServerBuilder::tls`].
#[cfg(feature = "tls")]
pub use tokio_rustls::rustls;
