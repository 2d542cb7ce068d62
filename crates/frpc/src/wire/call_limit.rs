//! The limit on concurrent unary calls of one connection, on every wire.

use std::sync::{
    Arc, OnceLock,
    atomic::{AtomicU32, Ordering},
};

use crate::{
    call::status::Status,
    error::{ServerCause, ServerFailure},
    service::endpoint::Endpoint,
};

/// The concurrent unary calls of one connection of a [`Wire`](crate::Wire).
#[derive(Debug, Default)]
pub struct CallCounter(OnceLock<Arc<AtomicU32>>);

/// A running unary call. It ends when dropped.
#[derive(Debug)]
pub struct CallPermit(Option<Arc<AtomicU32>>);

impl CallCounter {
    /// Counts a call. Fails if the connection is at its limit.
    pub(crate) fn take(&self, calls_max: Option<u32>) -> Result<CallPermit, ServerCause> {
        let Some(limit) = calls_max else { return Ok(CallPermit(None)) };
        let running = self.0.get_or_init(Arc::default);
        // Counted before the check, so the permit is returned on both paths.
        let before = running.fetch_add(1, Ordering::Relaxed);
        let permit = CallPermit(Some(running.clone()));
        if before < limit { Ok(permit) } else { Err(ServerCause::TooManyCalls { limit }) }
    }
}

impl Drop for CallPermit {
    fn drop(&mut self) {
        if let Some(running) = &self.0 {
            running.fetch_sub(1, Ordering::Relaxed);
        }
    }
}

impl Endpoint {
    /// Counts a unary call of a connection until the permit is dropped.
    ///
    /// # Errors
    ///
    /// If the connection is at the limit of the server, [`CallSettings::calls_max`](crate::CallSettings::calls_max).
    pub fn count_unary(&self, calls: &CallCounter) -> Result<CallPermit, Status> {
        calls.take(self.calls_max()).map_err(|cause| {
            let ServerFailure { mut status, .. } = cause.into();
            status.mark_not_executed();
            status
        })
    }
}
