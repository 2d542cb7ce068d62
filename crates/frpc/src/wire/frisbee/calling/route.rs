//! The choice of each call between a plain packet and an extended one.

use frisbee::Operation;

use super::{
    super::{
        bytes::{
            envelope::{check_metadata, metadata_len},
            hello::MethodRoute,
        },
        peer::PeerState,
    },
    connection::ClientConnection,
    reconnecting::FrisbeeCaller,
};
use crate::{
    call::{deadline::Deadline, head::Head, method::Method, status::Status},
    codec::Format,
};

/// The way of a call to its method on one connection.
#[derive(Clone, Copy, Debug)]
pub(super) enum CallRoute {
    /// In plain fRPC, with messages in polyglot.
    Plain {
        operation: Operation,
        /// True before the peer is recognized. The answer then has to be checked.
        is_assumed: bool,
    },
    /// To this operation of an extended peer, with messages in this format.
    Extended { operation: u16, format: Format },
}

impl FrisbeeCaller {
    /// Returns the route of a call on this connection, after the checks before each call. On an error, nothing was
    /// sent.
    ///
    /// `format` is the format of encoded messages; `None` accepts any format. With `waits`, it waits until the peer is
    /// recognized.
    pub(super) async fn prepare(
        &self,
        connection: &ClientConnection,
        method: &'static Method,
        format: Option<Format>,
        head: &Head,
        waits: bool,
        deadline: Deadline,
    ) -> Result<CallRoute, Status> {
        if waits {
            connection.extended(deadline).await?;
        }
        // Before the comparison: a peer that is recognized meanwhile was perhaps not compared.
        let peer = connection.peer();
        connection.check_schema(method, deadline).await?;
        self.route(connection, peer, method, format, head)
    }

    /// Returns the route of a call to a peer whose messages fit.
    pub(super) fn route(
        &self,
        connection: &ClientConnection,
        peer: Option<&PeerState>,
        method: &'static Method,
        format: Option<Format>,
        head: &Head,
    ) -> Result<CallRoute, Status> {
        let route = peer.map_or(MethodRoute::Plain, |peer| peer.route(method));
        let extended = peer.and_then(PeerState::extended);
        let format = format.unwrap_or(match route {
            MethodRoute::Extended { format, .. } => format,
            MethodRoute::Plain | MethodRoute::Missing => Format::Polyglot,
        });
        match (route, route.operation_in(format)) {
            (_, Some(operation)) => {
                let metadata_max = extended.map_or(0, |extended| extended.metadata_len_max);
                check_metadata(metadata_len(head.metadata()), metadata_max)?;
                Ok(CallRoute::Extended { operation, format })
            }
            (MethodRoute::Plain, _) if format == Format::Polyglot => {
                self.check_head(method, head)?;
                Ok(CallRoute::Plain { operation: connection.operation(method)?, is_assumed: peer.is_none() })
            }
            (MethodRoute::Plain, _) if extended.is_none() => Err(schema_changed(method)),
            (MethodRoute::Plain | MethodRoute::Missing, _) => Err(method_missing(method)),
            (MethodRoute::Extended { .. }, _) => Err(schema_changed(method)),
        }
    }
}

impl ClientConnection {
    /// Checks the answer to a call on an assumed route.
    ///
    /// The operation of this side may belong to another method of the peer, or to the same method with other messages.
    pub(super) fn check_assumed(&self, method: &'static Method, operation: Operation) -> Result<(), Status> {
        match self.peer().map(|peer| peer.route(method)) {
            None | Some(MethodRoute::Plain) => Ok(()),
            Some(MethodRoute::Extended { operation: right, format: Format::Polyglot })
                if right == operation.number() =>
            {
                Ok(())
            }
            Some(_) => Err(Status::failed_precondition(format!(
                "the server has a different schema, and {method} was called before this was known: another method may \
                 have been executed"
            ))),
        }
    }

    /// Returns the operation of a method, unless this side serves the same operation.
    ///
    /// A plain answer has the operation of its request, so it would be taken for a request to this side.
    fn operation(&self, method: &'static Method) -> Result<Operation, Status> {
        let Method { service, name, operation, .. } = method;
        if self.own.serves.contains(*operation) {
            return Err(Status::failed_precondition(format!(
                "{service}/{name} cannot be called from here: operation {operation} is served on this side of the \
                 connection (move one with frpc_build's `first_operation`)"
            )));
        }
        Operation::new(*operation).ok_or_else(|| Status::internal(format!("operation {operation} is reserved")))
    }
}

/// Returns the status of a call encoded for a server with another schema.
fn schema_changed(method: &'static Method) -> Status {
    let text = format!("the server changed its schema while {method} was called: nothing was sent, retry the call");
    Status::unavailable(text)
}

/// Returns the status for a method missing on an extended peer.
fn method_missing(method: &'static Method) -> Status {
    Status::unimplemented(format!("the server has no method {method}"))
}
