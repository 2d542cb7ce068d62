//! Locks that ignore poison.

use std::sync::PoisonError;

use crate::sync::{Mutex, MutexGuard};

/// Locks a mutex, also after a panic of another thread that held it.
///
/// No code of this crate under a lock leaves a partial change. A user's `Authorize` may panic, before any change.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Empties a mutex and returns its value. The lock is free before the value is used or dropped.
pub(crate) fn take<T: Default>(mutex: &Mutex<T>) -> T {
    std::mem::take(&mut *lock(mutex))
}
