//! The health of servers, as they report it.

use std::fmt;

use futures_util::stream::BoxStream;

use super::Channel;

/// Watches the health of the servers of a channel, for [`ChannelBuilder::health`](crate::ChannelBuilder::health).
///
/// `frpc_services::HealthWatcher` asks the servers themselves, with gRPC's health checks.
pub trait WatchHealth: fmt::Debug + Send + Sync + 'static {
    /// Returns `true` and `false` as a server becomes able to serve and unable. The last value holds after the end of the
    /// stream, and until the connection is lost. Before the first value, the server gets no calls.
    ///
    /// `server` is a channel to this server alone. An empty name of the service means the server as a whole.
    fn watch(&self, server: Channel, service: &str) -> BoxStream<'static, bool>;
}
