//! Server addresses and their protocols.

use std::{io, sync::LazyLock};

use frpc::{Address, ConnectSettings};
use http::{Uri, uri::Authority};

/// The protocols supported by the client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum RpcProtocol {
    Grpc,
    GrpcWeb,
    Connect,
    Twirp,
}

/// The schemes of addresses, each with its protocol and `true` for TLS.
const SCHEMES: [(&str, RpcProtocol, bool); 8] = [
    ("grpc", RpcProtocol::Grpc, false),
    ("grpcs", RpcProtocol::Grpc, true),
    ("http", RpcProtocol::Connect, false),
    ("https", RpcProtocol::Connect, true),
    ("grpc-web+http", RpcProtocol::GrpcWeb, false),
    ("grpc-web+https", RpcProtocol::GrpcWeb, true),
    ("twirp+http", RpcProtocol::Twirp, false),
    ("twirp+https", RpcProtocol::Twirp, true),
];

/// The scheme names, in the order of [`SCHEMES`].
pub(super) static SCHEME_NAMES: LazyLock<[&str; 8]> = LazyLock::new(|| SCHEMES.map(|(name, ..)| name));

/// A server, parsed from its address.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct ServerUrl {
    pub(super) protocol: RpcProtocol,
    pub(super) is_secure: bool,
    /// A name or an IP address, without brackets.
    pub(super) host: String,
    pub(super) port: u16,
    /// The host, and the port if the address contains one.
    pub(super) authority: Authority,
    /// The prefix of all method paths. Empty, or with a leading slash and without a trailing one.
    pub(super) path: String,
}

impl ServerUrl {
    /// Parses an address, such as `grpc://localhost:50051` or `https://example.org/api`.
    pub(super) fn parse(url: &str) -> io::Result<Self> {
        let invalid = |why: String| io::Error::new(io::ErrorKind::InvalidInput, format!("address {url:?}: {why}"));
        let (scheme, rest) = url.split_once("://").ok_or_else(|| invalid("expected SCHEME://HOST".to_owned()))?;
        let known = SCHEMES.iter().find(|(name, ..)| name.eq_ignore_ascii_case(scheme));
        let Some(&(_, protocol, is_secure)) = known else {
            return Err(invalid(format!("the schemes of frisbee-rpc-http are {}", SCHEME_NAMES.join(", "))));
        };
        // The rest has the same syntax for all schemes.
        let uri: Uri = format!("http://{rest}").parse().map_err(|error| invalid(format!("{error}")))?;
        let authority = uri.authority().cloned().ok_or_else(|| invalid("host missing".to_owned()))?;
        if authority.as_str().contains('@') {
            return Err(invalid(
                "an address cannot contain a user: send credentials as metadata, such as authorization".to_owned(),
            ));
        }
        if uri.query().is_some() || rest.contains('#') {
            return Err(invalid("'?' and '#' are not allowed in the address of a server".to_owned()));
        }
        let has_port = authority.as_str() != authority.host();
        let usual_port = if is_secure { 443 } else { 80 };
        let place = if has_port { authority.to_string() } else { format!("{authority}:{usual_port}") };
        let (host, port) =
            Address::split_host_port(&place).map_err(|_| invalid("expected SCHEME://HOST:PORT".to_owned()))?;
        let host = host.to_owned();
        let path = uri.path().trim_end_matches('/').to_owned();
        Ok(Self { protocol, is_secure, host, port, authority, path })
    }

    /// Uses the host name with which the channel has found the address.
    pub(super) fn name_host(&mut self, connect: &ConnectSettings) -> io::Result<()> {
        let authority = connect.authority(self.authority.as_str()).parse();
        self.authority = authority.map_err(|error| io::Error::new(io::ErrorKind::InvalidInput, error))?;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_has_a_protocol_host_port_and_path() {
        for (url, protocol, is_secure, host, port, path) in [
            ("grpc://localhost:50051", RpcProtocol::Grpc, false, "localhost", 50051, ""),
            ("GRPCS://example.org", RpcProtocol::Grpc, true, "example.org", 443, ""),
            ("http://127.0.0.1", RpcProtocol::Connect, false, "127.0.0.1", 80, ""),
            ("https://[::1]:7300/api/", RpcProtocol::Connect, true, "::1", 7300, "/api"),
            ("grpc-web+http://a/b/c", RpcProtocol::GrpcWeb, false, "a", 80, "/b/c"),
            ("twirp+https://a:1", RpcProtocol::Twirp, true, "a", 1, ""),
        ] {
            let target = ServerUrl::parse(url).unwrap();
            assert_eq!((target.protocol, target.is_secure), (protocol, is_secure), "{url}");
            assert_eq!((&*target.host, target.port, &*target.path), (host, port, path), "{url}");
        }
        assert_eq!(ServerUrl::parse("http://[::1]:7300").unwrap().authority, "[::1]:7300");
    }

    #[test]
    fn invalid_addresses_say_why() {
        for (url, why) in [
            ("localhost:80", "expected SCHEME://HOST"),
            ("ftp://localhost", "the schemes of frisbee-rpc-http are grpc, grpcs, http"),
            ("grpc://", "address"),
            ("grpc://:80", "expected SCHEME://HOST:PORT"),
            ("grpc://localhost:", "expected SCHEME://HOST:PORT"),
            ("grpc://localhost:+80", "expected SCHEME://HOST:PORT"),
            ("grpc://localhost:70000", "expected SCHEME://HOST:PORT"),
            ("http://me:secret@localhost", "an address cannot contain a user"),
            ("http://localhost/?q=1", "'?' and '#'"),
            ("http://localhost/#top", "'?' and '#'"),
        ] {
            let error = ServerUrl::parse(url).unwrap_err().to_string();
            assert!(error.contains(why), "{url}: {error}");
        }
    }
}
