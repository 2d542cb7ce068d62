//! A router built from one handler per operation.

use std::{error::Error, fmt, future::Future, time::Duration};

use futures_util::future::Either;

use super::{Outcome, RefusedPacket, Router, RouterInfo, SendOrder};
use crate::{Connection, Operation, Packet};

/// A table of handlers on top of another router for all other packets.
///
/// The table is a type: calling a handler costs no allocation and no dynamic call. A later handler for the same
/// operation replaces an earlier one.
///
/// ```
/// use frisbee::{Operation, Packet, HandlerTable};
///
/// const ECHO: Operation = Operation::new(20).unwrap();
/// const NOTE: Operation = Operation::new(21).unwrap();
///
/// let router = HandlerTable::new()
///     .on(ECHO, async |packet: Packet| packet)
///     .on_with_connection(NOTE, |packet, connection| async move {
///         println!("{} says {:?}", connection.peer_addr(), packet.content);
///     });
/// # let _ = router;
/// ```
#[derive(Clone, Copy)]
pub struct HandlerTable<H, R> {
    operation: Option<Operation>,
    handler: H,
    fallback: R,
}

impl HandlerTable<NoHandler, ()> {
    /// Creates an empty table without a fallback. Packets without a handler are dropped.
    #[allow(clippy::new_without_default, reason = "a default table would have an arbitrary type")]
    pub fn new() -> Self {
        Self::over(())
    }
}

impl<R: Router> HandlerTable<NoHandler, R> {
    /// Creates an empty table on top of `fallback`.
    pub fn over(fallback: R) -> Self {
        Self { operation: None, handler: NoHandler, fallback }
    }
}

impl<H, R> HandlerTable<H, R>
where
    Self: Router,
{
    /// Adds a handler for an operation.
    pub fn on<F, Fut>(self, operation: Operation, handler: F) -> HandlerTable<PacketHandler<F>, Self>
    where
        F: Fn(Packet) -> Fut + Send + Sync + 'static,
        Fut: Future<Output: Into<Outcome>> + Send,
    {
        HandlerTable { operation: Some(operation), handler: PacketHandler(handler), fallback: self }
    }

    /// Adds a handler that also receives the connection.
    pub fn on_with_connection<F, Fut>(
        self,
        operation: Operation,
        handler: F,
    ) -> HandlerTable<ConnectionHandler<F>, Self>
    where
        F: Fn(Packet, Connection) -> Fut + Send + Sync + 'static,
        Fut: Future<Output: Into<Outcome>> + Send,
    {
        HandlerTable { operation: Some(operation), handler: ConnectionHandler(handler), fallback: self }
    }
}

impl<H: TableEntry, R: Router> Router for HandlerTable<H, R> {
    fn fallback(&self) -> &impl Router {
        &self.fallback
    }

    fn describe(&self) -> Result<RouterInfo, Box<dyn Error + Send + Sync>> {
        let below = self.fallback.describe()?;
        // Handlers may reply, so this table sends packets even if its fallback does not.
        let has_replies = self.operation.is_some() && below.send_order == SendOrder::Unused;
        Ok(if has_replies { RouterInfo { send_order: SendOrder::Kept, ..below } } else { below })
    }

    fn route(&self, packet: Packet, connection: &Connection) -> impl Future<Output = Outcome> + Send {
        if self.operation == Some(packet.operation) {
            Either::Left(self.handler.handle(packet, connection))
        } else {
            Either::Right(self.fallback.route(packet, connection))
        }
    }

    fn refuse(&self, refused: RefusedPacket, connection: &Connection) -> Outcome {
        if self.operation == Some(refused.operation) {
            Outcome::Nothing
        } else {
            self.fallback.refuse(refused, connection)
        }
    }

    fn packet_timeout(&self, packet: &Packet, connection: &Connection) -> Option<Duration> {
        if self.operation == Some(packet.operation) { None } else { self.fallback.packet_timeout(packet, connection) }
    }
}

impl<H, R: fmt::Debug> fmt::Debug for HandlerTable<H, R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Table")
            .field("operation", &self.operation)
            .field("fallback", &self.fallback)
            .finish_non_exhaustive()
    }
}

mod sealed {
    use super::{Connection, Future, Outcome, Packet};

    /// One entry of a table.
    pub trait TableEntry: Send + Sync + 'static {
        fn handle(&self, packet: Packet, connection: &Connection) -> impl Future<Output = Outcome> + Send;
    }
}

use sealed::TableEntry;

/// Entry of an empty table.
#[derive(Clone, Copy, Debug)]
pub struct NoHandler;

/// Entry with a handler for the packet alone.
#[derive(Clone, Copy, Debug)]
pub struct PacketHandler<F>(F);

/// Entry with a handler for the packet and its connection.
#[derive(Clone, Copy, Debug)]
pub struct ConnectionHandler<F>(F);

impl TableEntry for NoHandler {
    async fn handle(&self, _: Packet, _: &Connection) -> Outcome {
        Outcome::Nothing
    }
}

impl<F, Fut> TableEntry for PacketHandler<F>
where
    F: Fn(Packet) -> Fut + Send + Sync + 'static,
    Fut: Future<Output: Into<Outcome>> + Send,
{
    async fn handle(&self, packet: Packet, _: &Connection) -> Outcome {
        (self.0)(packet).await.into()
    }
}

impl<F, Fut> TableEntry for ConnectionHandler<F>
where
    F: Fn(Packet, Connection) -> Fut + Send + Sync + 'static,
    Fut: Future<Output: Into<Outcome>> + Send,
{
    async fn handle(&self, packet: Packet, connection: &Connection) -> Outcome {
        (self.0)(packet, connection.clone()).await.into()
    }
}
