//! The threads of a starting server.

use std::{io, sync::Arc, thread::JoinHandle};

use tokio::{runtime::Handle, time::timeout};

use super::shared::{KILL_GRACE, ServerShared};
use crate::Engine;

/// The threads of a starting server. Ends them on drop, unless the start [succeeds](Self::succeed).
pub(super) struct StartingThreads {
    shared: Arc<ServerShared>,
    /// The runtimes of the listeners.
    pub(super) runtimes: Vec<Handle>,
    threads: Vec<JoinHandle<()>>,
}

impl StartingThreads {
    pub(super) fn new(shared: &Arc<ServerShared>, threads: usize) -> io::Result<Self> {
        let mut starting = Self { shared: shared.clone(), runtimes: Vec::new(), threads: Vec::new() };
        if shared.engine == Engine::Tokio {
            starting.runtimes.push(Handle::current());
            return Ok(starting);
        }
        for core in 0..threads {
            let on_thread = shared.clone();
            let started = shared.engine.start(core, async move {
                on_thread.scope.kill.cancelled().await;
                // Its connections have been told to end. This gives them time to do so.
                let _ = timeout(KILL_GRACE, on_thread.slots.wait_until_empty()).await;
            });
            let (runtime, thread) = started.map_err(|error| {
                let engine = shared.engine;
                io::Error::new(error.kind(), format!("cannot start the threads of the engine {engine}: {error}"))
            })?;
            starting.runtimes.push(runtime);
            starting.threads.push(thread);
        }
        Ok(starting)
    }

    /// Keeps the threads running.
    pub(super) fn succeed(mut self) {
        // Dropping a join handle detaches its thread.
        self.threads.clear();
    }
}

impl Drop for StartingThreads {
    fn drop(&mut self) {
        if self.threads.is_empty() {
            return;
        }
        self.shared.scope.kill.cancel();
        for thread in self.threads.drain(..) {
            // The thread has no work, so it ends immediately. A panic was already reported by the panic hook.
            let _ = thread.join();
        }
    }
}
