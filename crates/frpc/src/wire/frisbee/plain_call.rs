//! The common unary call: sent immediately on the first connection of its channel, in a plain packet.

use std::{
    future::Future,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, ready},
};

use frisbee::{PacketName, Sent};

use super::{
    call_table::Reply, client::ClientConnection, failures::refused_or_not, pending::PendingCall,
    reconnect::Reconnecting, sending::Sending,
};
use crate::{
    call::{deadline::Deadline, method::Method, status::Status},
    client::needs_another_connection,
    service::boxed::BoxFuture,
};

/// A plain unary call as a single future, so no state is moved between futures.
///
/// Any call that cannot proceed immediately continues in a boxed future. The output is `None` if the call needs an
/// extended packet.
pub(crate) struct PlainCall<'a> {
    wire: &'a Arc<Reconnecting>,
    connection: &'a ClientConnection,
    method: &'static Method,
    request: &'a (dyn Sending + Sync),
    deadline: Deadline,
    step: Step<'a>,
}

enum Step<'a> {
    Begin,
    Wait(PendingCall<'a>, Sent),
    LongWay(BoxFuture<'a, Result<Option<Reply>, Status>>),
}

impl Reconnecting {
    /// Makes a plain unary call on the first connection, if it is the current one.
    #[inline]
    pub(crate) fn plain_call<'a>(
        self: &'a Arc<Self>,
        method: &'static Method,
        request: &'a (dyn Sending + Sync),
        deadline: Deadline,
    ) -> Option<PlainCall<'a>> {
        let connection = self.first()?;
        Some(PlainCall { wire: self, connection, method, request, deadline, step: Step::Begin })
    }
}

impl<'a> PlainCall<'a> {
    /// Sends the request. `None` if that is not possible immediately. In that case, nothing was sent.
    fn begin(&self, cx: &Context<'_>) -> Option<(PendingCall<'a>, Sent)> {
        let Self { connection, method, request, deadline, .. } = *self;
        // `None` for a peer not recognized yet: such a call needs a check after its answer.
        let operation = connection.remote()?.plain_operation(method)?;
        let begun = connection.calls.try_begin(operation.number(), deadline.at, Some(cx.waker()));
        let mut call = begun.ok().flatten()?;
        let sent = request.try_send(&connection.connection, PacketName { id: call.id, operation }).ok()?;
        call.sent(Some(&connection.connection));
        Some((call, sent))
    }
}

impl Future for PlainCall<'_> {
    type Output = Result<Option<Reply>, Status>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let this = self.get_mut();
        let &mut Self { wire, connection, method, request, deadline, .. } = this;
        match &mut this.step {
            Step::Begin => match this.begin(cx) {
                // The table has the waker. An answer since then has woken it.
                Some((call, sent)) => {
                    this.step = Step::Wait(call, sent);
                    return Poll::Pending;
                }
                None => this.step = Step::LongWay(Box::pin(wire.unary(method, request, deadline))),
            },
            Step::Wait(call, sent) => {
                let answer = ready!(call.poll_answered(cx));
                let answer = answer.map_err(|unanswered| connection.unanswered(unanswered, deadline, *sent));
                match refused_or_not(answer) {
                    Err(status) if needs_another_connection(&status) => {
                        let connection = Arc::new(connection.let_go());
                        let again = wire.unary_again(connection, status, method, request, deadline);
                        this.step = Step::LongWay(Box::pin(again));
                    }
                    answered => return Poll::Ready(answered.map(Some)),
                }
            }
            Step::LongWay(_) => {}
        }
        match &mut this.step {
            Step::LongWay(call) => call.as_mut().poll(cx),
            Step::Begin | Step::Wait(..) => unreachable!("both took a step"),
        }
    }
}
