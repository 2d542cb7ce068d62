//! Limits and times of a server.

use std::time::Duration;

use crate::InvalidSetting;

/// Limits of a server over all of its connections, and the times that it gives them to leave.
///
/// Fields may be added, so `..ServerLimits::default()` belongs at the end of a literal.
///
/// ```
/// use frisbee::{Server, ServerLimits};
///
/// let server = Server::builder(()).limits(ServerLimits { connections_max: 1000, ..ServerLimits::default() });
/// ```
#[derive(Clone, Debug)]
pub struct ServerLimits {
    /// The number of connections, including those in a handshake. Default 65 536. Further connections are closed right
    /// after `accept`.
    pub connections_max: usize,
    /// The number of concurrent handlers over all connections. Default 65 536. At the limit, packets wait.
    ///
    /// A handler that runs in place counts only from its first wait, so each connection may exceed the limit by
    /// one.
    pub handlers_max: usize,
    /// The time for which a [shutdown](crate::Server::shutdown) serves peers that leave after being asked to. Default
    /// 5 s.
    ///
    /// Channels of frpc are such peers. The time is at most half of the shutdown's limit, and ends early once all
    /// of them have left. New packets of other peers are refused immediately; with zero, those of all peers are.
    pub lame_duck: Duration,
    /// The age of a connection at which its client is asked to reconnect, and may find a new server. Default `None`.
    ///
    /// The actual age varies at random by up to a tenth, so clients connected together do not leave together. At
    /// that age, an extended peer is asked to leave within [`connection_age_grace`](Self::connection_age_grace). A
    /// plain peer cannot be asked, and its connection has no age limit. A [protocol](crate::Protocol) such as HTTP leaves
    /// the connection as in a shutdown.
    pub connection_age_max: Option<Duration>,
    /// The time for a client to leave a connection above the age limit. Default 30 s.
    ///
    /// Afterwards, new packets on the connection are refused, and it closes once nothing is in flight, as in a
    /// shutdown.
    pub connection_age_grace: Duration,
}

impl Default for ServerLimits {
    fn default() -> Self {
        Self {
            connections_max: 65_536,
            handlers_max: 65_536,
            lame_duck: Duration::from_secs(5),
            connection_age_max: None,
            connection_age_grace: Duration::from_secs(30),
        }
    }
}

impl ServerLimits {
    pub(super) fn check(&self) -> Result<(), InvalidSetting> {
        InvalidSetting::refuse_zero("connections_max", &self.connections_max, "every connection would be refused")?;
        InvalidSetting::refuse_zero("handlers_max", &self.handlers_max, "no handler could ever start")?;
        let effect = "every connection would be too old from the start (None lets them get as old as they like)";
        self.connection_age_max.map_or(Ok(()), |age| InvalidSetting::refuse_zero("connection_age_max", &age, effect))
    }
}
