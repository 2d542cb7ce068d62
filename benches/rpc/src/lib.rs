//! The same echo service on frpc and on tonic, with the same messages, each over loopback TCP with `TCP_NODELAY`.

pub mod callgrind;
mod grpc_in_memory;
pub mod in_memory;
mod over_frpc;
mod over_tonic;
mod pair;

use std::{future::Future, net::SocketAddr};

pub use grpc_in_memory::{GrpcServing, connected_by_grpc};
pub use over_frpc::{OverFrpc, Service, plain, with_metadata};
pub use over_tonic::{OverTonic, TonicStreaming};
pub use pair::Pair;

/// Code generated from `proto/echo.proto`.
pub mod schema {
    #![allow(missing_docs, reason = "generated")]
    frpc::include_proto!("echo");
}

/// A connection to the echo service. Clones share it.
pub trait Echo: Clone + Send + Sync + 'static {
    /// The name of the contender.
    const NAME: &'static str;

    /// Starts a server on the current runtime and returns its address.
    fn serve() -> impl Future<Output = SocketAddr> + Send;

    /// Connects to a server.
    fn connect(addr: SocketAddr) -> impl Future<Output = Self> + Send;

    /// Makes a unary call.
    fn once(&mut self, text: String) -> impl Future<Output = String> + Send;

    /// Reads a stream of `count` messages, and returns the number received.
    fn repeat(&mut self, text: String, count: u32) -> impl Future<Output = u32> + Send;

    /// Sends a stream of `count` messages while reading the stream of answers. Returns the number of answers.
    fn each(&mut self, text: String, count: u32) -> impl Future<Output = u32> + Send;
}

/// Returns a message text of this length.
pub fn text(len: usize) -> String {
    "x".repeat(len)
}
