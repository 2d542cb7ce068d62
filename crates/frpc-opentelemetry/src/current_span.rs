//! Calls as children of the current span.

use frpc::{Answer, Call, Layer, Next, SpanId, Status, TraceContext, TraceId};
use opentelemetry::{
    Context,
    trace::{SpanContext, TraceContextExt},
};
use tracing_opentelemetry::OpenTelemetrySpanExt;

/// A layer for channels: calls belong to the trace of the current OpenTelemetry span, as its children.
///
/// Add it before [`Trace::for_channel`](frpc::layers::Trace::for_channel), if there is one. A trace context set for a
/// single call takes precedence if it belongs to another trace.
///
/// ```
/// use frpc::{Channel, layers::Trace};
/// use frpc_opentelemetry::CurrentSpan;
///
/// let channel = Channel::builder().layer(CurrentSpan).layer(Trace::for_channel());
/// # let _ = channel;
/// ```
#[derive(Clone, Copy, Debug, Default)]
pub struct CurrentSpan;

impl Layer for CurrentSpan {
    async fn call(&self, mut call: Call, next: Next<'_>) -> Result<Answer, Status> {
        if let Some(current) = current() {
            let given = TraceContext::of(call.head().metadata());
            // The inherited context is the call around the handler. The current span may be a closer parent.
            let is_closer = given.as_ref().is_none_or(|given| given.trace_id() == current.trace_id());
            if is_closer {
                let state = given.as_ref().map_or("", TraceContext::state);
                let current = if state.is_empty() { Ok(current) } else { current.clone().with_state(state) };
                if let Ok(current) = current {
                    current.write_to(call.head_mut().metadata_mut());
                }
            }
        }
        next.run(call).await
    }
}

/// Returns the context of the current span.
fn current() -> Option<TraceContext> {
    // The span of `tracing` is right even if its layer does not activate contexts.
    let span = tracing::Span::current();
    let of_tracing = if span.is_none() { None } else { to_trace(span.context().span().span_context()) };
    of_tracing.or_else(|| to_trace(Context::current().span().span_context()))
}

fn to_trace(context: &SpanContext) -> Option<TraceContext> {
    let trace = TraceId::from_bytes(context.trace_id().to_bytes())?;
    let span = SpanId::from_bytes(context.span_id().to_bytes())?;
    let found = TraceContext::new(trace, span, context.is_sampled()).with_flags(context.trace_flags().to_u8());
    let state = context.trace_state().header();
    Some(if state.is_empty() { found } else { found.clone().with_state(&state).unwrap_or(found) })
}
