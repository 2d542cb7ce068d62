//! Spans around calls.

use std::sync::atomic::{AtomicU64, Ordering};

use frisbee::Address;
use tokio::time::Instant;
use tracing::{Instrument, Level, Span, debug, enabled, field, field::display, info, info_span, trace, warn};

use super::layer::{Layer, Next};
use crate::call::{
    context::Inherited,
    exchange::{Answer, Body, Call},
    status::{Code, Status},
    trace::TraceContext,
};

/// Puts a `tracing` span around each sampled call, with the fields of OpenTelemetry's RPC conventions. Calls made inside the
/// handler belong to the same trace: they carry the id of the span.
///
/// At the end, an event reports the code, the message of a failed call (`reason`), the duration (`elapsed`) and, on a server, the address of the caller (`peer`).
/// A call answered with a stream ends with the stream. A call without a span costs no more than the decision.
///
/// The level of the event shows whose fault it is. WARN: a bug or lost data ([`Code::Unknown`], [`Code::Internal`],
/// [`Code::DataLoss`]). INFO: too little time or too much load ([`Code::DeadlineExceeded`], [`Code::Unavailable`],
/// [`Code::ResourceExhausted`]). DEBUG: everything else, mostly errors of the caller.
///
/// ```
/// use frpc::{Channel, Server, layers::{Trace, TraceSampling}};
///
/// // Calls of a trace as its root decides, and one percent of all other calls.
/// let server = Server::builder().layer(Trace::new().sampling(TraceSampling::ParentOr(0.01)));
/// let channel = Channel::builder().layer(Trace::for_channel());
/// # let _ = (server, channel);
/// ```
///
/// The span is named `call` and has the fields `otel.name`, `otel.kind`, `rpc.system.name`, `rpc.method`,
/// `rpc.status_code`, `error.type`, `trace_id`, `span_id` and `parent_span_id`.
///
/// Inside the span, channels to several servers make DEBUG events for picked servers, retries and hedges. Each message is
/// an event at TRACE.
#[derive(Clone, Copy, Debug, Default)]
pub struct Trace {
    sampling: TraceSampling,
    is_client: bool,
}

/// The choice of calls with a span.
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub enum TraceSampling {
    /// Every call.
    Always,
    /// A call of a trace if its caller has a span, and this share of the calls without a trace. Default 1.0.
    ParentOr(f64),
    /// No call.
    Never,
}

impl Default for TraceSampling {
    fn default() -> Self {
        Self::ParentOr(1.0)
    }
}

impl Trace {
    /// Creates the layer for a server.
    pub fn new() -> Self {
        Self::default()
    }

    /// Creates the layer for a channel.
    pub fn for_channel() -> Self {
        Self { is_client: true, ..Self::default() }
    }

    /// Sets the choice of calls with a span.
    pub fn sampling(self, sampling: TraceSampling) -> Self {
        Self { sampling, ..self }
    }

    /// Returns the trace context for calls made on behalf of a call. Its flag is the decision on a span.
    fn decide(self, caller: Option<&TraceContext>) -> TraceContext {
        let new = || caller.map_or_else(|| TraceContext::root(true), TraceContext::child);
        match (self.sampling, caller) {
            (TraceSampling::Always, _) => new().with_sampled(true),
            // A service without spans is invisible in a trace.
            (TraceSampling::Never, Some(caller)) => caller.clone(),
            (TraceSampling::Never, None) => new().with_sampled(false),
            (TraceSampling::ParentOr(_), Some(caller)) if !caller.is_sampled() => caller.clone(),
            (TraceSampling::ParentOr(_), Some(caller)) => caller.child(),
            (TraceSampling::ParentOr(ratio), None) => {
                let root = new();
                let is_sampled = root.trace_id().is_within(ratio);
                root.with_sampled(is_sampled)
            }
        }
    }

    fn has_span(self, own: &TraceContext) -> bool {
        self.sampling != TraceSampling::Never && own.is_sampled()
    }

    fn span(self, call: &Call, caller: Option<&TraceContext>, own: &TraceContext) -> Span {
        let method = call.method();
        info_span!(
            "call",
            otel.name = %method,
            otel.kind = if self.is_client { "client" } else { "server" },
            otel.status_code = field::Empty,
            otel.status_description = field::Empty,
            rpc.system.name = call.system().name(),
            rpc.method = %method,
            rpc.status_code = field::Empty,
            "error.type" = field::Empty,
            trace_id = %own.trace_id(),
            span_id = %own.span_id(),
            parent_span_id = caller.map(|caller| display(caller.span_id())),
        )
    }
}

impl Layer for Trace {
    async fn call(&self, mut call: Call, next: Next<'_>) -> Result<Answer, Status> {
        let caller = TraceContext::of(call.head().metadata());
        let own = self.decide(caller.as_ref());
        if !self.has_span(&own) {
            return if caller.is_some() { next.run(call).await } else { self.run(own, call, next).await };
        }
        let span = self.span(&call, caller.as_ref(), &own);
        if span.is_disabled() {
            return next.run(call).await;
        }
        if self.is_client {
            own.write_to(call.head_mut().metadata_mut());
        }
        let has_messages = span.in_scope(|| enabled!(Level::TRACE));
        let (requests, responses) = if self.is_client { (SENT, RECEIVED) } else { (RECEIVED, SENT) };
        if has_messages {
            call = call.map_body(|body| noted(body, &span, requests));
        }
        let end = CallEnd { span: span.clone(), peer: call.head().peer_addr(), begun: Instant::now() };
        match self.run(own, call, next).instrument(span).await {
            Ok(mut answer) => {
                if has_messages {
                    answer = answer.map_body(|body| noted(body, &end.span, responses));
                }
                Ok(answer.on_end(move |ended| end.log(ended)))
            }
            Err(status) => {
                end.log(Err(&status));
                Err(status)
            }
        }
    }
}

impl Trace {
    /// Passes a call on. Calls made by its handler inherit this context.
    async fn run(self, own: TraceContext, call: Call, next: Next<'_>) -> Result<Answer, Status> {
        if self.is_client {
            return next.run(call).await;
        }
        Inherited::here().with_trace(Some(own)).wrap(next.run(call)).await
    }
}

/// Makes an event of the span for each message.
fn noted(body: Body, span: &Span, direction: &'static str) -> Body {
    match body {
        Body::One(message) => {
            note_message(span, direction, 1, message.len());
            Body::One(message)
        }
        Body::Many(messages) => {
            let (span, count) = (span.clone(), AtomicU64::new(0));
            Body::Many(messages.map_messages(move |message| {
                note_message(&span, direction, count.fetch_add(1, Ordering::Relaxed) + 1, message.len());
                Ok(message)
            }))
        }
    }
}

fn note_message(span: &Span, direction: &str, id: u64, len: usize) {
    trace!(
        parent: span,
        rpc.message.r#type = direction,
        rpc.message.id = id,
        rpc.message.uncompressed_size = len,
        "rpc.message"
    );
}

const SENT: &str = "SENT";
const RECEIVED: &str = "RECEIVED";

/// The data for the final event of a traced call.
struct CallEnd {
    span: Span,
    peer: Option<Address>,
    begun: Instant,
}

impl CallEnd {
    fn log(self, ended: Result<(), &Status>) {
        let Self { span, peer, begun } = self;
        let (peer, elapsed) = (peer.as_ref().map(display), begun.elapsed());
        let code = ended.map_or_else(Status::code, |()| Code::Ok);
        span.record("rpc.status_code", code.name());
        if code != Code::Ok {
            span.record("error.type", code.name());
        }
        let _inside = span.enter();
        let Err(status) = ended else { return debug!(?code, ?elapsed, peer, "call answered") };
        // A field `message` would replace the text of the event, which becomes the name of an event in OpenTelemetry.
        let reason = status.message();
        match code {
            Code::Unknown | Code::Internal | Code::DataLoss => {
                record_error(&span, reason);
                warn!(?code, reason, ?elapsed, peer, "call failed");
            }
            Code::DeadlineExceeded | Code::Unavailable | Code::ResourceExhausted => {
                record_error(&span, reason);
                info!(?code, reason, ?elapsed, peer, "call failed");
            }
            _ => debug!(?code, reason, ?elapsed, peer, "call failed"),
        }
    }
}

fn record_error(span: &Span, reason: &str) {
    span.record("otel.status_code", "ERROR");
    span.record("otel.status_description", reason);
}
