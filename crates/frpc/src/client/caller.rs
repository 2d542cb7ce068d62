//! The interface between a channel and a transport.

use std::future;

use frisbee::{ConnectionMetrics, FlowState, FrameCounts};

use crate::{
    call::{
        deadline::CallTime,
        exchange::{Answer, Call},
        status::Status,
    },
    codec::Format,
    service::boxed::BoxFuture,
};

/// A transport that makes the calls of a [`Channel`](crate::Channel).
pub trait Caller: Send + Sync + 'static {
    /// Returns the format required for messages.
    fn format(&self) -> Format;

    /// Makes a call.
    ///
    /// It fails if its [timeout](crate::Head::timeout) passes before the end of the answer, or if the request is not
    /// sent before the deadline of its [opening](crate::client::CallTime::opening).
    fn call(&self, call: Call) -> BoxFuture<'_, Result<Answer, Status>>;

    /// Makes a call with these deadlines. Channels make their calls in this way.
    ///
    /// By default, this passes the call [with the deadlines](Call::with_time) to [`call`](Self::call), which takes an
    /// allocation.
    fn call_within(&self, call: Call, time: CallTime) -> BoxFuture<'_, Result<Answer, Status>> {
        self.call(call.with_time(time))
    }

    /// Completes when no new call can succeed without another connection.
    ///
    /// A channel to several servers then replaces the transport. By default this never completes, and such a channel
    /// learns from failed calls alone.
    fn lost(&self) -> BoxFuture<'_, ()> {
        Box::pin(future::pending())
    }

    /// Returns the bytes and streams of its open connections, for [`EndpointView::traffic`](crate::inspect::EndpointView::traffic).
    fn traffic(&self) -> Option<ConnectionMetrics> {
        None
    }

    /// Returns the frames of these connections by type.
    fn frames(&self) -> FrameCounts {
        FrameCounts::default()
    }

    /// Returns the streams and the credit of these connections, over HTTP/2.
    fn flow(&self) -> Option<FlowState> {
        None
    }

    /// Returns `true` if these connections use TLS.
    fn is_secure(&self) -> bool {
        false
    }
}
