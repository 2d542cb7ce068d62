//! The rules for the calls of one method, from the service config or from the settings of the channel.

use std::time::Duration;

use frpc_balance::{BalancingConfig, HedgingPolicy, MethodConfig, PickPolicy, RetryPolicy};

use super::settings::FleetSettings;
use crate::call::method::Method;

/// A key for [`PickPolicy::RingHash`], as an extension of a request. Calls with the same key go to the same server while
/// the set of servers stays the same.
///
/// ```
/// use frpc::{Request, fleet::HashKey};
///
/// let mut request = Request::new(());
/// request.extensions_mut().insert(HashKey::new("user-42"));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HashKey(pub(super) u64);

impl HashKey {
    /// Creates the key for these bytes.
    pub fn new(key: impl AsRef<[u8]>) -> Self {
        Self(frpc_balance::hash_key(key.as_ref()))
    }

    /// Creates a key from a hash.
    pub fn of_hash(hash: u64) -> Self {
        Self(hash)
    }

    /// Returns the hash.
    pub fn hash(self) -> u64 {
        self.0
    }
}

/// The rules for the calls of one method.
#[derive(Clone, Debug, Default)]
pub(super) struct CallRules {
    /// The retries of calls that may have been executed. `None` if there are none.
    pub(super) retry: Option<RetryPolicy>,
    pub(super) hedging: Option<HedgingPolicy>,
    pub(super) timeout: Option<Duration>,
    pub(super) waits_for_ready: bool,
    pub(super) request_len_max: Option<u64>,
    pub(super) response_len_max: Option<u64>,
}

impl FleetSettings {
    /// Returns `true` if a call to the method needs more than a pick by load.
    #[inline]
    pub(super) fn has_rules(&self, method: &Method) -> bool {
        !self.service_config.methods.is_empty()
            || self.policy == PickPolicy::RingHash
            || self.retry.hedging.is_some() && method.is_idempotent
    }

    /// Returns the rules for a call. `route` precedes the service config.
    pub(super) fn rules(&self, method: &Method, route: Option<&MethodConfig>) -> CallRules {
        let of_settings = |is_idempotent: bool| CallRules {
            retry: is_idempotent.then(|| self.retry.policy.clone()),
            hedging: self.retry.hedging.clone().filter(|_| is_idempotent),
            waits_for_ready: self.wait_for_ready,
            ..CallRules::default()
        };
        let Some(config) = route.or_else(|| self.service_config.method(method.service, method.name)) else {
            return of_settings(method.is_idempotent);
        };
        let is_silent = config.retry.is_none() && config.hedging.is_none();
        let CallRules { retry, hedging, .. } = of_settings(method.is_idempotent && is_silent);
        CallRules {
            retry: config.retry.clone().or(retry),
            hedging: config.hedging.clone().or(hedging),
            timeout: config.timeout,
            waits_for_ready: config.wait_for_ready.unwrap_or(self.wait_for_ready),
            request_len_max: config.request_len_max,
            response_len_max: config.response_len_max,
        }
    }

    /// Replaces the balancing of the settings with that of the service config, if it has any.
    pub(super) fn with_balancing(mut self) -> Self {
        let mut next = self.service_config.load_balancing.take();
        while let Some(config) = next.take() {
            match config {
                BalancingConfig::PickFirst { .. } => self.policy = PickPolicy::First,
                BalancingConfig::RoundRobin => self.policy = PickPolicy::RoundRobin,
                BalancingConfig::LeastRequest { choices } => self.policy = PickPolicy::of_choices(choices),
                BalancingConfig::WeightedRoundRobin(reports) => {
                    (self.policy, self.load.reports) = (PickPolicy::Reported, reports);
                }
                BalancingConfig::RingHash { key_header, .. } => {
                    (self.policy, self.key_header) = (PickPolicy::RingHash, key_header);
                }
                BalancingConfig::RandomSubset { len, child } => {
                    self.endpoints_max = usize::try_from(len).unwrap_or(usize::MAX).max(1);
                    next = Some(*child);
                }
                BalancingConfig::OutlierDetection { rules, child } => {
                    self.outliers = rules;
                    next = Some(*child);
                }
            }
        }
        self
    }
}
