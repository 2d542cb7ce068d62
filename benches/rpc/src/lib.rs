//! The same echo service by frpc and by tonic, with the same messages, each on loopback TCP with `TCP_NODELAY`.

pub mod in_memory;
mod over_frpc;
mod over_tonic;
mod pair;

use std::{future::Future, net::SocketAddr};

pub use over_frpc::{OverFrpc, Service, plain, with_metadata};
pub use over_tonic::OverTonic;
pub use pair::Pair;

/// Made of `proto/echo.proto`.
pub mod schema {
    #![allow(missing_docs, reason = "generated")]
    frpc::include_proto!("echo");
}

/// A connection to the echo service. Clones share it.
pub trait Echo: Clone + Send + Sync + 'static {
    /// The name of the contender.
    const NAME: &'static str;

    /// Serves on the current runtime, and says where.
    fn serve() -> impl Future<Output = SocketAddr> + Send;

    /// Connects to what serves there.
    fn connect(addr: SocketAddr) -> impl Future<Output = Self> + Send;

    /// Makes a unary call.
    fn once(&mut self, text: String) -> impl Future<Output = String> + Send;

    /// Reads a stream of so many messages, and returns how many came.
    fn repeat(&mut self, text: String, count: u32) -> impl Future<Output = u32> + Send;

    /// Sends a stream of so many messages while reading that of the answers, and returns how many came.
    fn each(&mut self, text: String, count: u32) -> impl Future<Output = u32> + Send;
}

/// A message of so many bytes.
pub fn text(len: usize) -> String {
    "x".repeat(len)
}
