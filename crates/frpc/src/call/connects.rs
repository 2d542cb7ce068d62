//! Counters of the connections and ejections of the channels to a target. They change rarely.

use std::sync::{
    Arc,
    atomic::{AtomicU64, Ordering::Relaxed},
};

use frpc_balance::OutlierMethod;

/// The connections and ejections of all channels to a target.
#[derive(Debug, Default)]
pub(crate) struct ConnectCounters {
    connected: AtomicU64,
    failed: AtomicU64,
    /// Failed TLS handshakes, a part of `failed`.
    tls_failed: AtomicU64,
    lost: AtomicU64,
    /// Connections closed by this side, such as those to servers missing from a new set.
    closed: AtomicU64,
    /// By method: ejected, above the limit of ejected endpoints, and left in use by chance.
    ejections: [[AtomicU64; 3]; OutlierMethod::ALL.len()],
}

/// The outcome of the search for outliers, for one of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum EjectionOutcome {
    Enforced,
    /// As many endpoints as allowed are ejected.
    Overflow,
    /// The chance of the rule leaves it in use.
    Chance,
}

/// The connections of a channel, counted.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct ConnectTotals {
    /// Successful attempts to connect.
    pub connected: u64,
    /// Failed attempts to connect.
    pub failed: u64,
    /// Failed TLS handshakes: a part of `failed`.
    pub tls_failed: u64,
    /// Connections closed by the server or lost.
    pub lost: u64,
    /// Open connections.
    pub open: u64,
    /// Ejections of outliers by rule: enforced, not enforced because enough are ejected, and not enforced by chance.
    pub ejections: [[u64; 3]; OutlierMethod::ALL.len()],
}

impl ConnectTotals {
    /// Adds the counters of another target.
    pub(crate) fn add(&mut self, other: &Self) {
        self.connected += other.connected;
        self.failed += other.failed;
        self.tls_failed += other.tls_failed;
        self.lost += other.lost;
        self.open += other.open;
        let counts = self.ejections.iter_mut().flatten().zip(other.ejections.iter().flatten());
        counts.for_each(|(count, other)| *count += other);
    }
}

impl ConnectCounters {
    pub(crate) fn fail(&self, is_tls: bool) {
        self.failed.fetch_add(1, Relaxed);
        self.tls_failed.fetch_add(u64::from(is_tls), Relaxed);
    }

    pub(crate) fn eject(&self, method: OutlierMethod, outcome: EjectionOutcome) {
        self.ejections[method as usize][outcome as usize].fetch_add(1, Relaxed);
    }

    pub(crate) fn totals(&self) -> ConnectTotals {
        let [connected, failed, tls_failed, lost, closed] =
            [&self.connected, &self.failed, &self.tls_failed, &self.lost, &self.closed]
                .map(|count| count.load(Relaxed));
        let ejections = self.ejections.each_ref().map(|counts| counts.each_ref().map(|count| count.load(Relaxed)));
        let open = connected.saturating_sub(lost + closed);
        ConnectTotals { connected, failed, tls_failed, lost, open, ejections }
    }
}

/// An open connection of a channel, counted until it is dropped.
pub(crate) struct OpenConnection {
    counters: Option<Arc<ConnectCounters>>,
    is_lost: bool,
}

impl OpenConnection {
    /// Counts a successful attempt.
    pub(crate) fn begin(counters: Option<Arc<ConnectCounters>>) -> Self {
        if let Some(counters) = &counters {
            counters.connected.fetch_add(1, Relaxed);
        }
        Self { counters, is_lost: false }
    }

    /// Counts the end of the connection as a loss.
    pub(crate) fn lose(mut self) {
        self.is_lost = true;
    }
}

impl Drop for OpenConnection {
    fn drop(&mut self) {
        if let Some(counters) = &self.counters {
            let ended = if self.is_lost { &counters.lost } else { &counters.closed };
            ended.fetch_add(1, Relaxed);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn open_connections_are_those_neither_lost_nor_closed() {
        let counters = Arc::<ConnectCounters>::default();
        let open = [(); 3].map(|()| OpenConnection::begin(Some(counters.clone())));
        let [lost, closed, kept] = open;
        lost.lose();
        drop(closed);
        counters.fail(true);
        counters.fail(false);
        counters.eject(OutlierMethod::Latency, EjectionOutcome::Overflow);
        let totals = counters.totals();
        assert_eq!((totals.connected, totals.failed, totals.tls_failed, totals.lost, totals.open), (3, 2, 1, 1, 1));
        assert_eq!(totals.ejections, [[0; 3], [0; 3], [0; 3], [0, 1, 0]]);
        drop(kept);
        assert_eq!(counters.totals().open, 0);
    }
}
