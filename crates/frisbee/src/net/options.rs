//! The options of sockets.

use std::time::Duration;

use crate::InvalidSetting;

/// The options of sockets.
#[derive(Clone, Debug)]
pub struct SocketOptions {
    /// Sends small packets at once instead of waiting for more to share a segment. Default true.
    pub nodelay: bool,
    /// TCP keepalive with this period. Default 3 minutes, as in the Go implementation.
    pub keepalive: Option<Duration>,
    /// Connections the kernel holds for a server that is slow to accept. Default 4096; the system may have a lower
    /// bound of its own.
    pub backlog: u32,
    /// Lets several servers share a TCP port, if all of them say so. Default false: a port that somebody listens on is
    /// an error, with the engines that have a listener for each core as well.
    pub reuse_port: bool,
}

impl Default for SocketOptions {
    fn default() -> Self {
        Self { nodelay: true, keepalive: Some(Duration::from_secs(180)), backlog: 4096, reuse_port: false }
    }
}

impl SocketOptions {
    /// Finds the first option that no socket would take.
    pub(crate) fn check(&self) -> Result<(), InvalidSetting> {
        match self.keepalive {
            Some(period) if period < Duration::from_secs(1) => {
                let why = format!("of {period:?} is too short: sockets take a second and more (None sends none)");
                Err(InvalidSetting::new("keepalive", why))
            }
            _ => Ok(()),
        }
    }
}
