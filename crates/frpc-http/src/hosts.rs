//! The hosts named by requests.

use http::{HeaderMap, Uri, header::HOST, uri::Authority};

/// The hosts that a server accepts requests for.
#[derive(Clone, Debug)]
pub(crate) struct AllowedHosts(Vec<Authority>);

impl AllowedHosts {
    /// Allows hosts. A host without a port allows any port.
    ///
    /// # Panics
    ///
    /// If a value is not a host with an optional port.
    pub(crate) fn new(hosts: impl IntoIterator<Item = impl AsRef<str>>) -> Self {
        let host = |host| {
            let host = AsRef::<str>::as_ref(&host);
            host.parse().unwrap_or_else(|error| panic!("{host:?} is not a host with an optional port: {error}"))
        };
        Self(hosts.into_iter().map(host).collect())
    }

    /// Returns `true` if a request names an allowed host: in its target, or else in the `Host` header.
    pub(crate) fn allows(&self, uri: &Uri, headers: &HeaderMap) -> bool {
        let of_header = || headers.get(HOST)?.to_str().ok()?.parse().ok();
        let asked: Option<Authority> = uri.authority().cloned().or_else(of_header);
        // A user before the host is never valid in a `Host` header.
        let Some(asked) = asked.filter(|asked| !asked.as_str().contains('@')) else { return false };
        self.0.iter().any(|allowed| {
            allowed.host().eq_ignore_ascii_case(asked.host())
                && allowed.port_u16().is_none_or(|port| asked.port_u16() == Some(port))
        })
    }
}

/// Returns `true` if an HTTP/1.1 request has exactly one `Host` header, as the protocol requires.
pub(crate) fn has_one_host(headers: &HeaderMap) -> bool {
    let mut hosts = headers.get_all(HOST).into_iter();
    hosts.next().is_some_and(|host| is_valid(host.as_bytes())) && hosts.next().is_none()
}

/// Returns `true` if a `Host` value contains only characters allowed in a host and a port.
pub(crate) fn is_valid(value: &[u8]) -> bool {
    value.iter().all(|byte| byte.is_ascii_alphanumeric() || b"-._~%!$&'()*+;=:[]".contains(byte))
}
