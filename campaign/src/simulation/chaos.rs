//! Faults of all kinds, one after another.

use std::{sync::Arc, time::Duration};

use frpc::testing::FaultRates;
use frpc_sim::{LinkFaults, NetworkFaults, SimServer};
use tokio::{task::JoinSet, time::sleep};

use super::ledger::Ledger;
use crate::deterministic;

/// The source of all faults.
pub(super) struct Chaos<'a> {
    pub(super) servers: &'a [SimServer],
    pub(super) ledger: &'a Arc<Ledger>,
    /// `true` if connections to the first server, the broker, live on.
    pub(super) spares_broker: bool,
}

impl Chaos<'_> {
    /// Breaks servers and their links for this time, and heals them at the end.
    pub(super) async fn break_servers(&self, length: Duration, mean_pause: Duration) {
        let (ledger, end, mut healing) = (self.ledger, self.ledger.elapsed() + length, JoinSet::new());
        loop {
            sleep(mean_pause.mul_f64(2.0 * fastrand::f64())).await;
            if ledger.elapsed() >= end {
                break;
            }
            let number = fastrand::usize(..self.servers.len());
            let server = self.servers[number].clone();
            let faults = if self.spares_broker && number == 0 { HARMLESS } else { ALL };
            let fault = break_server(&server, ledger, fastrand::u8(..faults), self.spares_broker).await;
            ledger.count(fault, 1);
            ledger.count("faults", 1);
            let lasts = Duration::from_millis(fastrand::u64(..8_000));
            healing.spawn(async move {
                sleep(lasts).await;
                heal(&server);
            });
            while healing.try_join_next().is_some() {}
        }
        healing.join_all().await;
        self.servers.iter().for_each(heal);
    }
}

fn heal(server: &SimServer) {
    server.start();
    server.set_faults(|faults| *faults = NetworkFaults::default());
    server.set_fault_rates(FaultRates::default());
}

async fn break_server(server: &SimServer, ledger: &Ledger, fault: u8, spares_broker: bool) -> &'static str {
    let milliseconds = |most| Duration::from_millis(fastrand::u64(1..most));
    let links = |change: fn(&mut LinkFaults)| server.set_faults(|faults| change(&mut faults.links));
    match fault {
        0 => {
            server.set_faults(|faults| faults.latency = milliseconds(300));
            "latency"
        }
        1 => {
            let delay = milliseconds(2_000);
            server.set_fault_rates(FaultRates { delayed: 1.0, delay: delay..=delay, ..FaultRates::default() });
            "slow handlers"
        }
        2 => {
            server.set_fault_rates(FaultRates { failed: fastrand::f64(), ..FaultRates::default() });
            "failing handlers"
        }
        3 => {
            links(|links| links.step_max = fastrand::usize(1..64));
            "short reads and writes"
        }
        4 => {
            links(|links| links.spurious_wakes = 0.7 * fastrand::f64());
            "spurious wake-ups"
        }
        5 => {
            links(|links| {
                links.stalls = 0.02 * fastrand::f64();
                links.stall_max = Duration::from_millis(fastrand::u64(1..2_000));
            });
            "stalls"
        }
        6 => {
            deterministic::jump_wall_clock(fastrand::i64(-86_400..86_400));
            "wall clock jumps"
        }
        7 => {
            // All timers of this time are due together, as after a machine has slept. Connections outlive a short sleep.
            let by = milliseconds(if spares_broker { 2_000 } else { 20_000 });
            ledger.jump(by);
            tokio::time::advance(by).await;
            "clock jumps"
        }
        8 => {
            links(|links| {
                links.stalls = 0.2 * fastrand::f64();
                links.stall_max = Duration::from_millis(fastrand::u64(1..5_000));
            });
            "long stalls"
        }
        9 => {
            server.set_faults(|faults| faults.is_black_hole = true);
            "black holes"
        }
        10 => {
            server.set_faults(|faults| faults.is_partitioned = true);
            "partitions"
        }
        11 => {
            server.kill();
            "kills"
        }
        12 => {
            server.shut_down(milliseconds(3_000)).await;
            "shutdowns"
        }
        13 => {
            server.disconnect();
            "lost connections"
        }
        _ => {
            links(|links| {
                links.cut_within = if fastrand::bool() { fastrand::u64(1..400) } else { fastrand::u64(400..100_000) };
            });
            // The next connections have a cut.
            server.disconnect();
            "cuts"
        }
    }
}

/// The number of faults.
const ALL: u8 = 17;
/// The faults with lower numbers leave connections alive.
const HARMLESS: u8 = 8;
