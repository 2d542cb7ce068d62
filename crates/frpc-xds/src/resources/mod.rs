//! Resources of a control plane: checked and reduced to the needs of a channel.
//!
//! ```text
//!   listener    the routes of a service;  routes: virtual hosts and their routes
//!   cluster     settings of a cluster and the source of its endpoints;  balancing: its policy
//!   endpoints   the endpoints of a cluster
//!   tls         certificates, their verification, and secrets;  text: conditions on headers and paths
//! ```

mod balancing;
mod cluster;
mod endpoints;
mod fields;
mod listener;
mod routes;
#[cfg(test)]
mod tests;
mod text;
mod tls;

use std::sync::Arc;

use frpc::prost::Message;

#[cfg(test)]
pub(crate) use self::text::{FullRegex, TextRule};
pub(crate) use self::{
    cluster::{ClusterConfig, ClusterSource},
    endpoints::{Assignment, ClusterEndpoint},
    listener::{ListenerConfig, RouteSource},
    routes::{HashRule, PathRule, RouteCondition, RouteRule, RouteTable, RouteTarget},
    text::{HeaderCondition, HeaderRule},
    tls::{CertificateSource, SanRule, TlsIdentity, TlsRules, TlsSecret, TlsSecrets},
};
use crate::protos::frpc::xds::v3::NamedResource;

/// A type of resources, in the order of their requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum ResourceKind {
    Cluster,
    Endpoints,
    Listener,
    Routes,
    Secret,
}

impl ResourceKind {
    pub(crate) const ALL: [Self; 5] = [Self::Cluster, Self::Endpoints, Self::Listener, Self::Routes, Self::Secret];

    pub(crate) fn type_url(self) -> &'static str {
        match self {
            Self::Cluster => "type.googleapis.com/envoy.config.cluster.v3.Cluster",
            Self::Endpoints => "type.googleapis.com/envoy.config.endpoint.v3.ClusterLoadAssignment",
            Self::Listener => "type.googleapis.com/envoy.config.listener.v3.Listener",
            Self::Routes => "type.googleapis.com/envoy.config.route.v3.RouteConfiguration",
            Self::Secret => "type.googleapis.com/envoy.extensions.transport_sockets.tls.v3.Secret",
        }
    }

    pub(crate) fn of_url(url: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.type_url() == url)
    }

    /// Returns `true` if each response contains all resources, so a missing one was removed.
    pub(crate) fn is_complete(self) -> bool {
        matches!(self, Self::Cluster | Self::Listener)
    }

    /// Decodes and checks a resource.
    ///
    /// # Errors
    ///
    /// The reason to refuse it, for the control plane.
    pub(crate) fn read(self, content: &[u8]) -> Result<Resource, String> {
        match self {
            Self::Cluster => ClusterConfig::read(decode(content)?).map(|one| Resource::Cluster(Arc::new(one))),
            Self::Endpoints => Assignment::read(&decode(content)?).map(|one| Resource::Endpoints(Arc::new(one))),
            Self::Listener => ListenerConfig::read(decode(content)?).map(|one| Resource::Listener(Arc::new(one))),
            Self::Routes => RouteTable::read(decode(content)?).map(|one| Resource::Routes(Arc::new(one))),
            Self::Secret => TlsSecret::read(decode(content)?).map(|one| Resource::Secret(Arc::new(one))),
        }
    }
}

/// A valid resource.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Resource {
    Listener(Arc<ListenerConfig>),
    Routes(Arc<RouteTable>),
    Cluster(Arc<ClusterConfig>),
    Endpoints(Arc<Assignment>),
    Secret(Arc<TlsSecret>),
}

/// Returns the name of a resource of any type.
pub(crate) fn name_of(content: &[u8]) -> Result<String, String> {
    decode::<NamedResource>(content).map(|named| named.name)
}

fn decode<M: Message + Default>(content: &[u8]) -> Result<M, String> {
    M::decode(content).map_err(|error| format!("cannot be decoded: {error}"))
}
