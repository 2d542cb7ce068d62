//! Settings of a channel to many servers.

use std::sync::Arc;

use frisbee::InvalidSetting;
use frpc_balance::{
    BudgetSettings, HedgingPolicy, LoadSettings, OutlierSettings, PickPolicy, RetryPolicy, ServiceConfig,
    ThrottleSettings,
};

/// Settings of a channel to several servers. A channel to one address ignores them.
///
/// A time above a year counts as a year. Fields may be added, so `..FleetSettings::default()` belongs at the end of a literal.
///
/// ```
/// use frpc::{Channel, fleet::{FleetSettings, PickPolicy}};
///
/// let builder = Channel::builder().fleet(FleetSettings { policy: PickPolicy::RoundRobin, ..FleetSettings::default() });
/// # let _ = builder;
/// ```
#[derive(Clone, Debug)]
pub struct FleetSettings {
    /// The choice of a server for each call. Default: the better of two random servers, by calls in flight and recent
    /// latency.
    pub policy: PickPolicy,
    /// The measurement of latency for this choice.
    pub load: LoadSettings,
    /// The zone of this process. With a zone, servers in the same zone are preferred. Default none.
    pub zone: Option<Arc<str>>,
    /// The maximum number of servers to connect to. Of a larger set, each process uses a part of its own. Default 100.
    pub endpoints_max: usize,
    /// The maximum number of connections to one server, opened while the calls of all others have reached its limit
    /// ([`calls_max`](crate::CallSettings::calls_max)). Default 10, as in gRPC (A105). HTTP has a limit of its own.
    pub connections_max: usize,
    /// `true` if calls wait for a ready server until their deadline. Otherwise they fail with
    /// [`Unreachable`](crate::CallError::Unreachable) as soon as the [attempts](crate::ConnectRetry::attempts) to
    /// connect to every server failed. Default `false`.
    pub wait_for_ready: bool,
    /// The retries of calls that may have been executed.
    pub retry: RetrySettings,
    /// The servers that get no calls for some time because they fail more often than others.
    pub outliers: OutlierSettings,
    /// The rules for single methods, and the balancing, in the form of gRPC. Its balancing replaces the settings above.
    /// Default empty.
    pub service_config: ServiceConfig,
    /// The metadata entry with the key for [`PickPolicy::RingHash`]. A [`HashKey`](super::HashKey) precedes it. Default
    /// none.
    pub key_header: Option<String>,
    /// Refuses calls on this side while the servers refuse many of them. Default none.
    pub throttle: Option<ThrottleSettings>,
}

/// The retries of calls that may have been executed, for idempotent methods.
///
/// A method is idempotent if its proto file says so (`option idempotency_level = IDEMPOTENT` or `NO_SIDE_EFFECTS`). A
/// [service config](FleetSettings::service_config) may contain other rules for single methods. Calls that were certainly
/// not executed are retried for all methods, without a budget.
///
/// Fields may be added, so `..RetrySettings::default()` belongs at the end of a literal.
#[derive(Clone, Debug)]
pub struct RetrySettings {
    /// The attempts, the pauses and the status codes. Default: five attempts, from 10 ms to 1 s, after `UNAVAILABLE`.
    pub policy: RetryPolicy,
    /// Attempts in parallel: if no answer arrives in time, the call is also made on another server, and the first answer
    /// counts. Default none.
    pub hedging: Option<HedgingPolicy>,
    /// The limit on the share of retries and parallel attempts. Default 20 % of the calls and ten per second.
    pub budget: BudgetSettings,
    /// The maximum number of bytes of a request that are kept for a retry. A longer request is not retried once it may
    /// have been executed. Default 1 MiB.
    pub replay_max: usize,
}

impl Default for FleetSettings {
    fn default() -> Self {
        Self {
            policy: PickPolicy::default(),
            load: LoadSettings::default(),
            zone: None,
            endpoints_max: 100,
            connections_max: 10,
            wait_for_ready: false,
            retry: RetrySettings::default(),
            outliers: OutlierSettings::default(),
            service_config: ServiceConfig::default(),
            key_header: None,
            throttle: None,
        }
    }
}

impl Default for RetrySettings {
    fn default() -> Self {
        Self { policy: RetryPolicy::default(), hedging: None, budget: BudgetSettings::default(), replay_max: 1 << 20 }
    }
}

impl FleetSettings {
    pub(crate) fn check(&self) -> Result<(), InvalidSetting> {
        InvalidSetting::refuse_zero("endpoints_max", &self.endpoints_max, "the channel would have no server")?;
        InvalidSetting::refuse_zero("connections_max", &self.connections_max, "the channel would have no connection")?;
        InvalidSetting::refuse_zero("attempts_max", &self.retry.policy.attempts_max, "no call would ever be made")?;
        InvalidSetting::refuse_zero("sweep", &self.outliers.sweep, "the search for outliers would never end")?;
        InvalidSetting::refuse_zero("update", &self.load.reports.update, "the shares would be computed without end")
    }
}
