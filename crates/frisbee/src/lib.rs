//! placeholder
mod config;
mod error;
mod packet;
pub mod proto;

#[cfg(feature = "tokio")]
mod address;
#[cfg(feature = "tokio")]
mod client;
#[cfg(feature = "tokio")]
mod connection;
#[cfg(feature = "tokio")]
mod driver;
#[cfg(feature = "tokio")]
mod raw;
#[cfg(feature = "tokio")]
mod router;
#[cfg(feature = "tokio")]
mod secure;
#[cfg(feature = "tokio")]
mod server;
#[cfg(feature = "tokio")]
mod stream;
#[cfg(feature = "tls")]
mod tls;

pub use config::Config;
pub use error::{CloseReason, ProtocolError, SendError};
pub use packet::{Operation, Packet};
pub use proto::{HeaderFormat, OpenError, StreamEnd};

#[cfg(feature = "tokio")]
pub use self::{
    address::{Address, ToAddress},
    client::{Client, ConnectError},
    connection::{Connection, ConnectionMetrics},
    raw::Raw,
    router::{Dispatch, Outcome, Router, Table},
    server::{Engine, Server, ServerBuilder, ServerMetrics, SocketOptions},
    stream::{Stream, StreamReader, StreamSender},
};

/// The rustls that [`Client::tls`] and [`ServerBuilder::tls`] take configurations of.
#[cfg(feature = "tls")]
pub use tokio_rustls::rustls;
