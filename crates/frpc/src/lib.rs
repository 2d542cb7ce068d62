//! RPC from ordinary proto3 files, in the wire format of frpc-go.
//!
//! `frpc-build` makes messages, service traits and clients from `build.rs`. The messages are prost structs; beside them
//! stands the [codec] that fRPC speaks on the wire. A service is a trait with async methods, served by a [`Server`]; a
//! client is made from a [`Channel`], which is one connection for any number of clients and calls.
//!
//! ```
//! # mod echo { include!(concat!(env!("CARGO_MANIFEST_DIR"), "/../frpc-build/tests/golden/echo/echo.rs")); }
//! # /*
//! mod echo {
//!     frpc::include_proto!("echo");
//! }
//! # */
//! use echo::{Words, parrot_client::ParrotClient, parrot_server::{Parrot, ParrotServer}};
//! use frpc::{Request, Response, Server, Status};
//!
//! struct Polly;
//!
//! impl Parrot for Polly {
//!     async fn say(&self, request: Request<Words>) -> Result<Response<Words>, Status> {
//!         Ok(request.into_inner().into())
//!     }
//! }
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let server = Server::builder().add_service(ParrotServer::new(Polly)).bind("tcp://127.0.0.1:0").await?;
//!
//! let client = ParrotClient::connect(server.local_addr()).await?;
//! let answer = client.say(Words { text: "hello".to_owned() }).await?;
//! assert_eq!(answer.get_ref().text, "hello");
//! # Ok(())
//! # }
//! ```
//!
//! # Streams
//!
//! A method that takes or returns a stream has a [`Streaming`] in that place, on both sides: read it with
//! [`message`](Streaming::message) or as a [`Stream`](futures_core::Stream), make one from any stream or iterator, or
//! feed one with a [`StreamSender`]. Dropping the sender ends a stream; dropping what the call returned cuts the call
//! off. A reader that is slow slows its sender down. Go peers know no flow control for a single stream: one of theirs that
//! is not read in time is closed, and the others go on.
//!
//! # When a call fails
//!
//! A [`Status`] is either the answer of the handler, or made on this side because the call did not come through; then
//! [`Status::call_error`] says why, and whether the request may have been executed. Calls are never repeated by
//! themselves unless it is certain that they never left.
//!
//! # Other traffic on the same connection
//!
//! Any frisbee [router](frisbee::Router) can take the packets that are no calls ([`ServerBuilder::router`]), either side
//! can offer services to the other ([`ChannelBuilder::add_service`], [`Request::channel`]), and a connection can be taken
//! back as a plain byte stream ([`Channel::into_raw`]).
//!
//! # Features
//!
//! | feature | default | brings |
//! |---|---|---|
//! | `tls` | yes | TLS through rustls, from PEM (`ServerTls`, `ClientTls`) or with any configuration of yours |
//! | `tls-ring` | no | ring as the cryptography of TLS from PEM, unless the process has installed another |
//! | `tls-native-roots` | no | the authorities that the operating system trusts, for clients |
//! | `tower` | no | middleware of tower as [layers] around calls |
//! | `lz4` | no | messages compressed with LZ4: [`ServerBuilder::send_compressed`], [`ChannelBuilder::send_compressed`] |
//! | `zstd` | no | messages compressed with Zstandard; needs a C compiler to build |
//! | `gzip` | no | messages compressed with gzip |
//! | `uring` | no | the [`Engine`] that serves connections on io_uring, where Linux allows it |
#![forbid(unsafe_code)]

pub mod codec;
#[cfg(fuzzing)]
#[doc(hidden)]
pub mod fuzzing;
#[doc(hidden)]
pub mod generated;

mod call;
mod channel;
pub mod client;
mod error;
mod server;
mod service;
mod wire;

pub use call::account::{MemoryAccount, MemoryHold};
pub use call::context::Inherited;
pub use call::deadline::Times;
pub use call::exchange::{Answer, Body, Call};
pub use call::extensions::Extensions;
pub use call::head::{CancelGuard, Head};
pub use call::metadata::{InvalidMetadata, Metadata, MetadataValue};
pub use call::method::{MessageType, Method, MethodKind, MethodTypes};
pub use call::request::{IntoRequest, IntoStreaming, IntoStreamingRequest, Request, Response};
pub use call::status::{Code, Status};
pub use call::streaming::{MetadataSlot, StreamSender, Streaming};
pub use channel::{Channel, builder::ChannelBuilder};
pub use client::caller::Caller;
#[cfg(feature = "tls")]
pub use client::transport::ConnectTls;
pub use client::transport::{ByteStream, ConnectSettings, Connected, Transport, register_transport};
pub use error::{CallError, ConnectError, ServeError};
pub use server::{Server, ServerBuilder};
pub use service::boxed::BoxService;
pub use service::endpoint::{Endpoint, Found, IntoEndpoint};
pub use service::handle::Service;
pub use service::layer::{Interceptor, Layer, Layered, Next, interceptor};
pub use service::layers;
pub use service::services::{Services, Unimplemented};
pub use service::table::Collision;
pub use wire::frisbee::client::WhenFull;
pub use wire::frisbee::reconnect::LostMetadata;
pub use wire::peer::Peer;
pub use wire::server_wire::Wire;

pub use frisbee::{
    self, Address, CloseReason, Config, Connection, Dispatch, Drain, Engine, GoAway, InvalidSetting, ListenOn,
    ListenTarget, Operation, Outcome, Packet, PeerCredentials, Raw, Recognized, Refusal, Refused, Router,
    SocketOptions, Table, ToAddress,
};

#[cfg(feature = "tls")]
pub use frisbee::{ClientTls, Pem, ServerTls, TlsError, TlsName};

#[doc(hidden)]
pub use {prost, prost_types};

/// Includes what `frpc-build` made of one package: `frpc::include_proto!("pkg.name")`, with `"_"` for files without one.
#[macro_export]
macro_rules! include_proto {
    ($package:tt) => {
        include!(concat!(env!("OUT_DIR"), "/", $package, ".rs"));
    };
}

/// Includes everything that `frpc-build` made, each package in the module of its name: `frpc::include_protos!();`
#[macro_export]
macro_rules! include_protos {
    () => {
        include!(concat!(env!("OUT_DIR"), "/_includes.rs"));
    };
}
