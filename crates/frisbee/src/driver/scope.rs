//! State that the drivers of one server share.

use std::sync::Arc;

use tokio_util::sync::CancellationToken;

use super::permits::Permits;
use crate::{Dispatch, router::RouterInfo};

/// The part that the connections of one server share, or that the one connection of a client has.
#[derive(Clone)]
pub(crate) struct Scope {
    pub(crate) dispatch: Dispatch,
    /// The facts that the router said of itself.
    pub(crate) info: Arc<RouterInfo>,
    /// A permit for each handler that may be under way.
    pub(crate) permits: Arc<Permits>,
    /// Cancelled when everything has to end now.
    pub(crate) kill: CancellationToken,
}

impl Scope {
    pub(crate) fn new(info: Arc<RouterInfo>, dispatch: Dispatch, handlers_max: usize) -> Self {
        let permits = match dispatch {
            Dispatch::Limited(limit) => limit.get().min(handlers_max),
            _ => handlers_max,
        };
        Self { dispatch, info, permits: Permits::new(permits), kill: CancellationToken::new() }
    }
}
