//! The REST routes of a server.

use std::{collections::HashSet, ptr, sync::Arc};

use frpc::Endpoint;
use frpc_rest::{MethodKind, RestApi, RouteMatch};
use http::Method;

/// The routes of a server with REST, once its services are known.
#[derive(Clone, Debug, Default)]
pub(crate) enum RestRoutes {
    #[default]
    Off,
    /// REST is on, and the services are not known yet.
    Wanted,
    Ready(Arc<RestApi>),
}

impl RestRoutes {
    /// Reads the routes of the services, if REST is on.
    ///
    /// # Errors
    ///
    /// If an annotation is invalid or routes collide.
    pub(crate) fn prepare(&mut self, endpoint: &Endpoint) -> Result<(), frpc_schema::Error> {
        if matches!(self, Self::Off) {
            return Ok(());
        }
        let types = endpoint.methods().filter_map(|method| method.types);
        // All methods of a package share a descriptor set.
        let mut seen = HashSet::new();
        let sets = types.flat_map(|types| [types.request, types.response]).map(|message| message.descriptors);
        let sets = sets.filter(|set| seen.insert(ptr::from_ref(*set)));
        let api = RestApi::read(sets, |method| endpoint.find(method).is_some())?;
        if api.routes().is_empty() {
            tracing::warn!("REST is on, but no method has the option google.api.http");
        }
        *self = Self::Ready(Arc::new(api));
        Ok(())
    }

    /// Returns `true` if REST is on.
    pub(crate) fn is_on(&self) -> bool {
        !matches!(self, Self::Off)
    }

    /// Finds the route of a request. `None` if REST is off.
    pub(crate) fn find(&self, method: &Method, path: &str) -> Option<RouteMatch<'_>> {
        match self {
            Self::Ready(api) => Some(api.find(method.as_str(), path)),
            Self::Off | Self::Wanted => None,
        }
    }

    /// Returns `true` if a request for a path with an optional query calls a method with streams.
    pub(crate) fn is_streaming(&self, method: &Method, target: &str) -> bool {
        if !self.is_on() {
            return false;
        }
        let path = target.split('?').next().unwrap_or_default();
        match self.find(method, path) {
            Some(RouteMatch::Found(call)) => call.route().kind() != MethodKind::Unary,
            _ => false,
        }
    }
}
