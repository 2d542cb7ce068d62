use std::sync::Arc;

use tokio::sync::Semaphore;

/// A gate that lets one task pass each time it opens.
#[derive(Clone, Debug)]
pub struct Gate(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    arrived: Semaphore,
    open: Semaphore,
}

impl Gate {
    /// Lets this many tasks pass, those included that have yet to come.
    pub fn open(&self, times: usize) {
        self.0.open.add_permits(times);
    }

    /// Waits for a task to arrive: once for each.
    pub async fn arrival(&self) {
        self.0.arrived.acquire().await.expect("nobody closes it").forget();
    }

    /// Waits until the gate opens.
    pub async fn passed(&self) {
        self.0.arrived.add_permits(1);
        self.0.open.acquire().await.expect("nobody closes it").forget();
    }
}

impl Default for Gate {
    fn default() -> Self {
        Self(Arc::new(Inner { arrived: Semaphore::new(0), open: Semaphore::new(0) }))
    }
}
