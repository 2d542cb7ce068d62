//! The threads of a server, and the number of connections on each: a new one goes where there are fewest. The kernel gives
//! it to any of the listeners of a port, by chance, which is uneven as long as there are few.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::runtime::Handle;

/// The threads of a server.
#[derive(Debug, Default)]
pub(super) struct Threads(Mutex<Vec<Thread>>);

#[derive(Debug)]
struct Thread {
    runtime: Handle,
    connections: usize,
}

/// The place of a connection on a thread.
pub(super) struct OnThread {
    threads: Arc<Threads>,
    index: usize,
}

impl Threads {
    pub(super) fn set(&self, runtimes: &[Handle]) {
        *self.lock() = runtimes.iter().map(|runtime| Thread { runtime: runtime.clone(), connections: 0 }).collect();
    }

    /// Finds a place for a connection that the current runtime has accepted. Returns also the runtime that serves it if that is
    /// another. `None` on runtimes that are not the server's own.
    pub(super) fn place(self: &Arc<Self>) -> Option<(OnThread, Option<Handle>)> {
        let here = Handle::current().id();
        let mut threads = self.lock();
        let here = threads.iter().position(|thread| thread.runtime.id() == here)?;
        let fewest = (0..threads.len()).min_by_key(|index| threads[*index].connections)?;
        let least = threads[fewest].connections;
        // To take it elsewhere has its price, which is not worth a small part of many.
        let goes_elsewhere = threads[here].connections > least + least / TOLERATED_PART;
        let index = if goes_elsewhere { fewest } else { here };
        threads[index].connections += 1;
        let elsewhere = goes_elsewhere.then(|| threads[index].runtime.clone());
        Some((OnThread { threads: self.clone(), index }, elsewhere))
    }

    fn lock(&self) -> MutexGuard<'_, Vec<Thread>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for OnThread {
    fn drop(&mut self) {
        self.threads.lock()[self.index].connections -= 1;
    }
}

/// The part of its connections that one thread may have more than another.
const TOLERATED_PART: usize = 16;
