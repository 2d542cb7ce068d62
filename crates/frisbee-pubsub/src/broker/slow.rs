//! The subscriptions of one connection that go on when it takes packets again.

use std::{
    collections::VecDeque,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

/// Subscriptions in the order in which they found no room. Each of them is here once at most.
#[derive(Debug)]
pub(super) struct SlowList<T>(Mutex<VecDeque<Arc<T>>>);

impl<T> SlowList<T> {
    pub(super) fn add(&self, slow: Arc<T>) {
        self.list().push_back(slow);
    }

    /// Takes all of them off. One that finds no room again comes back, behind the others.
    pub(super) fn take(&self) -> VecDeque<Arc<T>> {
        std::mem::take(&mut *self.list())
    }

    fn list(&self) -> MutexGuard<'_, VecDeque<Arc<T>>> {
        // Nothing that runs under the lock leaves it half changed.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<T> Default for SlowList<T> {
    fn default() -> Self {
        Self(Mutex::default())
    }
}
