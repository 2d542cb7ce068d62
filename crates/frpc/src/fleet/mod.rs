//! Channels to many servers: targets, endpoints, picking and retries.
//!
//! ```text
//!   target    the servers as text, an address or a list
//!   resolve   endpoints, and resolvers that find them;  dns, file;  resolved: settings found with endpoints
//!   server    the transport to one server;  ready: an endpoint with such a transport;  connections: more of them
//!   set       the endpoints of a channel, and the picker over the ready ones;  members: the rules of this set
//!   tasks     follow the resolver, connect, and connect again after a loss
//!   routing   the cluster of each call, for resolvers with several clusters
//!   attempt   one attempt of a call on a picked endpoint
//!   rules     the rules of a method: retries, parallel attempts, limits
//!   calling   a call: attempts and retries;  hedging: attempts in parallel;  replay: requests for several attempts
//!   settings
//! ```
//!
//! The rules without I/O (picking, budgets, outliers, service configs) are in the crate `frisbee-rpc-balance`.

pub(crate) mod attempt;
mod calling;
mod clock;
mod connections;
mod dns;
mod file;
mod hedging;
mod members;
mod ready;
mod replay;
mod resolve;
mod resolved;
mod routing;
mod rules;
pub(crate) mod server;
pub(crate) mod set;
mod settings;
pub(crate) mod target;
mod tasks;

pub use frpc_balance::{
    BalancingConfig, BudgetSettings, CodeSet, ConfigError, HedgingDelay, HedgingPolicy, LoadSettings, MethodConfig,
    MethodName, OutlierRule, OutlierSettings, PickPolicy, ReportSettings, RetryPolicy, RetryThrottling, RingSize,
    ServiceConfig, ThrottleSettings,
};

#[cfg(feature = "dns")]
pub use self::dns::look_up_service_config;
pub(crate) use self::{resolve::EndpointNames, tasks::start};
pub use self::{
    resolve::{Endpoint, Endpoints, Refresh, Resolve, ResolverFactory, register_resolver},
    resolved::{ResolvedSettings, SharedCallLimit},
    routing::{CallRoute, RouteCalls},
    rules::HashKey,
    settings::{FleetSettings, RetrySettings},
    target::{Target, ToTarget},
};
