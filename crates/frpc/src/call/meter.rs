//! Counters of the calls of a server, or of the channels to a target.

use std::{
    fmt, ptr,
    sync::{Arc, OnceLock},
};

use frisbee::clock::{Instant, nanos_between};
use frpc_metrics::{CallCounters, CallTotals, LocalCells};

use super::{
    connects::ConnectCounters,
    frames::ConnectionFrames,
    method::Method,
    system::{RpcSystem, SYSTEMS_MAX},
};

/// The counters of all methods of a server or a target, by the systems of their calls.
///
/// The first numbers are those of methods seen later, then one per system for all further methods. A known method has
/// [`SYSTEMS_MAX`] numbers in a row, one per system. A wire adds the number of its system to the [first](first_number) of
/// them once, when it finds the method. So the system costs a call nothing.
pub(crate) struct CallMeter {
    cells: CallCounters,
    /// The target of the channels. `None` for a server.
    target: Option<Arc<str>>,
    /// The system of the channels. Calls of a server have their own.
    system: RpcSystem,
    /// The connections of channels to several servers.
    connects: Arc<ConnectCounters>,
    /// The frames of connections over HTTP/2.
    frames: ConnectionFrames,
    /// The methods known from the start, in the order of their numbers.
    known: Vec<&'static Method>,
    /// Methods seen later and their systems, in a hash table. A number is the position.
    seen: Box<[OnceLock<(&'static Method, RpcSystem)>; SEEN_MAX]>,
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
            frames: ConnectionFrames::default(),
            cells: CallCounters::new(KNOWN_FIRST + known.len() * SYSTEMS),
            seen: Box::new([const { OnceLock::new() }; SEEN_MAX]),
            known,
        }
    }

    /// Returns the number of a method of a channel. Methods above the limit share one.
    pub(crate) fn number(&self, method: &'static Method) -> usize {
        self.find(method, self.system, start_of(method))
    }

    /// Returns the counters of a method of a channel on this thread.
    #[inline]
    pub(crate) fn here_of(&self, method: &'static Method) -> LocalCells<'_> {
        let start = start_of(method);
        self.cells.here_of(start % SEEN_MAX, start).unwrap_or_else(|| self.find_here(method, start))
    }

    /// Returns the counters of a method that is new on this thread, or not at the first position for it.
    #[cold]
    fn find_here(&self, method: &'static Method, start: usize) -> LocalCells<'_> {
        let cells = self.here(self.number(method));
        cells.set_owner(start);
        cells
    }

    /// Returns the number of a method that is not one of the services of a server, for calls over a system.
    pub(crate) fn number_over(&self, method: &'static Method, system: RpcSystem) -> usize {
        self.find(method, system, start_of(method).wrapping_add(system.number().into()))
    }

    fn find(&self, method: &'static Method, system: RpcSystem, start: usize) -> usize {
        let mut positions = (0..PROBES_MAX).map(|probe| start.wrapping_add(probe) % SEEN_MAX);
        let found = positions.find(|position| {
            let (seen, over) = self.seen[*position].get_or_init(|| (method, system));
            ptr::eq(*seen, method) && *over == system
        });
        found.unwrap_or_else(|| self.other(system))
    }

    /// Returns the method with this number. `None` for methods without their own.
    pub(crate) fn method(&self, number: usize) -> Option<&'static Method> {
        match number.checked_sub(KNOWN_FIRST) {
            None => self.seen.get(number)?.get().map(|(method, _)| *method),
            Some(known) => self.known.get(known / SYSTEMS).copied(),
        }
    }

    pub(crate) fn target(&self) -> Option<&Arc<str>> {
        self.target.as_ref()
    }

    pub(crate) fn connects(&self) -> &Arc<ConnectCounters> {
        &self.connects
    }

    pub(crate) fn frames(&self) -> &ConnectionFrames {
        &self.frames
    }

    /// Returns the number of all methods without one, for calls over a system.
    pub(crate) fn other(&self, system: RpcSystem) -> usize {
        SEEN_MAX + usize::from(system.number())
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
            let first = KNOWN_FIRST + position * SYSTEMS;
            RpcSystem::ALL.map(|system| (first + usize::from(system.number()), Some(*method), system))
        });
        let seen = self.seen.iter().enumerate().filter_map(|(position, seen)| {
            let (method, system) = seen.get()?;
            Some((position, Some(*method), *system))
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
#[inline]
pub(crate) fn nanos_since(start: Instant) -> u64 {
    nanos_between(start, tokio::time::Instant::now().into_std())
}

/// Returns the first number of the known method at this position. Methods above the limit share one per system.
pub(crate) fn first_number(position: usize) -> u16 {
    let first = if position < KNOWN_MAX { KNOWN_FIRST + position * SYSTEMS } else { SEEN_MAX };
    u16::try_from(first).unwrap_or(u16::MAX)
}

/// Returns the start of the search for a method. The methods of an array have different ones, because they are an odd
/// number of words apart.
#[inline]
fn start_of(method: &'static Method) -> usize {
    ptr::from_ref(method).addr() / align_of::<Method>()
}

const SYSTEMS: usize = SYSTEMS_MAX as usize;
/// The first number of a known method.
const KNOWN_FIRST: usize = SEEN_MAX + SYSTEMS;
/// The maximum number of methods of a server with their own counters: all numbers have 16 bits.
const KNOWN_MAX: usize = ((1 << 16) - KNOWN_FIRST) / SYSTEMS;
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
        assert!(numbers.iter().all(|number| *number < KNOWN_FIRST));
        for (method, number) in methods.iter().zip(&numbers) {
            let before = meter.cells.totals(*number).started;
            meter.here_of(method).start();
            meter.here_of(method).start();
            assert_eq!(meter.cells.totals(*number).started, before + 2);
        }
        let own = meter.totals().filter(|(method, _, totals)| method.is_some() && totals.started == 2);
        assert_eq!(own.count(), methods.len() - others);
        meter.here(KNOWN_FIRST).start();
        meter.here(other).start();
        let of = |wanted: Option<&Method>| {
            let mut totals = meter.totals().filter(|(method, ..)| *method == wanted);
            totals.next().map(|(_, _, totals)| totals.started)
        };
        assert_eq!((of(Some(&KNOWN)), of(None)), (Some(1), Some(2 * others as u64 + 1)));
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
        assert_eq!(usize::from(first_number(KNOWN_MAX - 1)) + SYSTEMS, meter.cells.methods());
    }
}
