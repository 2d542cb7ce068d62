//! Alternatives to frpc, configured as their documentation recommends, with additional options that improve their
//! results.

use std::io;
use std::net::SocketAddr;

use tokio::net::{TcpListener, TcpSocket};

#[cfg(feature = "connect")]
pub mod connect;
#[cfg(any(feature = "hyper", feature = "tonic"))]
pub mod grpc;
pub mod http;
pub mod http2;
pub mod json_rpc;
#[cfg(feature = "tarpc")]
pub mod tarpc;

/// Listens with a backlog for thousands of connections, and prints the address.
pub fn listen(addr: SocketAddr) -> io::Result<TcpListener> {
    let socket = if addr.is_ipv4() { TcpSocket::new_v4()? } else { TcpSocket::new_v6()? };
    socket.set_reuseaddr(true)?;
    socket.bind(addr)?;
    let listener = socket.listen(BACKLOG)?;
    println!("listening on {}", listener.local_addr()?);
    Ok(listener)
}

const BACKLOG: u32 = 4096;
