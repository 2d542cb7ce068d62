//! A limit on the rate of calls of each caller.

use std::{
    collections::HashMap,
    fmt,
    hash::{BuildHasher, Hash, RandomState},
    net::{IpAddr, Ipv6Addr},
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use frisbee::{Address, InvalidSetting};
use tokio::time::Instant;

use super::layer::{Layer, Next};
use crate::call::{
    exchange::{Answer, Call},
    status::Status,
};

/// Limits the rate of calls of each caller, with [`Code::ResourceExhausted`](crate::Code::ResourceExhausted) above it.
///
/// A caller is an IPv4 address, a network of IPv6 (/64), or anything else in the call. [`Layered`](crate::Layered) limits one service.
///
/// ```
/// use frpc::{Server, layers::{RateLimit, RateSettings}};
///
/// let settings = RateSettings { calls_per_second: 50, burst: 100, ..RateSettings::default() };
/// let limit = RateLimit::new(settings)?;
/// // For each tenant and method, in place of each IP address.
/// let limit = limit.by(|call| {
///     let tenant = call.head().metadata().get("tenant").map(str::to_owned);
///     (tenant, call.method().name)
/// });
/// let server = Server::builder().layer(limit);
/// # let _ = server;
/// # Ok::<(), frpc::InvalidSetting>(())
/// ```
#[derive(Clone)]
pub struct RateLimit {
    settings: RateSettings,
    caller: Arc<CallerKey>,
    callers: Arc<CallerBuckets>,
}

/// Settings of a [`RateLimit`].
///
/// Fields may be added, so `..RateSettings::default()` belongs at the end of a literal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RateSettings {
    /// The number of calls per second of each caller. Default 100.
    pub calls_per_second: u32,
    /// The number of calls that a caller may make together after a pause. Default 100.
    pub burst: u32,
    /// The maximum number of callers known at a time. While more of them make calls, the further ones share one rate.
    /// Default 10,000.
    pub callers_max: usize,
}

impl Default for RateSettings {
    fn default() -> Self {
        Self { calls_per_second: 100, burst: 100, callers_max: 10_000 }
    }
}

/// Returns a number for the caller of a call.
type CallerKey = dyn Fn(&Call, &RandomState) -> u64 + Send + Sync;

#[derive(Default)]
struct CallerBuckets {
    hasher: RandomState,
    buckets: Mutex<BucketTable>,
}

#[derive(Default)]
struct BucketTable {
    of_callers: HashMap<u64, TokenBucket>,
    /// The last time at which idle callers were forgotten.
    swept: Option<Instant>,
}

/// The calls that one caller may make.
#[derive(Clone, Copy)]
struct TokenBucket {
    /// The time at which the bucket will be full again.
    full_at: Instant,
}

impl fmt::Debug for RateLimit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RateLimit").field("settings", &self.settings).finish_non_exhaustive()
    }
}

impl RateLimit {
    /// Creates the layer. Everything that uses a clone of it shares the callers.
    ///
    /// # Errors
    ///
    /// A setting is zero.
    pub fn new(settings: RateSettings) -> Result<Self, InvalidSetting> {
        let effect = "every call would be refused";
        InvalidSetting::refuse_zero("calls_per_second", &settings.calls_per_second, effect)?;
        InvalidSetting::refuse_zero("burst", &settings.burst, effect)?;
        let limit = Self { settings, caller: Arc::new(|_, _| 0), callers: Arc::default() };
        Ok(limit.by(|call| match call.head().peer_addr() {
            Some(Address::Tcp(place)) => Some(Address::Tcp((network(place.ip()), 0).into())),
            other => other,
        }))
    }

    /// Sets the part of a call that identifies its caller. Default is the IPv4 address, or the network of IPv6 (/64).
    pub fn by<H: Hash>(self, caller: impl Fn(&Call) -> H + Send + Sync + 'static) -> Self {
        Self { caller: Arc::new(move |call, hasher| hasher.hash_one(caller(call))), ..self }
    }

    /// Returns the time until the caller may make another call, or `None` if it may make this one.
    fn wait(&self, caller: u64, now: Instant) -> Option<Duration> {
        let RateSettings { calls_per_second, burst, callers_max } = self.settings;
        let cost = Duration::from_secs(1) / calls_per_second;
        // No code under the lock can panic.
        let mut table = self.callers.buckets.lock().unwrap_or_else(PoisonError::into_inner);
        let BucketTable { of_callers: buckets, swept } = &mut *table;
        let is_known = buckets.contains_key(&caller);
        let is_sweep_due = swept.is_none_or(|swept| now.saturating_duration_since(swept) >= SWEEP_PAUSE);
        if !is_known && buckets.len() >= callers_max && is_sweep_due {
            buckets.retain(|_, bucket| bucket.full_at > now);
            *swept = Some(now);
        }
        let key = if is_known || buckets.len() < callers_max { caller } else { SHARED };
        let bucket = buckets.entry(key).or_insert(TokenBucket { full_at: now });
        let full_at = bucket.full_at.max(now) + cost;
        match (full_at - now).checked_sub(cost * burst) {
            None | Some(Duration::ZERO) => {
                bucket.full_at = full_at;
                None
            }
            wait => wait,
        }
    }
}

impl Layer for RateLimit {
    async fn call(&self, call: Call, next: Next<'_>) -> Result<Answer, Status> {
        let caller = (self.caller)(&call, &self.callers.hasher);
        match self.wait(caller, Instant::now()) {
            None => next.run(call).await,
            Some(wait) => {
                let rate = self.settings.calls_per_second;
                let why =
                    format!("more than {rate} calls per second of one caller: the next may be made in {wait:.0?}");
                Err(Status::resource_exhausted(why))
            }
        }
    }
}

/// Returns the part of an address under control of one customer.
fn network(ip: IpAddr) -> IpAddr {
    match ip.to_canonical() {
        IpAddr::V6(ip) => Ipv6Addr::from_bits(ip.to_bits() & u128::MAX << 64).into(),
        ip => ip,
    }
}

/// The time between two searches for idle callers, because each looks at all of them.
const SWEEP_PAUSE: Duration = Duration::from_secs(1);
/// The key of the callers beyond [`RateSettings::callers_max`].
const SHARED: u64 = 0;

#[cfg(test)]
mod tests {
    use super::*;

    fn limit(calls_per_second: u32, burst: u32, callers_max: usize) -> RateLimit {
        RateLimit::new(RateSettings { calls_per_second, burst, callers_max }).unwrap()
    }

    #[test]
    fn a_caller_makes_a_burst_and_then_calls_at_its_rate() {
        let (limit, start) = (limit(10, 3, 5), Instant::now());
        let made = |caller, at: Duration| (0..100).take_while(|_| limit.wait(caller, start + at).is_none()).count();
        let tenth = Duration::from_millis(100);
        assert_eq!(made(1, Duration::ZERO), 3);
        assert_eq!(made(2, Duration::ZERO), 3, "each caller has its own rate");
        assert_eq!(limit.wait(1, start), Some(tenth));
        assert_eq!(made(1, tenth), 1);
        assert_eq!(made(1, tenth * 3), 2);
        assert_eq!(made(1, tenth * 100), 3, "no more than a burst is saved");
    }

    #[test]
    fn callers_beyond_the_maximum_share_a_rate() {
        let (limit, start) = (limit(10, 1, 2), Instant::now());
        let may = |caller, at| limit.wait(caller, start + at).is_none();
        assert!(may(1, Duration::ZERO) && may(2, Duration::ZERO));
        assert!(may(3, Duration::ZERO));
        assert!(!may(4, Duration::ZERO), "it shares the rate of the third");
        assert!(may(4, Duration::from_secs(1)), "the others have made no call for long enough to be forgotten");
        assert!(limit.callers.buckets.lock().unwrap().of_callers.len() <= 3);
    }

    #[test]
    fn addresses_of_one_customer_are_one_caller() {
        let network = |ip: &str| network(ip.parse().unwrap()).to_string();
        assert_eq!(network("2001:db8:1:2:3:4:5:6"), "2001:db8:1:2::");
        assert_eq!([network("192.0.2.7"), network("::ffff:192.0.2.7")], ["192.0.2.7", "192.0.2.7"]);
    }

    #[test]
    fn zero_is_no_rate() {
        let of = |settings| RateLimit::new(settings).unwrap_err().name();
        assert_eq!(of(RateSettings { calls_per_second: 0, ..RateSettings::default() }), "calls_per_second");
        assert_eq!(of(RateSettings { burst: 0, ..RateSettings::default() }), "burst");
    }
}
