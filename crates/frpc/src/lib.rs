//! RPC from ordinary proto3 files, in the wire format of [frpc-go](https://github.com/loopholelabs/frpc-go).
//!
//! `frisbee-rpc-build` generates messages, async service traits and clients in `build.rs`, without `protoc`. The API is
//! familiar to users of tonic. A [`Server`] serves services at an address. A [`Channel`] is a connection to a server,
//! shared by any number of generated clients; it reconnects when necessary.
//!
//! # A first service
//!
//! The proto file is `proto/echo.proto`:
//!
//! ```proto
//! syntax = "proto3";
//! package echo;
//!
//! message Words { string text = 1; }
//!
//! service Parrot { rpc Say(Words) returns (Words); }
//! ```
//!
//! `build.rs` calls `frpc_build::compile_protos("proto/echo.proto")`. The program needs the packages
//! `frisbee-rpc` (this library) and `tokio`, and `frisbee-rpc-build` as a build dependency:
//!
//! ```
//! # mod echo { include!(concat!(env!("CARGO_MANIFEST_DIR"), "/generated/echo.rs")); }
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
//! # Where to look
//!
//! | for | see |
//! |---|---|
//! | serving | [`ServerBuilder`], [`Services`], [`CallSettings`] |
//! | several wires on one port | [`ServerBuilder::wire`] |
//! | calling | [`Channel`], [`ChannelBuilder`], [`ChannelCallSettings`] |
//! | several servers, retries | [`Target`], [`fleet`] |
//! | metadata, peers | [`Request`], [`Response`], [`Metadata`] |
//! | deadlines of callers | [`Request::set_timeout`], [`ChannelBuilder::timeout`] |
//! | deadlines of handlers | [`Request::deadline`], [`TimeLimits`] in the [`CallSettings`] |
//! | streams of messages | [`Streaming`], [`StreamSender`] |
//! | errors | [`Status`], [`Code`], [`CallError`] |
//! | field masks | [field_mask], with `configure().field_masks(true)` |
//! | lists in pages | [pages], with `configure().pages(true)` |
//! | error enums as statuses | the derives of the crate `frisbee-rpc-types` |
//! | error details such as `BadRequest` | [`Status::details`] as bytes; typed in the crate `frisbee-rpc-types` |
//! | middleware | [`Layer`], [`interceptor`], ready-made [layers], tower with the feature `tower` |
//! | gRPC, gRPC-Web, Connect, Twirp, WebSocket | the crates `frisbee-rpc-http` and `frisbee-rpc-websocket` |
//! | JSON-RPC, plain functions as endpoints | the crate `frisbee-rpc-jsonrpc` |
//! | health checks, reflection | the crate `frisbee-rpc-services` |
//! | metrics and traces for OpenTelemetry | the crate `frisbee-rpc-opentelemetry` |
//! | servers from an xDS control plane | the crate `frisbee-rpc-xds` |
//! | servers found in NATS, calls through NATS | the crate `frisbee-rpc-nats` |
//! | a protocol or transport of your own | [`Router`], [`Wire`], [`Transport`] |
//! | messages without generated types | [`Channel::call`], [codec] |
//! | tests without a socket, mocks, faults | [`testing`], [`Channel::in_process`] |
//!
//! # Streams
//!
//! A streaming method takes or returns a [`Streaming`], on both sides. Read it with [`message`](Streaming::message) or
//! as a [`Stream`](futures_core::Stream). Make one from a stream or an iterator, or feed one with a [`StreamSender`].
//! Dropping the sender ends the stream. Dropping the response stream cancels the call.
//!
//! A slow reader slows its sender down. Go peers have no flow control per stream: a stream from a Go peer is closed if
//! it is not read in time, and the other streams on the connection continue.
//!
//! # When a call fails
//!
//! A [`Status`] comes from the handler, or reports that no answer arrived. In the second case, [`Status::call_error`]
//! returns the reason and whether the request may have been executed. A channel retries a call only if it was certainly
//! not executed: it was never sent, or the server refused it while shutting down.
//!
//! # Other traffic on the same connection
//!
//! A frisbee [router](frisbee::Router) can handle all packets other than calls ([`ServerBuilder::router`]). Either side
//! can offer services to the other ([`ChannelBuilder::add_service`], [`Request::channel`]). A connection can also be
//! taken over as a plain byte stream ([`Channel::into_raw`]).
//!
//! # Features
//!
//! | feature | default | brings |
//! |---|---|---|
//! | `tls` | yes | TLS through rustls, from PEM (`ServerTls`, `ClientTls`) or with any rustls configuration |
//! | `tls-ring` | no | ring as the cryptography for TLS from PEM, unless the process has installed another provider |
//! | `tls-native-roots` | no | the certificate authorities of the operating system, for clients |
//! | `tower` | no | tower middleware as [layers] around calls |
//! | `lz4` | no | messages compressed with LZ4: [`CompressionSettings`] |
//! | `zstd` | no | messages compressed with Zstandard; needs a C compiler to build |
//! | `gzip` | no | messages compressed with gzip |
//! | `uring` | no | the [`Engine`] for connections on io_uring, if the Linux kernel allows it |
#![forbid(unsafe_code)]

#[cfg(target_family = "wasm")]
extern crate frisbee_wasm as tokio;

pub mod codec;
pub mod field_mask;
#[cfg(fuzzing)]
#[doc(hidden)]
pub mod fuzzing;
#[doc(hidden)]
pub mod generated;
pub mod inspect;

mod call;
mod channel;
pub mod client;
mod error;
pub mod fleet;
pub mod metrics;
pub mod pages;
mod server;
mod service;
pub mod testing;
mod wire;

pub use call::account::{MemoryAccount, MemoryHold};
pub use call::context::{Inherited, InheritedFuture};
pub use call::deadline::TimeLimits;
pub use call::exchange::{Answer, Body, Call};
pub use call::extensions::Extensions;
pub use call::head::{CancelGuard, Head};
pub use call::metadata::{InvalidMetadata, Metadata, MetadataValue};
pub use call::method::{MessageType, Method, MethodKind, MethodTypes};
pub use call::request::{IntoRequest, IntoStreaming, IntoStreamingRequest, Request, Response};
pub use call::status::{Code, Status};
pub use call::streaming::{MessageFrames, MetadataSlot, StreamSender, Streaming};
pub use call::system::RpcSystem;
pub use call::trace::{InvalidTrace, SpanId, TraceContext, TraceId};
pub use channel::{Channel, builder::ChannelBuilder, health::WatchHealth, settings::ChannelCallSettings};
pub use client::caller::Caller;
#[cfg(feature = "tls")]
pub use client::transport::ConnectTls;
pub use client::transport::{ByteStream, ConnectSettings, Connected, Transport, register_transport};
pub use error::{CallError, ConnectError, ServeError};
pub use fleet::{Target, ToTarget};
pub use server::{Server, ServerBuilder};
pub use service::boxed::BoxService;
pub use service::endpoint::{Endpoint, HandlerFuture, IntoEndpoint, MethodHandle};
pub use service::handle::Service;
pub use service::layer::{Interceptor, Layer, Layered, Next, interceptor};
pub use service::layers;
pub use service::services::{Services, Unimplemented};
pub use service::settings::{CallSettings, CompressionSettings, MessageSettings};
pub use service::table::Collision;
pub use wire::call_limit::{CallCounter, CallPermit};
pub use wire::frisbee::calling::connection::CallLimitPolicy;
pub use wire::frisbee::calling::reconnecting::LostMetadata;
pub use wire::peer::WirePeer;
pub use wire::server_wire::Wire;

pub use frisbee::{
    self, Address, CloseReason, Config, ConnectRetry, Connection, Dispatch, Drain, Engine, Event, GoAway,
    HandlerPermit, HandlerTable, InvalidSetting, ListenOn, ListenTarget, Operation, Outcome, Packet, PeerCredentials,
    ProtocolMatch, Raw, RefusalReason, RefusedPacket, Router, ServerLimits, SocketOptions, ToAddress,
};

#[cfg(feature = "tls")]
pub use frisbee::{ClientTls, Pem, ServerTls, TlsError, TlsName};
#[cfg(unix)]
pub use frisbee::{Handover, SystemdListeners};

#[doc(hidden)]
pub use call::shown::shown;
#[doc(hidden)]
pub use {prost, prost_types};

/// Includes the generated code of one package: `frpc::include_proto!("pkg.name")`, with `"_"` for files without a
/// package.
#[macro_export]
macro_rules! include_proto {
    ($package:tt) => {
        include!(concat!(env!("OUT_DIR"), "/", $package, ".rs"));
    };
}

/// Includes all generated code, each package in a module of its name: `frpc::include_protos!();`
#[macro_export]
macro_rules! include_protos {
    () => {
        include!(concat!(env!("OUT_DIR"), "/_includes.rs"));
    };
}
