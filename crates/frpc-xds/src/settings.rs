//! Settings of a client.

use std::time::Duration;

/// The limits and timers of an [`XdsClient`](crate::XdsClient).
///
/// Fields may be added, so `..XdsSettings::default()` belongs at the end of a literal.
#[derive(Clone, Debug)]
pub struct XdsSettings {
    /// The interval of HTTP/2 pings on the stream to the control plane. Default 310 s; `None` sends none.
    ///
    /// Servers of grpc-go close connections with more pings than one in 5 minutes, unless they are configured otherwise. A
    /// shorter interval finds a vanished control plane sooner. TCP probes every 30 s find a vanished machine.
    pub keepalive_interval: Option<Duration>,
    /// The maximum time for the answer to a ping before the connection counts as lost. Default 20 s.
    pub keepalive_timeout: Duration,
    /// The time limit of one attempt to connect. Default 5 s.
    pub connect_timeout: Duration,
    /// The pause after the first failed stream. Each further one is 1.6 times as long. Default 1 s.
    pub pause: Duration,
    /// The maximum pause. Default 120 s. A random fifth is added or removed.
    pub pause_max: Duration,
    /// The maximum length of a response in bytes. Default 16 MiB.
    pub response_len_max: u32,
}

impl Default for XdsSettings {
    fn default() -> Self {
        Self {
            keepalive_interval: Some(Duration::from_secs(310)),
            keepalive_timeout: Duration::from_secs(20),
            connect_timeout: Duration::from_secs(5),
            pause: Duration::from_secs(1),
            pause_max: Duration::from_secs(120),
            response_len_max: 16 << 20,
        }
    }
}

impl XdsSettings {
    /// Returns the pause after this number of earlier failures.
    pub(crate) fn pause_after(&self, failures: u32) -> Duration {
        let growth = 1.6_f64.powi(i32::try_from(failures.min(64)).unwrap_or(64));
        let pause = (self.pause.as_secs_f64() * growth).min(self.pause_max.as_secs_f64());
        Duration::try_from_secs_f64(pause * (0.8 + 0.4 * fastrand::f64())).unwrap_or(self.pause_max)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_grow_to_their_maximum() {
        let settings = XdsSettings::default();
        for (failures, usual) in [(0, 1.0), (1, 1.6), (5, 10.5), (100, 120.0), (u32::MAX, 120.0)] {
            let pause = settings.pause_after(failures).as_secs_f64();
            assert!(usual * 0.79 <= pause && pause <= usual * 1.21, "{failures}: {pause}");
        }
        let longest = XdsSettings { pause: Duration::MAX, pause_max: Duration::MAX, ..settings };
        (0..100).for_each(|failures| assert!(longest.pause_after(failures) >= Duration::MAX / 2));
    }
}
