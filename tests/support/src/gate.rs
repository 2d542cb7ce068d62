use std::sync::Arc;

use tokio::sync::Semaphore;

/// A gate for tasks. Each opening lets one task pass.
#[derive(Clone, Debug)]
pub struct Gate(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    arrived: Semaphore,
    open: Semaphore,
}

impl Gate {
    /// Lets this number of tasks pass, including later arrivals.
    pub fn open(&self, times: usize) {
        self.0.open.add_permits(times);
    }

    /// Waits for a task to arrive. Each arrival is reported once.
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
