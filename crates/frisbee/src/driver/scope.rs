//! State that the drivers of one server share.

use std::sync::Arc;

use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;

use crate::Dispatch;

/// The part that the connections of one server share, or that the one connection of a client has.
#[derive(Clone)]
pub(crate) struct Scope {
    pub(crate) dispatch: Dispatch,
    /// A permit for each handler that may be under way.
    pub(crate) permits: Arc<Semaphore>,
    /// Cancelled when everything has to end now.
    pub(crate) kill: CancellationToken,
}

impl Scope {
    pub(crate) fn new(dispatch: Dispatch, handlers_max: usize) -> Self {
        let permits = match dispatch {
            Dispatch::Limited(limit) => limit.get().min(handlers_max),
            _ => handlers_max,
        };
        let permits = Arc::new(Semaphore::new(permits.min(Semaphore::MAX_PERMITS)));
        Self { dispatch, permits, kill: CancellationToken::new() }
    }
}
