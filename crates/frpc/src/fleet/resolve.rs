//! Endpoints, and resolvers that find them.

use std::{
    collections::{BTreeMap, HashSet},
    hash::{DefaultHasher, Hash, Hasher},
    io,
    sync::{Arc, PoisonError, RwLock},
};

use frisbee::{Address, ToAddress};
use frpc_balance::RingEndpoint;
use futures_util::stream::{self, BoxStream, StreamExt};
use tokio::sync::Notify;

use super::{resolved::ResolvedSettings, routing::RouteCalls};

/// One server of a channel.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Endpoint {
    pub(crate) address: Address,
    pub(crate) weight: u32,
    pub(crate) zone: Option<Arc<str>>,
    pub(crate) priority: u32,
    pub(crate) tls_name: Option<Arc<str>>,
    #[cfg(feature = "tls")]
    pub(crate) tls: Option<EndpointTls>,
    /// The name with which a resolver found the address.
    pub(super) host: Option<Arc<str>>,
}

impl Endpoint {
    /// Creates an endpoint at an address.
    ///
    /// # Errors
    ///
    /// The address is invalid.
    pub fn new(address: impl ToAddress) -> io::Result<Self> {
        Ok(Self {
            address: address.to_address()?,
            weight: 1,
            zone: None,
            priority: 0,
            tls_name: None,
            #[cfg(feature = "tls")]
            tls: None,
            host: None,
        })
    }

    pub(super) fn parse(text: &str) -> io::Result<Self> {
        Self::new(text.trim())
    }

    /// Sets the weight of the endpoint. One with weight 2 gets twice as many calls as one with weight 1. Default 1; 0
    /// counts as 1.
    pub fn weight(self, weight: u32) -> Self {
        Self { weight: weight.max(1), ..self }
    }

    /// Sets the zone of the endpoint. Channels prefer endpoints in their own zone; see
    /// [`FleetSettings::zone`](super::FleetSettings::zone).
    pub fn zone(self, zone: impl Into<Arc<str>>) -> Self {
        Self { zone: Some(zone.into()), ..self }
    }

    /// Sets the priority of the endpoint. It gets calls while no endpoint with a lower number is ready. Default 0, the
    /// highest priority.
    pub fn priority(self, priority: u32) -> Self {
        Self { priority, ..self }
    }

    /// Sets the TLS for connections to this endpoint, instead of that of the channel.
    #[cfg(feature = "tls")]
    pub fn tls(self, config: impl Into<Arc<frisbee::rustls::ClientConfig>>) -> Self {
        Self { tls: Some(EndpointTls(config.into())), ..self }
    }

    /// Sets the name expected in the certificate of the server. Default is the name of the channel, or else the host in
    /// the address.
    pub fn tls_name(self, name: impl Into<Arc<str>>) -> Self {
        Self { tls_name: Some(name.into()), ..self }
    }

    /// Returns the address.
    pub fn address(&self) -> &Address {
        &self.address
    }

    /// Returns whether the endpoint is in this zone. Without a zone of the channel, none is.
    pub(super) fn is_in_zone(&self, zone: Option<&str>) -> bool {
        zone.is_some() && zone == self.zone.as_deref()
    }

    pub(crate) fn names(&self) -> EndpointNames {
        EndpointNames {
            own: self.tls_name.clone(),
            found: self.host.clone(),
            #[cfg(feature = "tls")]
            tls: self.tls.clone().map(|EndpointTls(config)| config),
        }
    }

    /// Returns the part that decides on the connection. The rest can change while the connection stays.
    pub(super) fn connection_key(&self) -> ConnectionKey {
        ConnectionKey {
            address: self.address.clone(),
            tls_name: self.tls_name.clone(),
            #[cfg(feature = "tls")]
            tls: self.tls.as_ref().map(|EndpointTls(config)| Arc::as_ptr(config).addr()),
            host: self.host.clone(),
        }
    }

    /// Returns the endpoint for a ring.
    pub(super) fn on_ring(&self) -> RingEndpoint {
        let text = self.address.to_string();
        let name = text.split_once("://").map_or(&*text, |(_, rest)| rest).to_owned();
        RingEndpoint { name, weight: self.weight, hash: self.address_hash() }
    }

    /// Returns a number for the address, equal in all processes of the same build.
    pub(super) fn address_hash(&self) -> u64 {
        let mut hasher = DefaultHasher::new();
        self.address.hash(&mut hasher);
        hasher.finish()
    }
}

/// The part of an endpoint that decides on its connection.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct ConnectionKey {
    address: Address,
    tls_name: Option<Arc<str>>,
    /// The identity of the configuration.
    #[cfg(feature = "tls")]
    tls: Option<usize>,
    host: Option<Arc<str>>,
}

/// A TLS configuration, compared by identity.
#[cfg(feature = "tls")]
#[derive(Clone, Debug)]
pub(crate) struct EndpointTls(Arc<frisbee::rustls::ClientConfig>);

#[cfg(feature = "tls")]
impl PartialEq for EndpointTls {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

#[cfg(feature = "tls")]
impl Eq for EndpointTls {}

#[cfg(feature = "tls")]
impl Hash for EndpointTls {
    fn hash<H: Hasher>(&self, state: &mut H) {
        Arc::as_ptr(&self.0).hash(state);
    }
}

/// The names and the TLS of one endpoint.
#[derive(Clone, Debug, Default)]
pub(crate) struct EndpointNames {
    /// The name in its certificate, if it was set for the endpoint.
    #[cfg_attr(not(feature = "tls"), expect(dead_code, reason = "only TLS reads it"))]
    pub(crate) own: Option<Arc<str>>,
    /// The host name with which the address was found.
    pub(crate) found: Option<Arc<str>>,
    #[cfg(feature = "tls")]
    pub(crate) tls: Option<Arc<frisbee::rustls::ClientConfig>>,
}

/// A set of endpoints, in the order of the resolver.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Endpoints {
    pub(crate) list: Vec<Endpoint>,
    /// The settings found with the endpoints, if there are any.
    pub(super) settings: Option<Box<ResolvedSettings>>,
    /// Several sets, instead of one list.
    pub(super) routed: Option<Box<RoutedEndpoints>>,
}

impl Endpoints {
    /// Creates a set. Of endpoints with the same address, the first counts.
    pub fn new(endpoints: impl IntoIterator<Item = Endpoint>) -> Self {
        let mut known = HashSet::new();
        let list = endpoints.into_iter().filter(|endpoint| known.insert(endpoint.address.clone())).collect();
        Self { list, settings: None, routed: None }
    }

    /// Returns the number of endpoints, without those of clusters.
    pub fn len(&self) -> usize {
        self.list.len()
    }

    /// Returns `true` if there are no endpoints.
    pub fn is_empty(&self) -> bool {
        self.list.is_empty()
    }

    /// Creates the sets of several clusters, each with its own settings. `routes` chooses the cluster for each call.
    ///
    /// The calls to a cluster without endpoints fail with `UNAVAILABLE` and the given reason.
    pub fn routed(
        routes: Arc<dyn RouteCalls>,
        clusters: impl IntoIterator<Item = (Arc<str>, Result<Self, Arc<str>>)>,
    ) -> Self {
        let clusters = clusters.into_iter().collect();
        Self { routed: Some(Box::new(RoutedEndpoints { routes, clusters })), ..Self::default() }
    }

    /// Adds settings. They hold until the next set, with its own settings or none.
    pub fn with_settings(self, settings: ResolvedSettings) -> Self {
        Self { settings: Some(Box::new(settings)), ..self }
    }
}

/// The clusters of a channel.
#[derive(Clone, Debug)]
pub(super) struct RoutedEndpoints {
    pub(super) routes: Arc<dyn RouteCalls>,
    /// The endpoints of each cluster, or the reason why its calls fail.
    pub(super) clusters: BTreeMap<Arc<str>, Result<Endpoints, Arc<str>>>,
}

impl PartialEq for RoutedEndpoints {
    /// Compares the routes by identity.
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.routes, &other.routes) && self.clusters == other.clusters
    }
}

/// Finds the endpoints of a channel, for example in DNS, a file or a registry.
///
/// ```
/// use frpc::fleet::{Endpoint, Endpoints, Refresh, Resolve};
/// use futures_util::{StreamExt, stream::{self, BoxStream}};
///
/// /// Reads the replicas of a service from a registry.
/// struct Registry;
///
/// impl Resolve for Registry {
///     fn resolve(&self, refresh: Refresh) -> BoxStream<'static, std::io::Result<Endpoints>> {
///         stream::unfold(refresh, async |refresh| {
///             // Asks the registry, and again after a connection failed.
///             let found = Endpoint::new("tcp://127.0.0.1:7300").map(|one| Endpoints::new([one]));
///             refresh.requested().await;
///             Some((found, refresh))
///         })
///         .boxed()
///     }
/// }
/// # let _ = frpc::fleet::Target::resolved_by(Registry);
/// ```
pub trait Resolve: Send + Sync + 'static {
    /// Returns the sets of endpoints, each of which replaces the last.
    ///
    /// After an error or an empty set, the channel keeps the last set. After the end of the stream, it keeps it for ever. While
    /// no endpoint of a new set can be reached, it also keeps the connections of the last set.
    /// Each stream serves one channel, which polls it on its own task.
    fn resolve(&self, refresh: Refresh) -> BoxStream<'static, io::Result<Endpoints>>;
}

/// Tells a resolver that a new set is wanted soon, because a connection was lost or could not be opened.
#[derive(Clone, Debug, Default)]
pub struct Refresh(Arc<Notify>);

impl Refresh {
    /// Waits for the next request. Requests made while nothing waits count as one.
    pub async fn requested(&self) {
        self.0.notified().await;
    }

    pub(super) fn request(&self) {
        self.0.notify_one();
    }
}

/// Creates the resolvers of targets with its schemes, such as `nats+direct://cluster/orders`.
///
/// [`ChannelBuilder::resolver`](crate::ChannelBuilder::resolver) adds it to a channel, [`register_resolver`] to the
/// defaults of the process.
///
/// ```
/// use std::{io, sync::Arc};
///
/// use frpc::{Channel, fleet::{Endpoint, Endpoints, Refresh, Resolve, ResolverFactory}};
/// use futures_util::{StreamExt, stream::{self, BoxStream}};
///
/// /// `ports://7300+7301` is the servers at these ports of this machine.
/// struct Ports;
///
/// impl ResolverFactory for Ports {
///     fn schemes(&self) -> &[&str] {
///         &["ports"]
///     }
///
///     fn resolver(&self, target: &str) -> io::Result<Arc<dyn Resolve>> {
///         let ports = target.trim_start_matches("ports://").split('+');
///         let found: io::Result<Vec<_>> = ports.map(|port| Endpoint::new(format!("tcp://127.0.0.1:{port}"))).collect();
///         Ok(Arc::new(Fixed(Endpoints::new(found?))))
///     }
/// }
///
/// struct Fixed(Endpoints);
///
/// impl Resolve for Fixed {
///     fn resolve(&self, _: Refresh) -> BoxStream<'static, io::Result<Endpoints>> {
///         stream::iter([Ok(self.0.clone())]).boxed()
///     }
/// }
///
/// # async fn example() -> Result<(), frpc::ConnectError> {
/// let channel = Channel::builder().resolver(Ports).connect("ports://7300+7301").await?;
/// # Ok(())
/// # }
/// ```
pub trait ResolverFactory: Send + Sync + 'static {
    /// Returns the schemes of its targets, without `://`.
    fn schemes(&self) -> &[&str];

    /// Returns the resolver of a target with one of its schemes.
    ///
    /// # Errors
    ///
    /// The text has no valid syntax.
    fn resolver(&self, target: &str) -> io::Result<Arc<dyn Resolve>>;
}

/// The default factories of the process. They are never removed, so a scheme keeps its first factory.
static DEFAULTS: RwLock<Vec<Arc<dyn ResolverFactory>>> = RwLock::new(Vec::new());

/// Adds a default factory of resolvers for every channel of the process, as a convenience for main programs.
///
/// The first factory for a scheme keeps it, so repeated calls have no effect. Libraries and tests pass a factory to
/// [`ChannelBuilder::resolver`](crate::ChannelBuilder::resolver) instead, which takes precedence.
pub fn register_resolver(factory: impl ResolverFactory) {
    DEFAULTS.write().unwrap_or_else(PoisonError::into_inner).push(Arc::new(factory));
}

/// Returns the resolver of a target by its scheme: from the channel's last factory, or else from the first default.
pub(crate) fn resolver_for(target: &str, own: &[Arc<dyn ResolverFactory>]) -> Option<io::Result<Arc<dyn Resolve>>> {
    let scheme = target.split("://").next().unwrap_or_default();
    let defaults = DEFAULTS.read().unwrap_or_else(PoisonError::into_inner);
    let mut factories = own.iter().rev().chain(&*defaults);
    let found = factories.find(|factory| factory.schemes().contains(&scheme))?.clone();
    // A factory may register another one.
    drop(defaults);
    Some(found.resolver(target))
}

/// A list that never changes.
pub(super) struct ListResolver(pub(super) Endpoints);

impl Resolve for ListResolver {
    fn resolve(&self, _: Refresh) -> BoxStream<'static, io::Result<Endpoints>> {
        let endpoints = self.0.clone();
        stream::once(async { Ok(endpoints) }).boxed()
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt;

    use super::*;

    struct Ports(&'static str, u16);

    impl ResolverFactory for Ports {
        fn schemes(&self) -> &[&str] {
            std::slice::from_ref(&self.0)
        }

        fn resolver(&self, target: &str) -> io::Result<Arc<dyn Resolve>> {
            match target.ends_with("/bad") {
                true => Err(io::ErrorKind::InvalidInput.into()),
                false => {
                    let one = Endpoint::new(format!("tcp://127.0.0.1:{}", self.1))?;
                    Ok(Arc::new(ListResolver(Endpoints::new([one]))))
                }
            }
        }
    }

    #[test]
    fn the_last_factory_of_a_channel_precedes_the_first_default() {
        register_resolver(Ports("shared", 1));
        register_resolver(Ports("shared", 2));
        let own: [Arc<dyn ResolverFactory>; 2] = [Arc::new(Ports("own", 3)), Arc::new(Ports("own", 4))];
        let port = |target: &str| {
            let mut found = resolver_for(target, &own)?.unwrap().resolve(Refresh::default());
            let endpoints = found.next().now_or_never().flatten().unwrap().unwrap();
            endpoints.list[0].address.socket_addr().map(|addr| addr.port())
        };
        assert_eq!([port("own://a"), port("shared://a"), port("other://a")], [Some(4), Some(1), None]);
        assert!(resolver_for("own://bad", &own).unwrap().is_err(), "the error of the factory is returned");
    }

    #[test]
    fn the_first_endpoint_of_an_address_counts() {
        let [one, again, other] = [("tcp://a:1", 3), ("tcp://a:1", 2), ("tcp://b:1", 0)]
            .map(|(at, weight)| Endpoint::new(at).unwrap().weight(weight));
        let all = Endpoints::new([one.clone(), again, other.clone()]);
        assert_eq!(all.list, [one, other]);
        assert_eq!(all.list[1].weight, 1, "zero counts as one");
    }
}
