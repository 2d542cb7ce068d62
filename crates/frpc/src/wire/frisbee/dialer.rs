//! The connections of a channel: their settings, and the router of each.

use std::{error::Error, future::Future, sync::Arc, time::Duration};

use bytes::Bytes;
use frisbee::{Arrivals, Connection, Event, Outcome, Packet, Router, RouterInfo};

use super::{
    bytes::hello::PART_NAME,
    calling::{
        connection::{CallLimitPolicy, ClientConnection},
        pending::PendingCalls,
    },
};
use crate::service::{services::Services, set::ServiceSet};

/// The settings from which each connection of a channel is made.
pub(crate) struct ConnectionFactory<S, R> {
    pub(crate) client: frisbee::Client<()>,
    pub(crate) services: Arc<Services<S, R>>,
    pub(crate) calls_max: usize,
    pub(crate) when_full: CallLimitPolicy,
    pub(crate) timeout: Duration,
}

impl<S: ServiceSet, R: Router> ConnectionFactory<S, R> {
    /// Returns a client for one connection, and the table of its calls.
    pub(crate) fn client(&self) -> (frisbee::Client<AnswerRouter<S, R>>, Arc<PendingCalls>) {
        let calls = Arc::new(PendingCalls::new(self.calls_max));
        let hello_part = self.services.hello_part(Some(self.timeout));
        let calling = AnswerRouter { calls: calls.clone(), services: self.services.clone(), hello_part };
        (self.client.with_router(calling), calls)
    }

    pub(crate) fn serve(&self, connection: Connection, calls: Arc<PendingCalls>) -> ClientConnection {
        ClientConnection::new(connection, calls, self.when_full, self.services.local_settings())
    }
}

/// The router for the connection of a channel: completes calls with answers, and passes the rest to the offered
/// services.
pub(crate) struct AnswerRouter<S, R> {
    pub(crate) calls: Arc<PendingCalls>,
    pub(crate) services: Arc<Services<S, R>>,
    /// The frpc part of the HELLO of this side.
    pub(crate) hello_part: Bytes,
}

impl<S: ServiceSet, R: Router> Router for AnswerRouter<S, R> {
    fn fallback(&self) -> &impl Router {
        &self.services
    }

    /// The channel drops its handle when asked to leave, so the connection closes after its last call.
    fn describe(&self) -> Result<RouterInfo, Box<dyn Error + Send + Sync>> {
        let of_services = Router::describe(&self.services)?;
        Ok(RouterInfo { leaves: true, ..of_services }.with_part(PART_NAME, self.hello_part.clone()))
    }

    #[inline]
    fn event(&self, connection: &Connection, event: Event<'_>) {
        match event {
            Event::Opened => self.services.open(connection, self.calls.clone().into()),
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
