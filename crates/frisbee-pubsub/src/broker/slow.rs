//! Subscriptions of one connection waiting for room in its outbox.

use std::{
    collections::VecDeque,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

/// Subscriptions in the order in which they ran out of room. Each is in the list at most once.
#[derive(Debug)]
pub(super) struct SlowList<T>(Mutex<VecDeque<Arc<T>>>);

impl<T> SlowList<T> {
    pub(super) fn add(&self, slow: Arc<T>) {
        self.list().push_back(slow);
    }

    /// Takes all entries. A subscription that runs out of room again is added after the others.
    pub(super) fn take(&self) -> VecDeque<Arc<T>> {
        std::mem::take(&mut *self.list())
    }

    fn list(&self) -> MutexGuard<'_, VecDeque<Arc<T>>> {
        // No code under this lock leaves a partial change, so a poisoned lock is safe to use.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<T> Default for SlowList<T> {
    fn default() -> Self {
        Self(Mutex::default())
    }
}
