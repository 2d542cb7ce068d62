//! The comparison of methods with different messages on both peers: do they fit in protocol buffers?
//!
//! The caller asks the server before it sends any part of a call.

use std::time::Duration;

use bytes::Bytes;
use frisbee::Operation;
use tracing::{debug, warn};

use super::{
    super::bytes::{
        envelope,
        schema::{MessageDifference, MethodDescription},
    },
    connection::ClientConnection,
    reconnecting::FrisbeeCaller,
    request::OutgoingRequest,
    table::CallReply,
    unary::decode_envelope,
};
use crate::{
    call::{
        deadline::Deadline,
        exchange::Body,
        method::Method,
        status::{Code, Status},
    },
    error::CallError,
};

impl ClientConnection {
    /// Checks that the messages of a method fit those of the peer.
    ///
    /// If they differ, the peer is asked once per connection. On an error, nothing of the call was sent.
    pub(crate) async fn check_schema(&self, method: &'static Method, deadline: Deadline) -> Result<(), Status> {
        let Some((operation, check)) = self.peer().and_then(|peer| peer.differing(method)) else { return Ok(()) };
        let comparing = check.get_or_try_init(|| self.compare(method, operation, deadline));
        deadline.bound_unsent(comparing).await?.clone()
    }

    /// Returns whether the messages of a method fit. The outer error means that the peer could not be asked.
    async fn compare(
        &self,
        method: &'static Method,
        operation: u16,
        deadline: Deadline,
    ) -> Result<Result<(), Status>, Status> {
        let description = match self.description(method, operation, deadline).await {
            Ok(description) => MethodDescription::decode(description),
            Err(status) => match status.call_error() {
                // No part of the call itself was sent.
                Some(CallError::ConnectionLost { reason, .. }) => {
                    return Err(CallError::ConnectionLost { reason: reason.clone(), may_have_executed: false }.into());
                }
                Some(&CallError::TimedOut { limit }) => return Err(CallError::NotSent { limit }.into()),
                Some(CallError::AnswerTooLarge { .. }) | None => None,
                Some(_) => return Err(status),
            },
        };
        let Some(description) = description else {
            debug!(%method, "the server has different messages without a description, assuming that they fit");
            return Ok(Ok(()));
        };
        Ok(match description.difference(method, self.own.accepts_narrowing) {
            None => Ok(()),
            Some(MessageDifference { text, is_accepted: true }) => {
                warn!(peer = %self.connection.peer_addr(), "calls may lose values: {text}");
                Ok(())
            }
            Some(MessageDifference { text, is_accepted: false }) => {
                warn!(peer = %self.connection.peer_addr(), "every call will fail: {text}");
                Err(Status::new(Code::FailedPrecondition, text))
            }
        })
    }

    /// Requests the peer's description of a method.
    async fn description(&self, method: &'static Method, operation: u16, deadline: Deadline) -> Result<Bytes, Status> {
        let question = OutgoingRequest::Encoded(envelope::describe(operation).into());
        let (CallReply::Plain(reply) | CallReply::Extended(reply)) =
            self.exchange(Operation::EXTENDED, question, deadline, method).await?;
        match decode_envelope(reply, self)?.into_body() {
            Body::One(description) => Ok(description.into_bytes()),
            Body::Many(_) => Err(Status::internal("the peer described a method with a stream")),
        }
    }

    /// Compares methods before they are called, and logs misfits.
    ///
    /// Runs as a task that does not keep the connection open.
    fn compare_in_background(&self, methods: Vec<&'static [Method]>) {
        let mut all = methods.iter().copied().flatten();
        // The common case: the peer is known by now and has the same messages.
        if self.peer().is_some_and(|peer| all.all(|method| peer.differing(method).is_none())) {
            return;
        }
        let connection = self.detached_handle();
        self.connection.runtime().spawn(async move {
            if connection.extended(Deadline::after(AHEAD_MAX)).await.is_err() {
                return;
            }
            for method in methods.into_iter().flatten() {
                // If the peer cannot be asked, the calls will report the reason.
                let _ = connection.check_schema(method, Deadline::after(AHEAD_MAX)).await;
            }
        });
    }
}

impl FrisbeeCaller {
    /// Compares methods with those of the peer, on this connection and on later ones.
    pub(crate) fn declare(&self, methods: &'static [Method]) {
        let mut declared = self.declared();
        if declared.contains(&methods) {
            return;
        }
        declared.push(methods);
        drop(declared);
        self.current().compare_in_background(vec![methods]);
    }

    /// Compares the declared methods with those of the peer on another connection.
    pub(crate) fn compare_declared(&self, connection: &ClientConnection) {
        let declared = self.declared().clone();
        connection.compare_in_background(declared);
    }
}

/// The time limit of a comparison without a waiting call.
const AHEAD_MAX: Duration = Duration::from_secs(30);
