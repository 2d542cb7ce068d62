//! State shared by the drivers of one server.

use std::sync::Arc;

use tokio_util::sync::CancellationToken;

use super::permits::HandlerPermits;
use crate::{Dispatch, router::RouterInfo};

/// State shared by the connections of one server. A client connection has its own.
#[derive(Clone)]
pub(crate) struct DriverScope {
    pub(crate) dispatch: Dispatch,
    pub(crate) is_server: bool,
    /// Facts returned by the router.
    pub(crate) info: Arc<RouterInfo>,
    /// One permit for each handler that may run.
    pub(crate) permits: Arc<HandlerPermits>,
    /// Cancelled when everything has to end immediately.
    pub(crate) kill: CancellationToken,
}

impl DriverScope {
    /// Creates the state for the connections of a server with a limit on handlers, or for one of a client without it.
    pub(crate) fn new(info: Arc<RouterInfo>, dispatch: Dispatch, handlers_max: Option<usize>) -> Self {
        let (is_server, handlers_max) = (handlers_max.is_some(), handlers_max.unwrap_or(usize::MAX));
        let permits = match dispatch {
            Dispatch::Limited(limit) => limit.get().min(handlers_max),
            _ => handlers_max,
        };
        Self { dispatch, is_server, info, permits: HandlerPermits::new(permits), kill: CancellationToken::new() }
    }
}
