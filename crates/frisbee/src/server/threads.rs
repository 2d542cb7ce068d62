//! Balances connections over the threads of a server.
//!
//! The kernel assigns a new connection to any listener of a port. With few connections, the result is uneven. Each
//! new connection therefore moves to the thread with the fewest.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::runtime::Handle;

/// The threads of a server, with their numbers of connections.
#[derive(Debug, Default)]
pub(super) struct ServerThreads(Mutex<Vec<ServerThread>>);

#[derive(Debug)]
struct ServerThread {
    runtime: Handle,
    connections: usize,
}

/// The place of a connection on a thread. Released on drop.
pub(super) struct ThreadPlacement {
    threads: Arc<ServerThreads>,
    index: usize,
}

impl ServerThreads {
    pub(super) fn set(&self, runtimes: &[Handle]) {
        *self.lock() =
            runtimes.iter().map(|runtime| ServerThread { runtime: runtime.clone(), connections: 0 }).collect();
    }

    /// Selects a thread for a connection accepted on the current runtime. Also returns its runtime, if not the
    /// current one.
    ///
    /// Returns `None` on runtimes not owned by the server.
    pub(super) fn assign_thread(self: &Arc<Self>) -> Option<(ThreadPlacement, Option<Handle>)> {
        let here = Handle::current().id();
        let mut threads = self.lock();
        let here = threads.iter().position(|thread| thread.runtime.id() == here)?;
        let fewest = (0..threads.len()).min_by_key(|index| threads[*index].connections)?;
        let least = threads[fewest].connections;
        // Moving a connection to another thread has a cost, so a small imbalance is tolerated.
        let goes_elsewhere = threads[here].connections > least + least / TOLERATED_PART;
        let index = if goes_elsewhere { fewest } else { here };
        threads[index].connections += 1;
        let elsewhere = goes_elsewhere.then(|| threads[index].runtime.clone());
        Some((ThreadPlacement { threads: self.clone(), index }, elsewhere))
    }

    fn lock(&self) -> MutexGuard<'_, Vec<ServerThread>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for ThreadPlacement {
    fn drop(&mut self) {
        self.threads.lock()[self.index].connections -= 1;
    }
}

/// The tolerated imbalance, as a part of the connections on the least loaded thread.
const TOLERATED_PART: usize = 16;
