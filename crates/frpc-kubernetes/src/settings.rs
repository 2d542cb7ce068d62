//! Settings and limits.

use std::{sync::Arc, time::Duration};

/// Settings of a resolver, with the limits on what an API server can make it store.
///
/// A time above a year counts as a year. Fields may be added, so `..ResolverSettings::default()` belongs at the end of a literal.
#[derive(Clone, Debug)]
pub struct ResolverSettings {
    /// The zone of this process, for hints of topology-aware routing. Default `None`: hints are ignored.
    ///
    /// If every endpoint has hints and some name this zone, all without it are left out. To prefer servers of the same zone
    /// without hints, set [`FleetSettings::zone`](frpc::fleet::FleetSettings::zone).
    pub zone: Option<Arc<str>>,
    /// Uses the IPv6 address of pods that have both. Default false.
    pub prefer_ipv6: bool,
    /// The name expected in the certificates of the servers, for wires with TLS. Default `SERVICE.NAMESPACE.svc`.
    pub tls_name: Option<Arc<str>>,
    /// The maximum number of endpoints in all slices of a Service. Default 10,000. More are an error, and the channel
    /// keeps the last set.
    pub endpoints_max: usize,
    /// The maximum number of slices of a Service. Default 1,000. More are an error as well.
    pub slices_max: usize,
    /// The maximum length of one event of a watch, and of one page of a list. Default 16 MiB.
    pub answer_len_max: usize,
    /// The maximum time to connect to the API server, and to wait for the head of an answer. Default 10 s. The content of
    /// an answer may take six times as long.
    pub answer_max: Duration,
    /// The pause after the first failure. Default 500 ms. It doubles with each further failure, up to 5 s.
    pub retry_pause: Duration,
    /// The maximum duration of one watch, before another continues it. Default 5 min. A watch lasts at least half of it.
    ///
    /// It also bounds the time until a lost connection to the API server is noticed. A lost connection to a server of the
    /// channel starts another watch earlier.
    pub watch_max: Duration,
}

impl Default for ResolverSettings {
    fn default() -> Self {
        Self {
            zone: None,
            prefer_ipv6: false,
            tls_name: None,
            endpoints_max: 10_000,
            slices_max: 1000,
            answer_len_max: 16 * 1024 * 1024,
            answer_max: Duration::from_secs(10),
            retry_pause: Duration::from_millis(500),
            watch_max: Duration::from_secs(300),
        }
    }
}
