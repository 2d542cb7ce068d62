//! The choice of an endpoint for a call.

use std::{
    collections::HashMap,
    sync::atomic::{AtomicU32, AtomicUsize, Ordering},
    time::Duration,
};

use twox_hash::XxHash64;

use crate::{load::EndpointLoad, report::proportions};

/// The choice among ready endpoints.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum PickPolicy {
    /// The better of two random endpoints, by calls in flight, recent latency and weight.
    #[default]
    TwoChoices,
    /// The best of this number of random endpoints, for more than two.
    Choices(u8),
    /// Each endpoint in turn, without regard to weight.
    RoundRobin,
    /// The first endpoint in the order of the resolver. The rest are in reserve.
    First,
    /// A random endpoint, in proportion to its weight.
    Weighted,
    /// A random endpoint, in proportion to the capacity in the reports of the servers (gRFC A58). A picker keeps the
    /// proportions from its creation.
    Reported,
    /// The endpoint for the key of the call, with calls of the same key on the same endpoint. A call without a key uses
    /// [`TwoChoices`](Self::TwoChoices).
    RingHash,
}

impl PickPolicy {
    /// Returns the choice among this number of random endpoints, at most 10.
    pub fn of_choices(choices: u32) -> Self {
        match u8::try_from(choices.min(10)) {
            Ok(choices @ 3..) => Self::Choices(choices),
            _ => Self::TwoChoices,
        }
    }
}

/// A picker's view of an endpoint.
#[derive(Debug)]
pub struct EndpointState {
    /// Its load.
    pub load: EndpointLoad,
    /// Its share of the calls, relative to other endpoints. At least 1. A change counts for shares by load immediately, and for
    /// other policies with the next picker.
    pub weight: AtomicU32,
    /// A number for its address, equal in all processes.
    pub hash: u64,
    /// The start of its use. Its share grows for [`SHARE_GROWS`] from then on.
    pub joined: Duration,
}

impl EndpointState {
    #[inline]
    fn weight(&self) -> u32 {
        self.weight.load(Ordering::Relaxed).max(1)
    }

    /// Returns `true` if the endpoint may take this call, by its share relative to that of the `oldest` endpoint.
    #[inline]
    fn admits(&self, oldest: Duration, now: Duration) -> bool {
        now.saturating_sub(self.joined) >= SHARE_GROWS || fastrand::f32() * share(oldest, now) < share(self.joined, now)
    }

    /// Returns `true` if this endpoint is the better choice.
    #[inline]
    fn is_better_than(&self, other: &Self, now: Duration, [my_share, other_share]: [f32; 2]) -> bool {
        // The first call of a new endpoint counts in full: otherwise every known slow endpoint would be better.
        let [mine, others] = [(self, my_share), (other, other_share)]
            .map(|(member, share)| (member.load.known_in_flight(now) as f32 / share + 1.0) / member.weight() as f32);
        match (self.load.latency(now), other.load.latency(now)) {
            (Some(mine_latency), Some(other_latency)) => mine * mine_latency < others * other_latency,
            // Without a measurement on both sides, only calls in flight can be compared. An endpoint gets its first
            // measurement soon, or calls would go to slow endpoints instead.
            (None, Some(_)) => mine <= others,
            _ => mine < others,
        }
    }
}

/// Returns the current part of the share of an endpoint in use since `joined`.
#[inline]
fn share(joined: Duration, now: Duration) -> f32 {
    let age = now.saturating_sub(joined);
    if age >= SHARE_GROWS { 1.0 } else { (age.as_secs_f32() / SHARE_GROWS.as_secs_f32()).max(SHARE_FIRST) }
}

/// The facts about one call.
#[derive(Clone, Copy, Debug)]
pub struct PickRequest<'a> {
    /// The current time, from the start of the client.
    pub now: Duration,
    /// The key of the call, for [`PickPolicy::RingHash`]: [`hash_key`](crate::hash_key) of its bytes.
    pub key: Option<u64>,
    /// The hashes of endpoints after failed attempts of the same call. They are avoided unless there are no more.
    pub tried: &'a [u64],
}

/// The endpoints in the zone of the caller. They are at the start of the list.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct ZonePreference {
    /// The number of these endpoints.
    pub len: usize,
    /// The share of the calls for them. Less than 1 if too few of the zone's endpoints are ready.
    pub share: f32,
}

impl ZonePreference {
    /// Computes the share of a zone with `ready` of `known` endpoints. It falls below 70 % of ready endpoints.
    pub fn new(ready: usize, known: usize) -> Self {
        let healthy = if known == 0 { 0.0 } else { ready as f32 / known as f32 };
        Self { len: ready, share: (healthy / SPILL_BELOW).min(1.0) }
    }
}

/// The ready endpoints. A changed set gets a new picker.
#[derive(Debug)]
pub struct Picker<E> {
    policy: PickPolicy,
    endpoints: Vec<E>,
    preferred: ZonePreference,
    /// The earliest start of an endpoint.
    oldest: Duration,
    /// The time from which all endpoints have the same share.
    equal_from: Duration,
    /// The next endpoint of [`PickPolicy::RoundRobin`].
    next: AtomicUsize,
    /// Sums of weights up to each endpoint, for [`PickPolicy::Weighted`] and [`PickPolicy::Reported`].
    sums: Vec<u64>,
    /// Positions on the ring and their endpoints, for [`PickPolicy::RingHash`].
    ring: Vec<(u64, usize)>,
}

impl<E: AsRef<EndpointState>> Picker<E> {
    /// Creates a picker. For [`PickPolicy::RingHash`], [`with_ring`](Self::with_ring) adds the ring.
    pub fn new(policy: PickPolicy, endpoints: Vec<E>, preferred: ZonePreference, now: Duration) -> Self {
        let sums = match policy {
            PickPolicy::Weighted => sums(endpoints.iter().map(|endpoint| endpoint.as_ref().weight().into())),
            PickPolicy::Reported => {
                let weights = endpoints.iter().map(|endpoint| endpoint.as_ref().load.reported_weight(now));
                sums(proportions(&weights.collect::<Vec<_>>()).into_iter())
            }
            _ => Vec::new(),
        };
        // Clients started together must not visit the endpoints in the same order.
        let next = fastrand::usize(..).into();
        let joined = || endpoints.iter().map(|endpoint| endpoint.as_ref().joined);
        let [oldest, newest] = [joined().min(), joined().max()].map(Option::unwrap_or_default);
        let equal_from = if newest - oldest < EQUAL_AGE { Duration::ZERO } else { newest + SHARE_GROWS };
        Self { policy, endpoints, preferred, oldest, equal_from, next, sums, ring: Vec::new() }
    }

    /// Places the endpoints on a ring. Without it, the keys of calls have no effect.
    ///
    /// The ring has its positions for all endpoints of the set, so an endpoint that is not ready moves only its own keys.
    /// Other implementations of gRPC have the same ring for the same set.
    #[must_use]
    pub fn with_ring(mut self, ring: &HashRing) -> Self {
        let ready: HashMap<_, _> =
            self.endpoints.iter().enumerate().map(|(index, endpoint)| (endpoint.as_ref().hash, index)).collect();
        let positions = ring.positions.iter();
        self.ring = positions.filter_map(|(position, hash)| Some((*position, *ready.get(hash)?))).collect();
        self
    }

    /// Returns the endpoints.
    pub fn endpoints(&self) -> &[E] {
        &self.endpoints
    }

    /// Chooses an endpoint. `None` if there is none.
    #[inline]
    pub fn pick(&self, pick: PickRequest<'_>) -> Option<&E> {
        let chosen = match &*self.endpoints {
            [] => return None,
            [only] => return Some(only),
            all => &all[self.choose(pick)],
        };
        if pick.tried.is_empty() || !pick.tried.contains(&chosen.as_ref().hash) {
            return Some(chosen);
        }
        Some(self.untried(pick).unwrap_or(chosen))
    }

    #[inline]
    fn choose(&self, pick: PickRequest<'_>) -> usize {
        let len = self.endpoints.len();
        match (self.policy, pick.key) {
            (PickPolicy::RingHash, Some(key)) if !self.ring.is_empty() => {
                let at = self.ring.partition_point(|(position, _)| *position < key);
                self.ring[if at == self.ring.len() { 0 } else { at }].1
            }
            (PickPolicy::TwoChoices | PickPolicy::RingHash, _) => self.better_of_two(pick.now),
            (PickPolicy::Choices(choices), _) => {
                let first = self.better_of_two(pick.now);
                (2..choices).fold(first, |best, _| self.better_of([best, fastrand::usize(..len)], pick.now))
            }
            (PickPolicy::RoundRobin, _) => self.next.fetch_add(1, Ordering::Relaxed) % len,
            (PickPolicy::First, _) => 0,
            (PickPolicy::Weighted | PickPolicy::Reported, _) => {
                let at = fastrand::u64(..self.sums[len - 1]);
                self.sums.partition_point(|sum| *sum <= at)
            }
        }
    }

    #[inline]
    fn better_of_two(&self, now: Duration) -> usize {
        let best = self.better_of_a_pair(now);
        if self.endpoints[best].as_ref().load.is_doubtful() { self.second_pair(best, now) } else { best }
    }

    /// Compares a doubtful endpoint with another pair: of two bad endpoints, one always is the better.
    #[cold]
    fn second_pair(&self, first: usize, now: Duration) -> usize {
        let second = self.better_of_a_pair(now);
        self.better_of([first, second], now)
    }

    #[inline]
    fn better_of_a_pair(&self, now: Duration) -> usize {
        let (start, len) = match self.preferred {
            ZonePreference { len: 0, .. } => (0, self.endpoints.len()),
            ZonePreference { len, share } if share >= 1.0 || len == self.endpoints.len() || fastrand::f32() < share => {
                (0, len)
            }
            ZonePreference { len, .. } => (len, self.endpoints.len() - len),
        };
        if len == 1 {
            return start;
        }
        let (one, other) = if now >= self.equal_from { draw_pair(len) } else { self.pair_by_age(start, len, now) };
        self.better_of([start + one, start + other], now)
    }

    /// Draws two endpoints, of which new ones refuse most calls. Returns the same one twice if it has no alternative.
    #[cold]
    fn pair_by_age(&self, start: usize, len: usize, now: Duration) -> (usize, usize) {
        let admits = |offset: usize| self.endpoints[start + offset].as_ref().admits(self.oldest, now);
        let draw_one = || fastrand::usize(..len);
        let one = (1..DRAWS_MAX).map(|_| draw_one()).find(|one| admits(*one));
        let is_admitted = one.is_some();
        let one = one.unwrap_or_else(draw_one);
        let draw_other = || (one + 1 + fastrand::usize(..len - 1)) % len;
        // Of two endpoints, the other one is drawn once: a new one must not get more than its share.
        let other = (0..DRAWS_MAX.min(len - 1)).map(|_| draw_other()).find(|other| admits(*other));
        (one, other.unwrap_or_else(|| if is_admitted { one } else { draw_other() }))
    }

    #[inline]
    fn better_of(&self, [one, other]: [usize; 2], now: Duration) -> usize {
        let is_better = match [&self.endpoints[one], &self.endpoints[other]].map(AsRef::as_ref) {
            [mine, others] if now >= self.equal_from => mine.is_better_than(others, now, [1.0; 2]),
            [mine, others] => mine.is_better_than(others, now, [mine, others].map(|member| share(member.joined, now))),
        };
        if is_better { one } else { other }
    }

    /// Returns the best endpoint without a failed attempt of this call.
    #[cold]
    fn untried(&self, pick: PickRequest<'_>) -> Option<&E> {
        let untried = |index: &usize| !pick.tried.contains(&self.endpoints[*index].as_ref().hash);
        let best =
            (0..self.endpoints.len()).filter(untried).reduce(|best, next| self.better_of([next, best], pick.now));
        best.map(|best| &self.endpoints[best])
    }
}

/// Draws two different numbers below `len`, which is at least 2.
#[inline]
#[allow(clippy::cast_possible_truncation, reason = "products are below `len`")]
fn draw_pair(len: usize) -> (usize, usize) {
    // One random number for both. A set of endpoints is so small that the products are even enough.
    let random = fastrand::u64(..);
    let below = |half: u64, len: usize| ((half * len as u64) >> 32) as usize;
    let (one, other) = (below(random >> 32, len), below(random & u64::from(u32::MAX), len - 1));
    (one, if other < one { other } else { other + 1 })
}

/// Returns the sum up to each weight.
fn sums(weights: impl Iterator<Item = u64>) -> Vec<u64> {
    let add = |sum: &mut u64, weight| {
        *sum += weight;
        Some(*sum)
    };
    weights.scan(0, add).collect()
}

/// The positions of all endpoints of a set, for [`PickPolicy::RingHash`] (gRFC A42).
#[derive(Clone, Debug, Default)]
pub struct HashRing {
    /// The positions in order, each with the hash of its endpoint.
    positions: Vec<(u64, u64)>,
}

/// One endpoint of a [`HashRing`].
#[derive(Clone, Debug)]
pub struct RingEndpoint {
    /// The address as text, such as `10.0.0.1:7300`.
    pub name: String,
    /// The share of the ring, relative to other endpoints.
    pub weight: u32,
    /// [`EndpointState::hash`] of the endpoint.
    pub hash: u64,
}

/// The limits on the number of positions of a [`HashRing`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RingSize {
    /// The minimum. Default 1,024.
    pub min: u32,
    /// The maximum. Default 4,096, also for higher values.
    pub max: u32,
}

impl Default for RingSize {
    fn default() -> Self {
        Self { min: 1_024, max: RING_SIZE_MAX }
    }
}

impl HashRing {
    /// Creates a ring.
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "from 0 to RING_SIZE_MAX")]
    pub fn new(mut endpoints: Vec<RingEndpoint>, size: RingSize) -> Self {
        endpoints.sort_unstable_by(|one, other| one.name.cmp(&other.name));
        let weight = |endpoint: &RingEndpoint| f64::from(endpoint.weight.max(1));
        let sum: f64 = endpoints.iter().map(weight).sum();
        let Some(least) = endpoints.iter().map(weight).min_by(f64::total_cmp).map(|least| least / sum) else {
            return Self::default();
        };
        let (min, max) = (size.min.min(RING_SIZE_MAX), size.max.min(RING_SIZE_MAX));
        let scale = ((least * f64::from(min)).ceil() / least).min(f64::from(max));
        let mut positions = Vec::with_capacity(scale.ceil() as usize);
        // As the other implementations compute it, including the errors of rounding.
        let (mut target, mut made) = (0.0, 0.0);
        for endpoint in &endpoints {
            target += scale * (weight(endpoint) / sum);
            let mut index = 0_u32;
            while made < target {
                positions.push((hash_key(format!("{}_{index}", endpoint.name).as_bytes()), endpoint.hash));
                index += 1;
                made += 1.0;
            }
        }
        positions.sort_unstable();
        Self { positions }
    }
}

/// Returns the hash of the key of a call, for [`PickRequest::key`]: xxHash64, as in other implementations of gRPC.
pub fn hash_key(key: &[u8]) -> u64 {
    XxHash64::oneshot(0, key)
}

/// Spreads the bits of a number (the finalizer of SplitMix64).
pub(crate) fn mix(number: u64) -> u64 {
    let number = number.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let number = (number ^ (number >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let number = (number ^ (number >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    number ^ (number >> 31)
}

/// The time in which the share of a new endpoint grows to its full size.
pub const SHARE_GROWS: Duration = Duration::from_secs(10);
/// Endpoints with a smaller difference of their ages count as equally old.
const EQUAL_AGE: Duration = Duration::from_secs(1);
/// The first share of a new endpoint.
const SHARE_FIRST: f32 = 0.1;
/// The number of random endpoints until one takes the call. New endpoints refuse most calls.
const DRAWS_MAX: usize = 8;
/// The part of a zone's endpoints needed to keep all calls in the zone.
const SPILL_BELOW: f32 = 0.7;
/// The maximum number of positions on a ring, whatever its settings.
const RING_SIZE_MAX: u32 = 4_096;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{load::LoadSettings, report::ServerReport};

    struct Server(EndpointState);

    impl AsRef<EndpointState> for Server {
        fn as_ref(&self) -> &EndpointState {
            &self.0
        }
    }

    fn servers(weights: &[u32], joined: Duration) -> Vec<Server> {
        let member = |(index, weight): (usize, &u32)| EndpointState {
            load: EndpointLoad::new(&LoadSettings::default()),
            weight: (*weight).into(),
            hash: index as u64,
            joined,
        };
        weights.iter().enumerate().map(member).map(Server).collect()
    }

    fn old() -> (Duration, Duration) {
        let joined = Duration::from_secs(7);
        (joined, joined + SHARE_GROWS)
    }

    fn pick(now: Duration) -> PickRequest<'static> {
        PickRequest { now, key: None, tried: &[] }
    }

    /// Begins one call in each millisecond. A call takes the latency of its server.
    fn spread(picker: &Picker<Server>, now: Duration, latencies: &[u64]) -> Vec<usize> {
        let (mut counts, mut ends) = (vec![0; latencies.len()], Vec::new());
        for millis in 0..10_000_u64 {
            let time = now + Duration::from_millis(millis);
            ends.retain(|(end, index): &(u64, usize)| {
                let is_over = *end <= millis;
                if is_over {
                    let load = &picker.endpoints[*index].0.load;
                    load.end();
                    load.record(Duration::from_millis(latencies[*index]), time);
                }
                !is_over
            });
            let Server(member) = picker.pick(pick(time)).unwrap();
            member.load.begin();
            let index = usize::try_from(member.hash).unwrap();
            counts[index] += 1;
            ends.push((millis + latencies[index], index));
        }
        counts
    }

    #[test]
    fn a_slow_server_gets_few_calls() {
        let (joined, now) = old();
        let picker = Picker::new(PickPolicy::TwoChoices, servers(&[1; 4], joined), ZonePreference::default(), now);
        let counts = spread(&picker, now, &[5, 5, 5, 50]);
        assert!(counts[..3].iter().all(|count| (2_500..4_000).contains(count)), "{counts:?}");
        assert!((1..400).contains(&counts[3]), "{counts:?}");
    }

    #[test]
    fn more_choices_find_the_fast_server_more_often() {
        let (joined, now) = old();
        let share = |policy| {
            let picker = Picker::new(policy, servers(&[1; 10], joined), ZonePreference::default(), now);
            picker.endpoints[1..].iter().for_each(|server| server.0.load.record(Duration::from_millis(9), now));
            picker.endpoints[0].0.load.record(Duration::from_millis(1), now);
            (0..10_000).filter(|_| picker.pick(pick(now)).unwrap().0.hash == 0).count()
        };
        assert!((1_700..2_300).contains(&share(PickPolicy::TwoChoices)));
        assert!((4_000..5_500).contains(&share(PickPolicy::of_choices(6))));
        assert_eq!(
            [0, 2, 3, 99].map(PickPolicy::of_choices),
            [PickPolicy::TwoChoices, PickPolicy::TwoChoices, PickPolicy::Choices(3), PickPolicy::Choices(10)]
        );
    }

    #[test]
    fn weights_and_age_decide_about_the_share() {
        let (joined, now) = old();
        let mut all = servers(&[1, 2, 1], joined);
        all[2].0.joined = now + Duration::from_secs(9);
        let picker = Picker::new(PickPolicy::TwoChoices, all, ZonePreference::default(), now);
        let counts = spread(&picker, now, &[20, 20, 20]);
        assert!(counts[1] > counts[0] * 3 / 2 && counts[2] * 2 < counts[0], "{counts:?}");
    }

    #[test]
    fn new_servers_get_calls_instead_of_slow_ones() {
        let (joined, now) = old();
        let mut all = servers(&[1; 20], joined);
        all[10..].iter_mut().for_each(|server| server.0.joined = now);
        let picker = Picker::new(PickPolicy::TwoChoices, all, ZonePreference::default(), now);
        picker.endpoints[0].0.load.record(Duration::from_millis(20), now);
        picker.endpoints[1..].iter().for_each(|server| server.0.load.record(Duration::from_millis(5), now));
        let picked: Vec<_> = (0..10_000).map(|_| picker.pick(pick(now)).unwrap().0.hash).collect();
        let count = |hashes: std::ops::Range<u64>| picked.iter().filter(|hash| hashes.contains(hash)).count();
        assert!(count(0..1) < 20, "{}", count(0..1));
        assert!((500..2_000).contains(&count(10..20)), "a tenth of their share: {}", count(10..20));
    }

    #[test]
    fn two_bad_servers_get_no_calls() {
        let (joined, now) = old();
        let picker = Picker::new(PickPolicy::TwoChoices, servers(&[1; 20], joined), ZonePreference::default(), joined);
        picker.endpoints[0].0.load.record_wait(Duration::from_millis(10), 1, now);
        picker.endpoints[1].0.load.penalize(now);
        picker.endpoints[2..].iter().for_each(|server| server.0.load.record(Duration::from_millis(5), now));
        let bad = (0..10_000).filter(|_| picker.pick(pick(now)).unwrap().0.hash < 2).count();
        assert!(bad < 5, "{bad}");
    }

    #[test]
    fn an_unmeasured_server_gets_the_first_call() {
        let (joined, now) = old();
        let picker = Picker::new(PickPolicy::TwoChoices, servers(&[1; 2], joined), ZonePreference::default(), now);
        picker.endpoints[0].0.load.record(Duration::from_millis(5), now);
        assert!((0..100).all(|_| picker.pick(pick(now)).unwrap().0.hash == 1));
        picker.endpoints[1].0.load.begin();
        assert!((0..100).all(|_| picker.pick(pick(now)).unwrap().0.hash == 0), "the rest after its answer");
    }

    #[test]
    fn servers_of_the_same_age_share_all_calls() {
        let (joined, _) = old();
        let picker = Picker::new(PickPolicy::TwoChoices, servers(&[1; 3], joined), ZonePreference::default(), joined);
        let counts = spread(&picker, joined, &[5, 5, 50]);
        assert!(counts[2] < 400, "{counts:?}");
    }

    #[test]
    fn one_new_server_of_two_gets_its_share() {
        let (joined, now) = old();
        let mut all = servers(&[1; 2], joined);
        all[1].0.joined = now;
        let picker = Picker::new(PickPolicy::TwoChoices, all, ZonePreference::default(), now);
        picker.endpoints.iter().for_each(|server| server.0.load.record(Duration::from_millis(5), now));
        let new = (0..10_000).filter(|_| picker.pick(pick(now)).unwrap().0.hash == 1).count();
        assert!((300..1_500).contains(&new), "{new}");
    }

    #[test]
    fn policies_without_load() {
        let (joined, now) = old();
        for (policy, shares) in [
            (PickPolicy::First, [12_000, 0, 0]),
            (PickPolicy::RoundRobin, [4_000, 4_000, 4_000]),
            (PickPolicy::Weighted, [2_000, 4_000, 6_000]),
        ] {
            let picker = Picker::new(policy, servers(&[1, 2, 3], joined), ZonePreference::default(), now);
            let mut counts = [0_usize; 3];
            for _ in 0..12_000 {
                counts[usize::try_from(picker.pick(pick(now)).unwrap().0.hash).unwrap()] += 1;
            }
            let is_close = counts.iter().zip(shares).all(|(count, share)| count.abs_diff(share) < 400);
            assert!(is_close, "{policy:?}: {counts:?}");
        }
    }

    #[test]
    fn reports_of_servers_decide_about_their_share() {
        let (joined, now) = old();
        let all = servers(&[1; 3], joined);
        for (server, calls) in all.iter().zip([100.0, 300.0]) {
            let report = ServerReport { utilization: 0.5, calls_per_second: calls, ..ServerReport::default() };
            server.0.load.record_report(&report, joined);
            server.0.load.record_report(&report, now);
        }
        let picker = Picker::new(PickPolicy::Reported, all, ZonePreference::default(), now);
        let mut counts = [0_usize; 3];
        for _ in 0..12_000 {
            counts[usize::try_from(picker.pick(pick(now)).unwrap().0.hash).unwrap()] += 1;
        }
        let is_close = counts.iter().zip([2_000, 6_000, 4_000]).all(|(count, share)| count.abs_diff(share) < 400);
        assert!(is_close, "{counts:?}");
    }

    #[test]
    fn calls_of_other_clients_move_calls_away() {
        let (joined, now) = old();
        let picker = Picker::new(PickPolicy::TwoChoices, servers(&[1; 2], joined), ZonePreference::default(), now);
        let report = ServerReport { in_flight: Some(5), ..ServerReport::default() };
        picker.endpoints[0].0.load.record_report(&report, now);
        assert!((0..100).all(|_| picker.pick(pick(now)).unwrap().0.hash == 1));
    }

    #[test]
    fn a_ring_moves_only_the_keys_of_a_lost_server() {
        let (joined, now) = old();
        let ring = |len: u64| {
            let endpoint = |hash: u64| RingEndpoint { name: format!("10.0.0.{hash}:80"), weight: 1, hash };
            HashRing::new((0..len).map(endpoint).collect(), RingSize::default())
        };
        let picker = |servers: Vec<Server>, ring: &HashRing| {
            Picker::new(PickPolicy::RingHash, servers, ZonePreference::default(), now).with_ring(ring)
        };
        let owner = |picker: &Picker<Server>, key: u64| {
            let key = Some(hash_key(&key.to_le_bytes()));
            picker.pick(PickRequest { key, ..pick(now) }).unwrap().0.hash
        };
        let before = picker(servers(&[1; 10], joined), &ring(10));
        let mut remaining = servers(&[1; 10], joined);
        remaining.remove(3);
        let after = picker(remaining, &ring(10));
        let mut moved = HashMap::<u64, usize>::new();
        for key in 0..10_000 {
            let owner_before = owner(&before, key);
            if owner_before != owner(&after, key) {
                *moved.entry(owner_before).or_default() += 1;
            }
        }
        assert_eq!(moved.keys().collect::<Vec<_>>(), [&3], "only keys of the lost server move");
        assert!((600..1_500).contains(&moved[&3]), "{moved:?}");
    }

    /// The expected owners are those of grpc-go 1.85 for the same weights and keys.
    #[test]
    fn rings_are_those_of_grpc_go() {
        let (joined, now) = old();
        let weights = [3, 3, 4, 1];
        let names = (0..).zip(weights).map(|(hash, weight)| RingEndpoint {
            name: format!("10.0.0.{}:80", hash + 1),
            weight,
            hash,
        });
        let names: Vec<_> = names.collect();
        for (min, max, len, owners) in [
            (1_024, 4_096, 1_034, "422321232222312332322331"),
            (7, 4_096, 11, "213122121111211221111131"),
            (1_024, 100, 100, "433143213233212232313331"),
        ] {
            let ring = HashRing::new(names.clone(), RingSize { min, max });
            assert_eq!(ring.positions.len(), len);
            let picker = Picker::new(PickPolicy::RingHash, servers(&weights, joined), ZonePreference::default(), now);
            let picker = picker.with_ring(&ring);
            let found = (0..24).map(|user| {
                let key = Some(hash_key(format!("user-{user}").as_bytes()));
                (picker.pick(PickRequest { key, ..pick(now) }).unwrap().0.hash + 1).to_string()
            });
            assert_eq!(found.collect::<String>(), owners);
        }
    }

    #[test]
    fn hashes_are_xxhash64() {
        for (text, hash) in [("", 0xef46_db37_51d8_e999), ("a", 0xd24e_c4f1_a98c_6e5b), ("abc", 0x44bc_2cf5_ad77_0999)]
        {
            assert_eq!(hash_key(text.as_bytes()), hash, "{text}");
        }
    }

    #[test]
    fn failed_endpoints_are_avoided_while_there_are_others() {
        let (joined, now) = old();
        for policy in [PickPolicy::TwoChoices, PickPolicy::First, PickPolicy::RoundRobin, PickPolicy::Weighted] {
            let picker = Picker::new(policy, servers(&[1; 3], joined), ZonePreference::default(), now);
            for _ in 0..100 {
                assert_eq!(picker.pick(PickRequest { tried: &[0, 2], ..pick(now) }).unwrap().0.hash, 1, "{policy:?}");
                assert!(picker.pick(PickRequest { tried: &[0, 1, 2], ..pick(now) }).is_some());
            }
        }
    }

    #[test]
    fn calls_stay_in_the_zone_until_too_few_endpoints_are_ready() {
        let (joined, now) = old();
        for (known, spilled) in [(2, 0..1), (3, 300..700), (10, 6_500..7_700)] {
            let picker =
                Picker::new(PickPolicy::TwoChoices, servers(&[1; 5], joined), ZonePreference::new(2, known), now);
            let outside = (0..10_000).filter(|_| picker.pick(pick(now)).unwrap().0.hash >= 2).count();
            assert!(spilled.contains(&outside), "2 of {known}: {outside}");
        }
        let picker = Picker::new(PickPolicy::TwoChoices, servers(&[1; 5], joined), ZonePreference::new(0, 3), now);
        assert!(picker.pick(pick(now)).is_some());
    }

    #[test]
    fn one_endpoint_or_none() {
        let (joined, now) = old();
        let none = Picker::<Server>::new(PickPolicy::TwoChoices, Vec::new(), ZonePreference::default(), now);
        assert!(none.pick(pick(now)).is_none());
        let one = Picker::new(PickPolicy::Weighted, servers(&[0], joined), ZonePreference::default(), now);
        assert!(one.pick(PickRequest { tried: &[0], ..pick(now) }).is_some());
    }
}
