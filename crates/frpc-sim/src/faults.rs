//! The faults of one server.

use std::{sync::Arc, time::Duration};

use frpc::{Answer, Call, Layer, Next, Status};
use tokio::{sync::watch, time::sleep};

/// The faults of one server, and of the network to it.
///
/// Fields may be added, so `..Faults::default()` belongs at the end of a literal.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Faults {
    /// The time for which each part of a request or an answer travels.
    pub latency: Duration,
    /// The time added to each call by the [`FaultLayer`].
    pub delay: Duration,
    /// The share of calls that the [`FaultLayer`] fails with `UNAVAILABLE`, from 0 to 1.
    pub failing: f64,
    /// `true` if the network takes all bytes in both directions and delivers none. A connection with lost bytes delivers none
    /// later, either.
    pub is_black_hole: bool,
    /// `true` if bytes and connections wait until this is `false` again.
    pub is_partitioned: bool,
    /// The faults of each byte stream.
    pub links: LinkFaults,
}

/// The faults of the byte streams to one server. Default: none.
///
/// Fields may be added, so `..LinkFaults::default()` belongs at the end of a literal.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct LinkFaults {
    /// The maximum bytes of one read or write. 0 for no limit.
    pub step_max: usize,
    /// The share of reads and writes that report `Pending` although they could proceed, from 0 to 1. They wake their task
    /// immediately, so tasks run in another order.
    pub spurious_wakes: f64,
    /// The share of reads and writes that wait, from 0 to 1.
    pub stalls: f64,
    /// The longest wait.
    pub stall_max: Duration,
    /// Cuts a connection within this number of bytes, at any byte. 0 for no cuts.
    ///
    /// A new connection chooses its place. Half of the cut connections are reset on both sides, a quarter ends, and a quarter
    /// stays half-open: neither side learns anything.
    pub cut_within: u64,
}

/// The layer with the faults inside a server. Servers of a simulation add it before their services.
#[derive(Clone, Debug)]
pub struct FaultLayer {
    pub(crate) server: Arc<str>,
    pub(crate) faults: watch::Receiver<Faults>,
}

impl FaultLayer {
    /// Returns the name of the server.
    pub fn server(&self) -> &Arc<str> {
        &self.server
    }
}

impl Layer for FaultLayer {
    async fn call(&self, call: Call, next: Next<'_>) -> Result<Answer, Status> {
        let Faults { delay, failing, .. } = *self.faults.borrow();
        if !delay.is_zero() {
            sleep(delay).await;
        }
        if fastrand::f64() < failing {
            return Err(Status::unavailable("a simulated failure"));
        }
        next.run(call).await
    }
}
