//! Name resolution.

use std::{io, net::SocketAddr};

use tokio::net::lookup_host;

use crate::Address;

pub(super) async fn resolve(address: &Address) -> io::Result<Vec<SocketAddr>> {
    match address {
        // RFC 6761 guarantees that this domain has no names. Some resolvers answer anyway.
        Address::Host { name, .. } if name.trim_end_matches('.').ends_with(".invalid") => {
            Err(io::Error::new(io::ErrorKind::NotFound, "names in the domain `invalid` do not exist"))
        }
        Address::Host { name, port } => match lookup_host((name.as_str(), *port)).await {
            Ok(addrs) => Ok(addrs.collect()),
            Err(error) if is_unknown(&error) => Err(io::Error::new(io::ErrorKind::NotFound, error)),
            Err(error) => Err(error),
        },
        _ => Ok(address.socket_addr().into_iter().collect()),
    }
}

/// Returns `true` if the resolver reports a nonexistent name, and `false` for a failure of the resolver.
///
/// The standard library keeps only the text of `gai_strerror`. The texts here are those of glibc, musl and macOS.
/// Windows has a code.
fn is_unknown(error: &io::Error) -> bool {
    const WORDS: [&str; 5] = [
        "Name or service not known",
        "No address associated with hostname",
        "Name does not resolve",
        "Name has no usable address",
        "nodename nor servname provided, or not known",
    ];
    const WSAHOST_NOT_FOUND: i32 = 11001;
    let text = error.to_string();
    error.raw_os_error() == Some(WSAHOST_NOT_FOUND) || WORDS.iter().any(|words| text.contains(words))
}
