//! Routes of calls to clusters of servers, found by a resolver.

use std::{fmt, sync::Arc};

use frpc_balance::MethodConfig;

use super::rules::HashKey;
use crate::call::{exchange::Call, status::Status};

/// Chooses the cluster for each call of a channel. A resolver sends it with
/// [`Endpoints::routed`](super::Endpoints::routed).
///
/// ```
/// use std::sync::Arc;
///
/// use frpc::{Call, Status, fleet::{CallRoute, Endpoint, Endpoints, RouteCalls}};
///
/// /// Sends the calls of one service to its own servers.
/// #[derive(Debug)]
/// struct ByService;
///
/// impl RouteCalls for ByService {
///     fn route(&self, call: &Call) -> Result<CallRoute, Status> {
///         let is_search = call.method().service == "shop.Search";
///         Ok(CallRoute::new(if is_search { "search" } else { "rest" }))
///     }
/// }
///
/// # fn example() -> std::io::Result<()> {
/// let search = Endpoints::new([Endpoint::new("tcp://10.0.0.1:7300")?]);
/// let rest = Endpoints::new([Endpoint::new("tcp://10.0.0.2:7300")?]);
/// let found = Endpoints::routed(Arc::new(ByService), [("search".into(), Ok(search)), ("rest".into(), Ok(rest))]);
/// # Ok(())
/// # }
/// ```
pub trait RouteCalls: fmt::Debug + Send + Sync + 'static {
    /// Returns the route of a call.
    ///
    /// # Errors
    ///
    /// The status of a call without a route.
    fn route(&self, call: &Call) -> Result<CallRoute, Status>;
}

/// The cluster for a call, and the rules of the call.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct CallRoute {
    /// The name of the cluster.
    pub cluster: Arc<str>,
    /// The rules of the call, whatever their names. They replace the rules of its method in the service config.
    pub rules: Option<Arc<MethodConfig>>,
    /// The key for [`PickPolicy::RingHash`](super::PickPolicy::RingHash). A key in the request precedes it.
    pub key: Option<HashKey>,
}

impl CallRoute {
    /// Creates a route to a cluster.
    pub fn new(cluster: impl Into<Arc<str>>) -> Self {
        Self { cluster: cluster.into(), rules: None, key: None }
    }
}

/// The rules of a route, among the extensions of its call.
#[derive(Clone, Debug)]
pub(super) struct RouteRules(pub(super) Arc<MethodConfig>);
