//! The peers allowed to use the admin services.

use std::{fmt, net::IpAddr, sync::Arc};

use frpc::{Address, Head, Status};
use http::Uri;

/// The rule for access to the admin services. Cheap to clone.
#[derive(Clone)]
pub struct AdminAccess {
    rule: Arc<AccessRule>,
    shows_page: PageRule,
}

type AccessRule = dyn Fn(&Head) -> Result<(), Status> + Send + Sync;

/// The peers allowed to load the page. It contains no data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum PageRule {
    Allowed,
    Everyone,
}

impl AdminAccess {
    /// Allows peers on this machine: loopback addresses, Unix sockets of frisbee, and channels in process.
    ///
    /// Refuses requests with headers of a proxy, requests of browsers for pages of a different host, and calls over
    /// WebSockets, which may come from both. A proxy on this machine that adds no header looks like a local peer: use a
    /// [`token`](Self::token). Peers of HTTP over Unix sockets have no address and are refused, too.
    pub fn local() -> Self {
        Self { rule: Arc::new(check_local), shows_page: PageRule::Allowed }
    }

    /// Allows callers with the metadata `authorization: Bearer TOKEN`. The page asks for the token.
    ///
    /// An empty token, as an unset variable gives it, allows no caller.
    pub fn token(token: impl Into<String>) -> Self {
        let token = token.into();
        let rule = move |head: &Head| {
            let sent = head.metadata().get("authorization").and_then(|value| value.strip_prefix("Bearer "));
            match sent {
                _ if token.is_empty() => {
                    Err(Status::permission_denied("the admin services have an empty token: set one"))
                }
                Some(sent) if is_equal(sent.as_bytes(), token.as_bytes()) => Ok(()),
                Some(_) => Err(Status::permission_denied("the token is wrong")),
                None => Err(Status::unauthenticated("send the token as `authorization: Bearer TOKEN`")),
            }
        };
        Self { rule: Arc::new(rule), shows_page: PageRule::Everyone }
    }

    /// Allows callers for which the rule returns `Ok`. The page contains no data and is shown to all peers.
    pub fn custom(rule: impl Fn(&Head) -> Result<(), Status> + Send + Sync + 'static) -> Self {
        Self { rule: Arc::new(rule), shows_page: PageRule::Everyone }
    }

    /// Checks a call.
    pub(crate) fn check(&self, head: &Head) -> Result<(), Status> {
        (self.rule)(head)
    }

    /// Checks a request for the page.
    pub(crate) fn check_page(&self, head: &Head) -> Result<(), Status> {
        match self.shows_page {
            PageRule::Allowed => self.check(head),
            PageRule::Everyone => Ok(()),
        }
    }
}

fn check_local(head: &Head) -> Result<(), Status> {
    let is_local = match head.peer_addr() {
        Some(Address::Tcp(peer)) => peer.ip().to_canonical().is_loopback(),
        // An accepted Unix socket has no address of its peer.
        Some(Address::Unnamed) => head.connection().is_some_and(|connection| is_of_machine(connection.local_addr())),
        Some(peer) => is_of_machine(&peer),
        // Channels in process have no connection.
        None => true,
    };
    // Neither the page nor the proxy at the other end of a WebSocket is known for its packets.
    let is_carried = head.connection().is_some_and(|connection| connection.carrier().is_some());
    let metadata = head.metadata();
    let is_forwarded = FORWARDED.iter().any(|name| metadata.get(name).is_some());
    // A page of a different host can reach this address by DNS rebinding. Browsers send its origin.
    let is_foreign = metadata.get("origin").is_some_and(|origin| !is_local_origin(origin));
    match is_local && !is_carried && !is_forwarded && !is_foreign {
        true => Ok(()),
        false => Err(Status::permission_denied("the admin services are only for peers on the machine of the server")),
    }
}

fn is_of_machine(address: &Address) -> bool {
    matches!(address, Address::Unix(_) | Address::Abstract(_) | Address::Mem(_))
}

/// Headers added by proxies.
const FORWARDED: [&str; 10] = [
    "forwarded",
    "x-forwarded-for",
    "x-forwarded-host",
    "x-forwarded-proto",
    "x-real-ip",
    "x-client-ip",
    "x-envoy-external-address",
    "true-client-ip",
    "cf-connecting-ip",
    "via",
];

fn is_local_origin(origin: &str) -> bool {
    let Ok(origin) = origin.parse::<Uri>() else { return false };
    let host = origin.host().unwrap_or_default();
    let ip = host.trim_start_matches('[').trim_end_matches(']').parse::<IpAddr>();
    host.eq_ignore_ascii_case("localhost") || ip.is_ok_and(|ip| ip.to_canonical().is_loopback())
}

/// Compares in a time that depends only on the lengths.
fn is_equal(sent: &[u8], token: &[u8]) -> bool {
    let differences = sent.iter().zip(token).fold(0, |differences, (a, b)| differences | (a ^ b));
    sent.len() == token.len() && differences == 0
}

impl fmt::Debug for AdminAccess {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AdminAccess").field("shows_page", &self.shows_page).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use frpc::{Code, WirePeer};

    use super::*;

    fn head(peer: Option<&str>, metadata: &[(&str, &str)]) -> Head {
        let mut head = Head::default();
        if let Some(peer) = peer {
            head.set_peer(&WirePeer::at(peer.parse::<Address>().unwrap()));
        }
        for (name, value) in metadata {
            head.metadata_mut().insert(name, *value).unwrap();
        }
        head
    }

    #[test]
    fn local_access_is_for_this_machine() {
        let access = AdminAccess::local();
        for peer in [
            None,
            Some("tcp://127.0.0.1:9"),
            Some("tcp://[::1]:9"),
            Some("tcp://[::ffff:127.0.0.1]:9"),
            Some("unix:/a"),
        ] {
            access.check(&head(peer, &[])).unwrap();
            access.check(&head(peer, &[("origin", "http://localhost:7300")])).unwrap();
            access.check(&head(peer, &[("origin", "http://[::1]:7300")])).unwrap();
            for (name, value) in [
                ("origin", "http://rebound.example:7300"),
                ("origin", "null"),
                ("origin", "http://127.0.0.1.example"),
                ("x-forwarded-for", "127.0.0.1"),
                ("forwarded", "for=127.0.0.1"),
                ("x-forwarded-proto", "https"),
                ("via", "1.1 proxy"),
            ] {
                let refused = access.check(&head(peer, &[(name, value)])).unwrap_err();
                assert_eq!(refused.code(), Code::PermissionDenied, "{name}: {value}");
            }
        }
        for peer in ["tcp://10.0.0.7:9", "tcp://[fe80::1]:9", "tcp://[::ffff:10.0.0.7]:9"] {
            assert!(access.check(&head(Some(peer), &[])).is_err(), "{peer}");
            assert!(access.check_page(&head(Some(peer), &[])).is_err(), "{peer}");
        }
    }

    #[test]
    fn tokens_are_compared_whole() {
        let access = AdminAccess::token("s3cret");
        let check = |value| access.check(&head(Some("tcp://10.0.0.7:9"), &[("authorization", value)]));
        check("Bearer s3cret").unwrap();
        for wrong in ["Bearer s3cre", "Bearer s3cret1", "Bearer S3cret", "Bearer "] {
            assert!(check(wrong).is_err(), "{wrong}");
        }
        let missing = access.check(&head(None, &[])).unwrap_err();
        assert_eq!(missing.code(), Code::Unauthenticated);
        assert!(!format!("{access:?}").contains("s3cret"));
        let empty = AdminAccess::token("");
        for value in ["Bearer ", "Bearer x"] {
            let refused = empty.check(&head(None, &[("authorization", value)])).unwrap_err();
            assert_eq!(refused.code(), Code::PermissionDenied);
        }
        access.check_page(&head(Some("tcp://10.0.0.7:9"), &[])).unwrap();
    }
}
