//! Locks without poisoning.

use std::sync::{Mutex, MutexGuard, PoisonError};

/// Locks state of a simulation.
pub(crate) fn lock<T>(state: &Mutex<T>) -> MutexGuard<'_, T> {
    // No change under these locks can be left half done.
    state.lock().unwrap_or_else(PoisonError::into_inner)
}
