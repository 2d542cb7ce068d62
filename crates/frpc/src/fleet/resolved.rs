//! Settings found together with endpoints.

use std::sync::{
    Arc,
    atomic::{AtomicU32, Ordering},
};

use frpc_balance::{OutlierSettings, PickPolicy, ReportSettings, RingSize};

use super::settings::FleetSettings;

/// Settings of a service, found by a resolver together with the endpoints. They replace those of the channel.
///
/// Fields may be added, so `..ResolvedSettings::default()` belongs at the end of a literal.
///
/// ```
/// use frpc::fleet::{Endpoint, Endpoints, PickPolicy, ResolvedSettings};
///
/// # fn example() -> std::io::Result<()> {
/// let settings = ResolvedSettings { policy: Some(PickPolicy::RoundRobin), ..ResolvedSettings::default() };
/// let found = Endpoints::new([Endpoint::new("tcp://127.0.0.1:7300")?]).with_settings(settings);
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ResolvedSettings {
    /// The choice of a server for each call.
    pub policy: Option<PickPolicy>,
    /// The use of load reports.
    pub reports: Option<ReportSettings>,
    /// The rules for outliers.
    pub outliers: Option<OutlierSettings>,
    /// The size of the ring for [`PickPolicy::RingHash`].
    pub ring: Option<RingSize>,
    /// A limit on the calls in flight.
    pub calls: Option<Arc<SharedCallLimit>>,
    /// The number of calls to fail immediately, of a million: a relief for overloaded servers.
    pub dropped_per_million: u32,
}

/// A limit on the calls in flight of all channels that share it. Further calls fail with `UNAVAILABLE`, without a retry.
#[derive(Debug)]
pub struct SharedCallLimit {
    max: AtomicU32,
    in_flight: AtomicU32,
}

impl SharedCallLimit {
    /// Creates a limit.
    pub fn new(max: u32) -> Self {
        Self { max: AtomicU32::new(max), in_flight: AtomicU32::new(0) }
    }

    /// Replaces the maximum. Calls in flight continue.
    pub fn set_max(&self, max: u32) {
        self.max.store(max, Ordering::Relaxed);
    }

    /// Returns the number of calls in flight.
    pub fn in_flight(&self) -> u32 {
        self.in_flight.load(Ordering::Relaxed)
    }

    /// Counts a call until the permit is dropped. `None` at the limit.
    pub(super) fn try_begin(self: &Arc<Self>) -> Option<SharedCallPermit> {
        // Counted before the check, so the permit is returned on both paths.
        let before = self.in_flight.fetch_add(1, Ordering::Relaxed);
        let permit = SharedCallPermit(self.clone());
        (before < self.max.load(Ordering::Relaxed)).then_some(permit)
    }
}

impl PartialEq for SharedCallLimit {
    /// Compares by identity.
    fn eq(&self, other: &Self) -> bool {
        std::ptr::eq(self, other)
    }
}

/// A call in flight. It ends when dropped.
#[derive(Debug)]
pub(super) struct SharedCallPermit(Arc<SharedCallLimit>);

impl Drop for SharedCallPermit {
    fn drop(&mut self) {
        self.0.in_flight.fetch_sub(1, Ordering::Relaxed);
    }
}

/// The settings of a channel, with those of its resolver.
#[derive(Clone, Debug)]
pub(super) struct CurrentSettings {
    pub(super) fleet: FleetSettings,
    pub(super) ring: RingSize,
    pub(super) calls: Option<Arc<SharedCallLimit>>,
    pub(super) dropped_per_million: u32,
    /// The settings of the resolver, for comparison.
    pub(super) resolved: ResolvedSettings,
}

impl CurrentSettings {
    pub(super) fn new(mut fleet: FleetSettings, resolved: ResolvedSettings) -> Self {
        let ResolvedSettings { policy, reports, outliers, ring, calls, dropped_per_million } = resolved.clone();
        fleet.policy = policy.unwrap_or(fleet.policy);
        fleet.load.reports = reports.unwrap_or(fleet.load.reports);
        fleet.outliers = outliers.unwrap_or(fleet.outliers);
        Self { fleet, ring: ring.unwrap_or_default(), calls, dropped_per_million, resolved }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_limit_counts_the_calls_in_flight_of_all_channels() {
        let limit = Arc::new(SharedCallLimit::new(2));
        let other = limit.clone();
        let first = limit.try_begin().unwrap();
        let second = other.try_begin().unwrap();
        assert!(limit.try_begin().is_none());
        assert_eq!(limit.in_flight(), 2, "a refused call does not count");
        limit.set_max(1);
        drop(first);
        assert!(other.try_begin().is_none(), "the new maximum holds");
        drop(second);
        assert!(other.try_begin().is_some());
        assert_eq!(limit.in_flight(), 0);
    }
}
