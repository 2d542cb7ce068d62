//! WebSocket URLs.

use std::io;

use frpc::Address;
use http::{Uri, uri::Authority};

/// A parsed WebSocket URL.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct WebSocketUrl {
    pub(super) is_secure: bool,
    /// A host name or an IP address without brackets.
    pub(super) host: String,
    pub(super) port: u16,
    /// The host, and the port if the URL contains one.
    pub(super) authority: Authority,
    /// The path and query.
    pub(super) path: String,
}

impl WebSocketUrl {
    /// Parses a URL such as `ws://localhost:7300` or `wss://example.org/chat?room=7`.
    pub(super) fn parse(url: &str) -> io::Result<Self> {
        let invalid = |why: &str| io::Error::new(io::ErrorKind::InvalidInput, format!("address {url:?}: {why}"));
        let (scheme, rest) = url.split_once("://").ok_or_else(|| invalid("expected ws://HOST or wss://HOST"))?;
        let is_secure = match scheme.to_ascii_lowercase().as_str() {
            "ws" => false,
            "wss" => true,
            _ => return Err(invalid("expected ws://HOST or wss://HOST")),
        };
        let uri: Uri = format!("http://{rest}").parse().map_err(|error| invalid(&format!("{error}")))?;
        let authority = uri.authority().cloned().ok_or_else(|| invalid("host missing"))?;
        if authority.as_str().contains('@') {
            return Err(invalid(
                "an address cannot contain a user: send credentials with Client::header, such as authorization",
            ));
        }
        if rest.contains('#') {
            return Err(invalid("'#' is not allowed in the address of a server"));
        }
        let has_port = authority.as_str() != authority.host();
        let usual_port = if is_secure { 443 } else { 80 };
        let place = if has_port { authority.to_string() } else { format!("{authority}:{usual_port}") };
        let (host, port) = Address::split_host_port(&place).map_err(|_| invalid("expected SCHEME://HOST:PORT"))?;
        let host = host.to_owned();
        let path = uri.path_and_query().map_or("/", |path| path.as_str()).to_owned();
        let path = if path.starts_with('/') { path } else { format!("/{path}") };
        Ok(Self { is_secure, host, port, authority, path })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_has_a_host_a_port_and_a_path() {
        for (url, is_secure, host, port, path) in [
            ("ws://localhost:7300", false, "localhost", 7300, "/"),
            ("WSS://example.org", true, "example.org", 443, "/"),
            ("ws://[::1]/chat?room=7", false, "::1", 80, "/chat?room=7"),
            ("ws://a:1?q", false, "a", 1, "/?q"),
        ] {
            let target = WebSocketUrl::parse(url).unwrap();
            assert_eq!((target.is_secure, &*target.host, target.port), (is_secure, host, port), "{url}");
            assert_eq!(target.path, path, "{url}");
        }
        assert_eq!(WebSocketUrl::parse("ws://[::1]:7300/a").unwrap().authority, "[::1]:7300");
    }

    #[test]
    fn invalid_addresses_say_why() {
        for (url, why) in [
            ("localhost:80", "expected ws://HOST"),
            ("http://localhost", "expected ws://HOST"),
            ("ws://", "address"),
            ("ws://:80", "expected SCHEME://HOST:PORT"),
            ("ws://localhost:", "expected SCHEME://HOST:PORT"),
            ("ws://localhost:+80", "expected SCHEME://HOST:PORT"),
            ("ws://me@localhost", "an address cannot contain a user"),
            ("ws://localhost/#top", "'#'"),
            ("ws://localhost/a b", "address"),
        ] {
            let error = WebSocketUrl::parse(url).unwrap_err().to_string();
            assert!(error.contains(why), "{url}: {error}");
        }
    }
}
