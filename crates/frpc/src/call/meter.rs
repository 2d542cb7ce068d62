//! Counters of the calls of a server, or of the channels to a target.

use std::{
    fmt, iter, ptr,
    sync::{Arc, OnceLock},
};

use frisbee::clock::Instant;
use frpc_metrics::{CallCounters, CallTotals, LocalCells};

use super::{
    connects::ConnectCounters,
    method::Method,
    system::{RpcSystem, SYSTEMS_MAX},
};

/// The counters of all methods of a server or a target, by the systems of their calls.
///
/// A known method has [`SYSTEMS_MAX`] numbers in a row, one per system. A wire adds the number of its system to the
/// [first](first_number) of them once, when it finds the method. So the system costs a call nothing.
pub(crate) struct CallMeter {
    cells: CallCounters,
    /// The target of the channels. `None` for a server.
    target: Option<Arc<str>>,
    /// The system of the channels. Calls of a server have their own.
    system: RpcSystem,
    /// The connections of channels to several servers.
    connects: Arc<ConnectCounters>,
    /// The methods known from the start, in the order of their numbers.
    known: Vec<&'static Method>,
    /// Methods seen later and their systems, in a hash table. A number is the position after the known ones.
    seen: Box<[OnceLock<(&'static Method, RpcSystem)>]>,
}

impl CallMeter {
    pub(crate) fn of_server(mut known: Vec<&'static Method>) -> Self {
        known.truncate(KNOWN_MAX);
        Self::new(known, None, RpcSystem::default())
    }

    pub(crate) fn of_target(target: Arc<str>, system: RpcSystem) -> Self {
        Self::new(Vec::new(), Some(target), system)
    }

    fn new(known: Vec<&'static Method>, target: Option<Arc<str>>, system: RpcSystem) -> Self {
        Self {
            target,
            system,
            connects: Arc::default(),
            cells: CallCounters::new(known.len() * SYSTEMS + SEEN_MAX + SYSTEMS),
            seen: iter::repeat_with(OnceLock::new).take(SEEN_MAX).collect(),
            known,
        }
    }

    /// Returns the number of a method of a channel. Methods above the limit share one.
    #[inline]
    pub(crate) fn number(&self, method: &'static Method) -> usize {
        let start = start_of(method);
        let position = start % SEEN_MAX;
        match self.seen[position].get() {
            Some((seen, _)) if ptr::eq(*seen, method) => self.seen_number(position),
            _ => self.find(method, self.system, start),
        }
    }

    /// Returns the number of a method that is not one of the services of a server, for calls over a system.
    pub(crate) fn number_over(&self, method: &'static Method, system: RpcSystem) -> usize {
        self.find(method, system, start_of(method).wrapping_add(system.number().into()))
    }

    /// Returns the number of a method that is new, or not at the first position for it.
    #[cold]
    fn find(&self, method: &'static Method, system: RpcSystem, start: usize) -> usize {
        let mut positions = (0..PROBES_MAX).map(|probe| start.wrapping_add(probe) % SEEN_MAX);
        let found = positions.find(|position| {
            let (seen, over) = self.seen[*position].get_or_init(|| (method, system));
            ptr::eq(*seen, method) && *over == system
        });
        found.map_or(self.other(system), |position| self.seen_number(position))
    }

    fn seen_number(&self, position: usize) -> usize {
        self.known.len() * SYSTEMS + position
    }

    /// Returns the method with this number. `None` for methods without their own.
    pub(crate) fn method(&self, number: usize) -> Option<&'static Method> {
        match number.checked_sub(self.seen_number(0)) {
            None => Some(self.known[number / SYSTEMS]),
            Some(position) => self.seen.get(position)?.get().map(|(method, _)| *method),
        }
    }

    pub(crate) fn target(&self) -> Option<&Arc<str>> {
        self.target.as_ref()
    }

    pub(crate) fn connects(&self) -> &Arc<ConnectCounters> {
        &self.connects
    }

    /// Returns the number of all methods without one, for calls over a system.
    pub(crate) fn other(&self, system: RpcSystem) -> usize {
        self.seen_number(SEEN_MAX) + usize::from(system.number())
    }

    /// Returns the counters of a method on this thread.
    #[inline]
    pub(crate) fn here(&self, number: usize) -> LocalCells<'_> {
        self.cells.here(number)
    }

    /// Counts a successful call of the current turn of an event loop; see [`CallCounters::count_in_turn`].
    #[inline]
    pub(crate) fn count_in_turn(
        &self,
        number: usize,
        request_len: usize,
        response_len: usize,
        nanos: impl FnOnce() -> u64,
    ) {
        self.cells.count_in_turn(number, request_len, response_len, nanos);
    }

    /// Ends a turn of an event loop; see [`CallCounters::end_turn`].
    #[inline]
    pub(crate) fn end_turn(&self, nanos: impl FnOnce() -> u64) {
        self.cells.end_turn(nanos);
    }

    /// Returns the counters of each called method and system. `None` stands for methods without a number.
    pub(crate) fn totals(&self) -> impl Iterator<Item = (Option<&'static Method>, RpcSystem, CallTotals)> {
        let known = self.known.iter().enumerate().flat_map(|(position, method)| {
            let first = position * SYSTEMS;
            RpcSystem::ALL.map(|system| (first + usize::from(system.number()), Some(*method), system))
        });
        let seen = self.seen.iter().enumerate().filter_map(|(position, seen)| {
            let (method, system) = seen.get()?;
            Some((self.seen_number(position), Some(*method), *system))
        });
        let others = RpcSystem::ALL.into_iter().map(|system| (self.other(system), None, system));
        known.chain(seen).chain(others).filter_map(|(number, method, system)| {
            let totals = self.cells.totals(number);
            (totals.started > 0).then_some((method, system, totals))
        })
    }
}

impl fmt::Debug for CallMeter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CallMeter").field("known", &self.known.len()).finish_non_exhaustive()
    }
}

/// Returns the nanoseconds since this time.
pub(crate) fn nanos_since(start: Instant) -> u64 {
    nanos_between(start, tokio::time::Instant::now().into_std())
}

/// Returns the nanoseconds between two times. Zero if the end is earlier.
#[inline]
pub(crate) fn nanos_between(start: Instant, end: Instant) -> u64 {
    let since = end.saturating_duration_since(start);
    since.as_secs().wrapping_mul(1_000_000_000).wrapping_add(since.subsec_nanos().into())
}

/// Returns the first number of the known method at this position. Methods above the limit share one per system.
pub(crate) fn first_number(position: usize) -> u16 {
    let first = if position < KNOWN_MAX { position * SYSTEMS } else { KNOWN_MAX * SYSTEMS + SEEN_MAX };
    u16::try_from(first).unwrap_or(u16::MAX)
}

/// Returns the start of the search for a method.
#[inline]
fn start_of(method: &'static Method) -> usize {
    ptr::from_ref(method).addr() / size_of::<Method>()
}

const SYSTEMS: usize = SYSTEMS_MAX as usize;
/// The maximum number of methods of a server with their own counters: all numbers have 16 bits.
const KNOWN_MAX: usize = ((1 << 16) - SEEN_MAX - SYSTEMS) / SYSTEMS;
/// The maximum number of methods of a server or a target, in addition to the known ones.
const SEEN_MAX: usize = 256;
const PROBES_MAX: usize = 16;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn methods_above_the_limit_share_a_number() {
        static KNOWN: Method = Method::unary("a.A", "Do", 10);
        let meter = CallMeter::of_server(vec![&KNOWN]);
        let other = meter.other(RpcSystem::Frpc);
        let methods: &'static [Method] = Box::leak(vec![Method::unary("a.B", "Do", 10); 2 * SEEN_MAX].into());
        let numbers: Vec<usize> = methods.iter().map(|method| meter.number(method)).collect();
        let others = numbers.iter().filter(|number| **number == other).count();
        assert!((SEEN_MAX..SEEN_MAX + 64).contains(&others), "{others}");
        assert_eq!(numbers, methods.iter().map(|method| meter.number(method)).collect::<Vec<_>>());
        assert!(numbers.iter().all(|number| *number >= SYSTEMS));
        meter.here(0).start();
        meter.here(other).start();
        let totals: Vec<_> = meter.totals().map(|(method, _, totals)| (method, totals.started)).collect();
        assert_eq!(totals, [(Some(&KNOWN), 1), (None, 1)]);
    }

    #[test]
    fn each_system_of_a_method_has_its_own_counters() {
        static KNOWN: [Method; 2] = [Method::unary("a.A", "Do", 10), Method::unary("a.A", "Say", 11)];
        static SEEN: Method = Method::unary("a.B", "Do", 10);
        let meter = CallMeter::of_server(KNOWN.iter().collect());
        let mut expected = Vec::new();
        for system in RpcSystem::ALL {
            let known = usize::from(first_number(1) + system.number());
            for (number, method) in
                [(known, Some(&KNOWN[1])), (meter.number_over(&SEEN, system), Some(&SEEN)), (meter.other(system), None)]
            {
                assert_eq!(meter.method(number), method);
                meter.here(number).start();
                expected.push((method, system, 1));
            }
        }
        let mut totals: Vec<_> =
            meter.totals().map(|(method, system, totals)| (method, system, totals.started)).collect();
        // The list is sorted by methods.
        let by_system = |(method, system, _): &(Option<&Method>, RpcSystem, u64)| {
            (*system, method.is_none(), method.map(|method| method.service))
        };
        totals.sort_by_key(by_system);
        assert_eq!(totals, expected);
    }

    #[test]
    fn known_methods_above_the_limit_share_a_number_per_system() {
        static KNOWN: Method = Method::unary("a.A", "Do", 10);
        let meter = CallMeter::of_server(vec![&KNOWN; KNOWN_MAX + 5]);
        for system in RpcSystem::ALL {
            let last = usize::from(first_number(KNOWN_MAX - 1) + system.number());
            assert_eq!(meter.method(last), Some(&KNOWN));
            for position in [KNOWN_MAX, KNOWN_MAX + 4, 1 << 16] {
                assert_eq!(usize::from(first_number(position) + system.number()), meter.other(system));
            }
        }
        assert_eq!(meter.other(RpcSystem::Frpc) + SYSTEMS, meter.cells.methods());
    }
}
