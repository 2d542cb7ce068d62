//! State shared by the drivers of one server.

use std::sync::Arc;

use tokio_util::sync::CancellationToken;

use super::permits::HandlerPermits;
use crate::{Dispatch, router::RouterInfo};

/// State shared by the connections of one server. A client connection has its own.
#[derive(Clone)]
pub(crate) struct DriverScope {
    pub(crate) dispatch: Dispatch,
    /// Facts returned by the router.
    pub(crate) info: Arc<RouterInfo>,
    /// One permit for each handler that may run.
    pub(crate) permits: Arc<HandlerPermits>,
    /// Cancelled when everything has to end immediately.
    pub(crate) kill: CancellationToken,
}

impl DriverScope {
    pub(crate) fn new(info: Arc<RouterInfo>, dispatch: Dispatch, handlers_max: usize) -> Self {
        let permits = match dispatch {
            Dispatch::Limited(limit) => limit.get().min(handlers_max),
            _ => handlers_max,
        };
        Self { dispatch, info, permits: HandlerPermits::new(permits), kill: CancellationToken::new() }
    }
}
