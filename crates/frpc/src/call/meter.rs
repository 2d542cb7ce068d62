//! Counters of the calls of a server, or of the channels to a target.

use std::{
    fmt, iter, ptr,
    sync::{Arc, OnceLock},
    time::Instant,
};

use frpc_metrics::{CallCounters, CallTotals, LocalCells};

use super::method::Method;

/// The counters of all methods of a server or a target.
pub(crate) struct CallMeter {
    cells: CallCounters,
    /// The target of the channels. `None` for a server.
    target: Option<Arc<str>>,
    /// The methods known from the start, in the order of their numbers.
    known: Vec<&'static Method>,
    /// Methods seen later, in a hash table. A number is the position after the known ones.
    seen: Box<[OnceLock<&'static Method>]>,
}

impl CallMeter {
    pub(crate) fn new(known: Vec<&'static Method>, target: Option<Arc<str>>) -> Self {
        Self {
            target,
            cells: CallCounters::new(known.len() + SEEN_MAX + 1),
            seen: iter::repeat_with(OnceLock::new).take(SEEN_MAX).collect(),
            known,
        }
    }

    /// Returns the number of a method. Methods above the limit share one.
    #[inline]
    pub(crate) fn number(&self, method: &'static Method) -> usize {
        let start = ptr::from_ref(method).addr() / size_of::<Method>();
        let position = start % SEEN_MAX;
        match self.seen[position].get() {
            Some(seen) if ptr::eq(*seen, method) => self.known.len() + position,
            _ => self.find(method, start),
        }
    }

    /// Returns the number of a method that is new, or not at the first position for it.
    #[cold]
    fn find(&self, method: &'static Method, start: usize) -> usize {
        let mut positions = (0..PROBES_MAX).map(|probe| start.wrapping_add(probe) % SEEN_MAX);
        let found = positions.find(|position| ptr::eq(*self.seen[*position].get_or_init(|| method), method));
        found.map_or(self.other(), |position| self.known.len() + position)
    }

    /// Returns the method with this number. `None` for methods without their own.
    pub(crate) fn method(&self, number: usize) -> Option<&'static Method> {
        match number.checked_sub(self.known.len()) {
            None => Some(self.known[number]),
            Some(position) => self.seen.get(position)?.get().copied(),
        }
    }

    pub(crate) fn target(&self) -> Option<&Arc<str>> {
        self.target.as_ref()
    }

    /// Returns the number of all methods without one.
    pub(crate) fn other(&self) -> usize {
        self.known.len() + SEEN_MAX
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

    /// Returns the counters of each called method. `None` stands for methods without a number.
    pub(crate) fn totals(&self) -> impl Iterator<Item = (Option<&'static Method>, CallTotals)> {
        let known = self.known.iter().copied().enumerate();
        let seen = self.seen.iter().enumerate();
        let seen = seen.filter_map(|(position, method)| Some((self.known.len() + position, *method.get()?)));
        let methods = known.chain(seen).map(|(number, method)| (number, Some(method)));
        methods.chain(iter::once((self.other(), None))).filter_map(|(number, method)| {
            let totals = self.cells.totals(number);
            (totals.started > 0).then_some((method, totals))
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
    let since = tokio::time::Instant::now().into_std().saturating_duration_since(start);
    since.as_secs().wrapping_mul(1_000_000_000).wrapping_add(since.subsec_nanos().into())
}

/// The maximum number of methods of a server or a target, in addition to the known ones.
const SEEN_MAX: usize = 256;
const PROBES_MAX: usize = 16;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn methods_above_the_limit_share_a_number() {
        static KNOWN: Method = Method::unary("a.A", "Do", 10);
        let meter = CallMeter::new(vec![&KNOWN], None);
        let methods: &'static [Method] = Box::leak(vec![Method::unary("a.B", "Do", 10); 2 * SEEN_MAX].into());
        let numbers: Vec<usize> = methods.iter().map(|method| meter.number(method)).collect();
        let others = numbers.iter().filter(|number| **number == meter.other()).count();
        assert!((SEEN_MAX..SEEN_MAX + 64).contains(&others), "{others}");
        assert_eq!(numbers, methods.iter().map(|method| meter.number(method)).collect::<Vec<_>>());
        assert!(numbers.iter().all(|number| *number > 0));
        meter.here(0).start();
        meter.here(meter.other()).start();
        let totals: Vec<_> = meter.totals().map(|(method, totals)| (method, totals.started)).collect();
        assert_eq!(totals, [(Some(&KNOWN), 1), (None, 1)]);
    }
}
