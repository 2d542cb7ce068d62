//! Listeners: the routes of a service.

use std::{sync::Arc, time::Duration};

use super::{
    fields::{check_source, duration, type_name, unpack},
    routes::RouteTable,
};
use crate::protos::frpc::xds::v3::{
    HttpConnectionManager, HttpFilter, Listener, http_connection_manager::RouteSpecifier,
};

/// The part of a listener for channels.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct ListenerConfig {
    pub(crate) routes: RouteSource,
    /// The time limit of calls without one in their route.
    pub(crate) timeout: Option<Duration>,
}

#[derive(Clone, Debug, PartialEq)]
pub(crate) enum RouteSource {
    Named(String),
    Inline(Arc<RouteTable>),
}

impl ListenerConfig {
    pub(super) fn read(listener: Listener) -> Result<Self, String> {
        let api = listener.api_listener.and_then(|api| api.api_listener).ok_or("api_listener is missing")?;
        let manager: HttpConnectionManager = unpack("api_listener", &api, MANAGER)?;
        for filter in &manager.http_filters {
            check_filter(filter)?;
        }
        let routes = match manager.route_specifier {
            Some(RouteSpecifier::Rds(rds)) => {
                check_source("rds.config_source", rds.config_source.as_ref())?;
                if rds.route_config_name.is_empty() {
                    return Err("rds.route_config_name is empty".to_owned());
                }
                RouteSource::Named(rds.route_config_name)
            }
            Some(RouteSpecifier::RouteConfig(routes)) => RouteSource::Inline(Arc::new(RouteTable::read(routes)?)),
            Some(RouteSpecifier::ScopedRoutes(_)) => return Err("scoped_routes are not supported".to_owned()),
            None => return Err("neither rds nor route_config is set".to_owned()),
        };
        let limits = manager.common_http_protocol_options;
        let timeout = duration("max_stream_duration", limits.and_then(|limits| limits.max_stream_duration))?;
        Ok(Self { routes, timeout: timeout.filter(|timeout| !timeout.is_zero()) })
    }
}

/// Refuses filters that would change calls.
fn check_filter(filter: &HttpFilter) -> Result<(), String> {
    let kind = filter.typed_config.as_ref().map(type_name);
    match kind {
        Some(ROUTER) => Ok(()),
        // Istio sends it to all clients, without faults.
        Some(FAULT) if filter.typed_config.as_ref().is_some_and(|config| config.value.is_empty()) => Ok(()),
        _ if filter.is_optional => Ok(()),
        kind => Err(format!("http_filter {:?} has the unsupported type {:?}", filter.name, kind.unwrap_or_default())),
    }
}

const MANAGER: &str = "envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager";
const FAULT: &str = "envoy.extensions.filters.http.fault.v3.HTTPFault";
const ROUTER: &str = "envoy.extensions.filters.http.router.v3.Router";
