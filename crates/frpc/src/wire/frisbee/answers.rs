//! The router for the connection of a channel.

use std::{error::Error, future::Future, sync::Arc};

use bytes::Bytes;
use frisbee::{Arrivals, Connection, Event, Outcome, Packet, Router, RouterInfo};

use super::{pending::PendingCalls, remote::PART_NAME};
use crate::service::{services::Services, set::ServiceSet};

/// The router for the connection of a channel: completes calls with answers, and passes the rest to the offered
/// services.
pub(crate) struct AnswerRouter<S, R> {
    pub(crate) calls: Arc<PendingCalls>,
    pub(crate) services: Arc<Services<S, R>>,
    /// The frpc part of the HELLO of this side.
    pub(crate) said: Bytes,
}

impl<S: ServiceSet, R: Router> Router for AnswerRouter<S, R> {
    fn fallback(&self) -> &impl Router {
        &self.services
    }

    /// The channel drops its handle when asked to leave, so the connection closes after its last call.
    fn describe(&self) -> Result<RouterInfo, Box<dyn Error + Send + Sync>> {
        let of_services = Router::describe(&self.services)?;
        Ok(RouterInfo { leaves: true, ..of_services }.with_part(PART_NAME, self.said.clone()))
    }

    #[inline]
    fn event(&self, connection: &Connection, event: Event<'_>) {
        match event {
            Event::Opened => self.services.open_session(connection, self.calls.clone().into()),
            event => self.services.event(connection, event),
        }
    }

    fn intercept(&self, packets: &mut Arrivals<'_>, connection: &Connection) {
        self.services.intercept_answers(Some(&self.calls), packets, connection);
    }

    fn route(&self, packet: Packet, connection: &Connection) -> impl Future<Output = Outcome> + Send {
        self.services.route(packet, connection)
    }
}
