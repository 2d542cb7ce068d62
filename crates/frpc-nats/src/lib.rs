//! Calls of [frpc](https://docs.rs/frisbee-rpc) with NATS, in two ways chosen by the address of a channel.
//!
//! | address | the calls go | for |
//! |---|---|---|
//! | `nats+direct://CLUSTER/SERVICE` | directly to servers found by their [`Announcement`] in a NATS cluster | speed, streams, large messages |
//! | `nats://CLUSTER/SERVICE` | through the NATS cluster, to one [`NatsServer`] of a queue group | networks without a direct path |
//!
//! Generated services and clients are the same for both, and for all other wires.
//!
//! A [`NatsServer`] is also a NATS service: `nats micro list` shows it, and the `micro` package of nats.go calls its unary
//! methods with JSON or Protobuf. A channel calls the services of other NATS clients as well. `docs/nats.md` in the
//! repository describes the subjects, headers and frames, and all limits.
//!
//! ```no_run
//! # use frpc::generated::{Answer, Call, Method, Service, Status};
//! # struct Echo;
//! # impl Service for Echo {
//! #     const NAME: &'static str = "Echo";
//! #     const METHODS: &'static [Method] = &[];
//! #     async fn call(&self, _: usize, call: Call) -> Result<Answer, Status> { call.unknown() }
//! # }
//! use frpc::{Channel, Server};
//! use frpc_nats::{Announcement, NatsCluster, NatsServer};
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let cluster = NatsCluster::new("nats://localhost:4222");
//!
//! // A server for both ways.
//! let server = Server::builder().add_service(Echo).bind("tcp://127.0.0.1:0").await?;
//! let announcement = Announcement::builder("echo", server.local_addr())?.start(&cluster).await?;
//! let through_nats = NatsServer::builder("echo").serve(&cluster, server.endpoint()).await?;
//!
//! // Clients of both ways.
//! let nats = frpc_nats::transport();
//! let direct = Channel::builder().resolver(nats.clone()).connect("nats+direct://localhost:4222/echo").await?;
//! let through = Channel::builder().transport(nats).connect("nats://localhost:4222/echo").await?;
//! # let _ = (direct, through, announcement, through_nats);
//! # Ok(())
//! # }
//! ```
//!
//! # Reliability
//!
//! NATS delivers a message at most once. A lost request or answer shows as
//! [`DeadlineExceeded`](frpc::Code::DeadlineExceeded), and a lost part of a stream as
//! [`Unavailable`](frpc::Code::Unavailable), within seconds. Without a server, a call fails immediately with `Unavailable`
//! and was certainly not executed. Direct calls do not depend on the cluster once their servers are found.
#![forbid(unsafe_code)]

mod announce;
mod client;
mod cluster;
mod frame;
mod headers;
mod micro;
mod names;
mod resolve;
mod schemes;
mod serve;
mod settings;
mod stream;

pub use self::{
    announce::{Announcement, AnnouncementBuilder},
    cluster::NatsCluster,
    schemes::{NatsTransport, register, transport},
    serve::{NatsServer, NatsServerBuilder},
    settings::NatsSettings,
};
