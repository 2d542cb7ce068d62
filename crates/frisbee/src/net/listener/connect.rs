//! Connecting to every kind of address.

use std::io;

#[cfg(unix)]
use tokio::net::UnixStream;

use super::{
    mem::{MEM_BUFFER_LEN, mem_listeners},
    resolve::resolve,
};
use crate::{
    Address,
    net::{options::SocketOptions, wire::IoStream},
};

/// Connects once. If a name has several addresses, successive attempts start with different ones.
pub(crate) async fn connect(
    address: &Address,
    options: &SocketOptions,
    attempt: usize,
) -> io::Result<(IoStream, Address, Address)> {
    match address {
        Address::Tcp(_) | Address::Host { .. } => {
            let mut last = io::Error::new(io::ErrorKind::NotFound, "the name has no address");
            let mut addrs = resolve(address).await?;
            let first = attempt.checked_rem(addrs.len()).unwrap_or(0);
            addrs.rotate_left(first);
            for addr in addrs {
                match options.connect(addr).await {
                    Ok(socket) => {
                        let local = socket.local_addr()?;
                        return Ok((IoStream::Tcp(socket), Address::Tcp(local), Address::Tcp(addr)));
                    }
                    Err(error) => last = error,
                }
            }
            Err(last)
        }
        #[cfg(unix)]
        Address::Unix(path) => {
            Ok((IoStream::Unix(UnixStream::connect(path).await?), Address::Unnamed, address.clone()))
        }
        #[cfg(target_os = "linux")]
        Address::Abstract(name) => {
            // Tokio treats a leading zero byte as the abstract namespace.
            let socket = UnixStream::connect(format!("\0{name}")).await?;
            Ok((IoStream::Unix(socket), Address::Unnamed, address.clone()))
        }
        Address::Mem(name) => {
            let (ours, theirs) = tokio::io::duplex(MEM_BUFFER_LEN);
            let listener = mem_listeners(|all| all.get(name).cloned());
            let refused = || io::Error::new(io::ErrorKind::ConnectionRefused, format!("no listener on {address}"));
            listener.ok_or_else(refused)?.send(theirs).await.map_err(|_| refused())?;
            Ok((IoStream::Mem(ours), Address::Unnamed, address.clone()))
        }
        _ => Err(address.unsupported()),
    }
}
