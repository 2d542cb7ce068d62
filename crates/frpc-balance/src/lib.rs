//! The rules of a channel to many endpoints, without I/O.
//!
//! No part of this crate opens a socket, reads a clock, starts a task or waits for a lock on the path of a call. Times
//! are arguments, so tests and simulations run it in virtual time.
#![forbid(unsafe_code)]

mod budget;
mod clock;
mod codes;
mod config;
mod error;
mod limit;
mod load;
mod outlier;
mod pick;
mod report;
mod retry;
mod subset;
mod throttle;

pub use budget::{BUDGET_WINDOW, BudgetSettings, RetryBudget};
pub use codes::{CODE_NAMES, CodeSet};
pub use config::{
    BalancingConfig, CONFIG_DEPTH_MAX, CONFIG_LEN_MAX, ConfigError, MethodConfig, MethodName, RING_ENTRIES_MAX,
    ServiceConfig,
};
pub use error::InvalidSetting;
pub use limit::{CallEnd, CallPriority, ConcurrencyLimit, LimitSettings};
pub use load::{EndpointLoad, LoadSettings};
pub use outlier::{CallCounts, CallOutcomes, FoundOutlier, OutlierMethod, OutlierRule, OutlierSettings};
pub use pick::{
    EndpointState, HashRing, PickPolicy, PickRequest, Picker, RingEndpoint, RingSize, SHARE_GROWS, ZonePreference,
    hash_key,
};
pub use report::{ReportSettings, ServerReport};
pub use retry::{
    ATTEMPTS_MAX, HedgingDelay, HedgingPolicy, LATENCIES_MIN, LatencyQuantile, RetryPolicy, RetryProgress,
    RetryPushback,
};
pub use subset::random_subset;
pub use throttle::{ClientThrottle, RetryThrottling, RetryTokens, ThrottleSettings};
