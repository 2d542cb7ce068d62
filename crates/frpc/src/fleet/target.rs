//! The servers of a channel, as a user names them.

use std::{fmt, io, net::SocketAddr, sync::Arc};

use frisbee::{Address, ToAddress};

use super::{
    dns::{DnsResolver, wire_of},
    file::FileResolver,
    resolve::{Endpoint, Endpoints, ListResolver, Resolve, ResolverFactory, resolver_for},
};

/// The server or the servers of a channel.
///
/// | text | means |
/// |---|---|
/// | `tcp://10.0.0.1:7300`, `unix:/run/app.sock`, `grpc://example.org:443` | one server at this [`Address`] |
/// | `tcp://10.0.0.1:7300,tcp://10.0.0.2:7300` | the servers of this list |
/// | `dns:///orders.internal:7300` | all A and AAAA records of the name, looked up again and again |
/// | `dns+grpc:///orders.internal:443` | the same, for addresses of another scheme than `tcp` |
/// | `dns:///_orders._tcp.internal` | the hosts of all SRV records with the best priority, with their weights; none of port 0 |
/// | `dns://10.0.0.53/orders.internal:7300` | the same as the first, from this name server |
/// | `file:///etc/orders.json` | the servers in this file, read again after each change |
///
/// SRV records and name servers need the feature `dns`. A [`ResolverFactory`](super::ResolverFactory) adds other
/// schemes, such as `nats+direct` of the crate `frisbee-rpc-nats`.
///
/// A file holds a JSON array. Its elements are addresses, or objects with an address and attributes of an [`Endpoint`]:
///
/// ```json
/// ["tcp://10.0.0.1:7300", {"address": "tcp://10.0.0.2:7300", "weight": 3, "zone": "b", "tlsName": "orders"}]
/// ```
#[derive(Clone)]
pub struct Target {
    pub(crate) kind: TargetKind,
    /// The text of the target, for metrics.
    pub(crate) name: String,
}

#[derive(Clone)]
pub(crate) enum TargetKind {
    /// One server. The channel looks up its name when it connects.
    One(Address),
    /// The servers found by a resolver.
    Many(Arc<dyn Resolve>),
}

impl Target {
    /// Returns the target of these servers.
    ///
    /// # Errors
    ///
    /// The list is empty.
    pub fn endpoints(endpoints: impl IntoIterator<Item = Endpoint>) -> io::Result<Self> {
        let endpoints: Vec<_> = endpoints.into_iter().collect();
        if endpoints.is_empty() {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, "the list of servers is empty"));
        }
        let name = endpoints.iter().take(NAMED_MAX).map(|endpoint| endpoint.address.to_string());
        let name = name.collect::<Vec<_>>().join(",");
        Ok(Self { name, ..Self::resolved_by(ListResolver(Endpoints::new(endpoints))) })
    }

    fn one(address: Address) -> Self {
        Self { name: address.to_string(), kind: TargetKind::One(address) }
    }

    /// Returns the target of the servers that a resolver finds.
    pub fn resolved_by(resolver: impl Resolve) -> Self {
        Self { kind: TargetKind::Many(Arc::new(resolver)), name: "resolved".to_owned() }
    }

    /// Replaces an address by the servers of a resolver, if there is one for its scheme.
    pub(crate) fn resolved(self, factories: &[Arc<dyn ResolverFactory>]) -> io::Result<Self> {
        let TargetKind::One(Address::Url(url)) = &self.kind else { return Ok(self) };
        match resolver_for(url, factories) {
            Some(resolver) => Ok(Self { kind: TargetKind::Many(resolver?), ..self }),
            None => Ok(self),
        }
    }

    /// Returns the resolver of the servers, also for one address.
    pub(crate) fn into_resolver(self) -> io::Result<Arc<dyn Resolve>> {
        match self.kind {
            TargetKind::One(address) => Ok(Arc::new(ListResolver(Endpoints::new([Endpoint::new(address)?])))),
            TargetKind::Many(resolver) => Ok(resolver),
        }
    }

    fn parse(text: &str) -> io::Result<Self> {
        if text.contains(',') && !has_unix_path(text) {
            return Self::endpoints(text.split(',').map(Endpoint::parse).collect::<io::Result<Vec<_>>>()?);
        }
        let address = text.to_address()?;
        let Address::Url(url) = &address else { return Ok(Self::one(address)) };
        let (scheme, rest) = url.split_once("://").unwrap_or_default();
        let target = match (wire_of(scheme), scheme) {
            (Some(wire), _) => Self::resolved_by(DnsResolver::parse(text, wire, rest)?),
            (None, "file") => Self::resolved_by(FileResolver::parse(text, rest)?),
            (None, _) => return Ok(Self::one(address)),
        };
        Ok(Self { name: url.clone(), ..target })
    }
}

impl fmt::Debug for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Target").field(&self.name).finish()
    }
}

/// A value convertible to a [`Target`]: text in its syntax, an address, or a list of them.
pub trait ToTarget {
    /// Returns the target, or an error if the text has no valid syntax.
    fn to_target(&self) -> io::Result<Target>;
}

impl ToTarget for Target {
    fn to_target(&self) -> io::Result<Target> {
        Ok(self.clone())
    }
}

impl ToTarget for Address {
    fn to_target(&self) -> io::Result<Target> {
        Ok(Target::one(self.clone()))
    }
}

impl ToTarget for SocketAddr {
    fn to_target(&self) -> io::Result<Target> {
        Ok(Target::one(Address::Tcp(*self)))
    }
}

impl ToTarget for str {
    fn to_target(&self) -> io::Result<Target> {
        Target::parse(self)
    }
}

impl ToTarget for String {
    fn to_target(&self) -> io::Result<Target> {
        Target::parse(self)
    }
}

impl<T: ToTarget + ?Sized> ToTarget for &T {
    fn to_target(&self) -> io::Result<Target> {
        (**self).to_target()
    }
}

impl<T: ToAddress> ToTarget for [T] {
    fn to_target(&self) -> io::Result<Target> {
        Target::endpoints(self.iter().map(Endpoint::new).collect::<io::Result<Vec<_>>>()?)
    }
}

impl<T: ToAddress, const N: usize> ToTarget for [T; N] {
    fn to_target(&self) -> io::Result<Target> {
        self.as_slice().to_target()
    }
}

impl<T: ToAddress> ToTarget for Vec<T> {
    fn to_target(&self) -> io::Result<Target> {
        self.as_slice().to_target()
    }
}

/// Returns `true` for the path of a Unix socket. It may contain commas.
fn has_unix_path(text: &str) -> bool {
    text.get(..6).is_some_and(|start| start.eq_ignore_ascii_case("unix:/"))
}

/// The maximum number of servers in the name of a list.
const NAMED_MAX: usize = 3;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_without_a_resolver_is_one_address() {
        for text in ["tcp://localhost:7300", "localhost:7300", "unix:/run/app.sock", "grpc://localhost:443", "mem:app"]
        {
            let TargetKind::One(address) = text.to_target().unwrap().kind else { panic!("{text}") };
            assert_eq!(address, text.parse().unwrap());
        }
        for comma in ["unix:/run/a,b.sock", "UNIX:/run/a,b.sock"] {
            let comma = comma.to_target().unwrap();
            assert!(matches!(comma.kind, TargetKind::One(Address::Unix(_))), "{comma:?}");
        }
    }

    #[test]
    fn lists_and_resolvers_are_many_endpoints() {
        let lists = [vec!["tcp://a:1", "tcp://b:1"].to_target(), "tcp://a:1,tcp://b:1".to_target()];
        let found = ["dns:///a:1", "dns+grpc:///a:1", "file:///a.json"].map(|text| text.to_target());
        for upper in ["DNS:///a:1", "Dns+GRPC:///a:1", "FILE:///a.json", "TCP://a:1,TCP://b:1"] {
            let target = upper.to_target().unwrap();
            assert!(matches!(target.kind, TargetKind::Many(_)));
            assert_eq!(target.name, upper.to_ascii_lowercase());
        }
        for target in lists.into_iter().chain(found) {
            assert!(matches!(target.unwrap().kind, TargetKind::Many(_)));
        }
    }

    #[test]
    fn errors_name_the_wrong_part() {
        for (text, why) in [
            ("tcp://a:1,tcp://b", "\"tcp://b\": port missing"),
            ("tcp://a:1,", "port missing"),
            ("dns:///orders", "dns:///HOST:PORT"),
            ("dns://orders:1", "dns:///HOST:PORT"),
            ("dns:///a/b:1", "dns:///HOST:PORT"),
            ("dns:///a:+1", "dns:///HOST:PORT"),
            ("dns+:///orders:1", "dns+SCHEME:///HOST:PORT"),
            ("file://orders.json", "file:///PATH"),
        ] {
            let error = text.to_target().unwrap_err().to_string();
            assert!(error.contains(why), "{text}: {error}");
        }
        let empty: [&str; 0] = [];
        assert!(empty.to_target().unwrap_err().to_string().contains("empty"));
    }
}
