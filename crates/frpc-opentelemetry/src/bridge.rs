//! The bridge from spans of frpc to OpenTelemetry.

use std::{cell::Cell, str::FromStr};

use frpc::TraceContext;
use opentelemetry::{
    Context, KeyValue, Value,
    trace::{
        SpanBuilder, SpanContext, SpanId, TraceContextExt, TraceFlags, TraceId, TraceState, Tracer, TracerProvider,
    },
};
use opentelemetry_sdk::trace::{
    IdGenerator, RandomIdGenerator, SdkTracer, SdkTracerProvider, Span, TracerProviderBuilder,
};
use tracing::{Metadata, Subscriber};
use tracing_subscriber::{Layer, filter::filter_fn, registry::LookupSpan};

/// Exports the spans of [`frpc::layers::Trace`] with the ids of their trace contexts.
///
/// The trace id, the span id and the parent of a span are the ones sent to other processes in `traceparent`, so a trace
/// through many processes is one tree. Other spans of the program take part: a span made in a handler is a child of the
/// call, and with [`CurrentSpan`](crate::CurrentSpan) a call is a child of the span around it.
///
/// [`Trace::sampling`](frpc::layers::Trace::sampling) decides on the calls with a span. Keep the default sampler of the
/// provider, which follows these decisions.
///
/// ```
/// use frpc::{Channel, Server, layers::Trace};
/// use frpc_opentelemetry::{CurrentSpan, OtlpSettings, OtlpSpans, TraceBridge};
/// use opentelemetry_sdk::trace::SdkTracerProvider;
/// use tracing_subscriber::layer::SubscriberExt;
///
/// let spans = OtlpSpans::start(&OtlpSettings::from_env()?)?;
/// let bridge = TraceBridge::new(SdkTracerProvider::builder().with_batch_exporter(spans));
/// let subscriber = tracing_subscriber::registry().with(bridge.layer());
/// // In a program: tracing::subscriber::set_global_default(subscriber)?;
/// # let _inside = tracing::subscriber::set_default(subscriber);
///
/// let server = Server::builder().layer(Trace::new());
/// let channel = Channel::builder().layer(CurrentSpan).layer(Trace::for_channel());
/// // Serve and call. At the end, send the last spans:
/// bridge.provider().shutdown()?;
/// # let _ = (server, channel);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug)]
pub struct TraceBridge {
    provider: SdkTracerProvider,
}

impl TraceBridge {
    /// Builds a provider with the ids of frpc. An id generator of the builder is replaced.
    pub fn new(provider: TracerProviderBuilder) -> Self {
        Self { provider: provider.with_id_generator(CallIds::default()).build() }
    }

    /// Returns a layer for the subscriber of the program, with the default settings of `tracing-opentelemetry`.
    pub fn layer<S>(&self) -> impl Layer<S> + use<S>
    where
        S: Subscriber + for<'span> LookupSpan<'span>,
    {
        tracing_opentelemetry::layer().with_tracer(self.tracer()).with_filter(filter_fn(Self::is_exported))
    }

    /// Returns a tracer for a layer with other settings. Add [`is_exported`](Self::is_exported) as its filter.
    ///
    /// ```
    /// use frpc_opentelemetry::TraceBridge;
    /// use opentelemetry_sdk::trace::SdkTracerProvider;
    /// use tracing_subscriber::{Layer, filter::filter_fn, layer::SubscriberExt};
    ///
    /// let bridge = TraceBridge::new(SdkTracerProvider::builder());
    /// let layer = tracing_opentelemetry::layer().with_tracer(bridge.tracer()).with_location(false);
    /// let subscriber = tracing_subscriber::registry().with(layer.with_filter(filter_fn(TraceBridge::is_exported)));
    /// # let _ = subscriber;
    /// ```
    pub fn tracer(&self) -> CallTracer {
        CallTracer { tracer: self.provider.tracer("frpc") }
    }

    /// Returns `false` for spans of connections. They are open for hours, and handlers run in them, so the spans of
    /// unrelated calls would belong to one trace.
    pub fn is_exported(metadata: &Metadata<'_>) -> bool {
        !metadata.is_span() || metadata.name() != "connection" || !metadata.target().starts_with("frisbee::")
    }

    /// Returns the provider, for flushes, for the shutdown and for other tracers.
    pub fn provider(&self) -> &SdkTracerProvider {
        &self.provider
    }
}

/// A tracer with the ids of frpc for spans of calls. Made by [`TraceBridge::tracer`].
#[derive(Clone, Debug)]
pub struct CallTracer {
    tracer: SdkTracer,
}

impl Tracer for CallTracer {
    type Span = Span;

    fn build_with_context(&self, mut builder: SpanBuilder, parent: &Context) -> Span {
        if let Some(ids) = CallSpanIds::take(&mut builder) {
            let parent = ids.parent(parent);
            let _next = NextIds::set(ids.trace, ids.span);
            return self.tracer.build_with_context(builder, &parent);
        }
        // The first span inside a call without a span, or in a task with an inherited trace.
        let inherited = if has_span(parent) { None } else { TraceContext::current() };
        match inherited {
            Some(trace) => self.tracer.build_with_context(builder, &parent.with_remote_span_context(remote(&trace))),
            None => self.tracer.build_with_context(builder, parent),
        }
    }
}

fn has_span(context: &Context) -> bool {
    context.span().span_context().is_valid()
}

/// Returns a trace context of frpc as one of OpenTelemetry.
fn remote(trace: &TraceContext) -> SpanContext {
    SpanContext::new(
        TraceId::from_bytes(trace.trace_id().to_bytes()),
        SpanId::from_bytes(trace.span_id().to_bytes()),
        TraceFlags::new(trace.flags()),
        true,
        TraceState::from_str(trace.state()).unwrap_or_default(),
    )
}

/// The ids of the span of a call.
struct CallSpanIds {
    trace: TraceId,
    span: SpanId,
    parent: Option<SpanId>,
}

impl CallSpanIds {
    /// Takes the ids from the attributes of a span, if it is the span of a call.
    fn take(builder: &mut SpanBuilder) -> Option<Self> {
        let attributes = builder.attributes.as_mut()?;
        find(attributes, SYSTEM)?;
        let trace = TraceId::from_hex(&find(attributes, TRACE_ID)?).ok()?;
        let span = SpanId::from_hex(&find(attributes, SPAN_ID)?).ok()?;
        let parent = find(attributes, PARENT_ID).and_then(|id| SpanId::from_hex(&id).ok());
        attributes.retain(|attribute| ![TRACE_ID, SPAN_ID, PARENT_ID].contains(&attribute.key.as_str()));
        Some(Self { trace, span, parent })
    }

    /// Returns the context of the parent: the span around the call if it belongs to the same trace, or else the caller.
    fn parent(&self, around: &Context) -> Context {
        if around.span().span_context().trace_id() == self.trace {
            return around.clone();
        }
        match self.parent {
            Some(caller) => {
                // The call has a span, so it is sampled.
                let state = TraceState::default();
                let caller = SpanContext::new(self.trace, caller, TraceFlags::SAMPLED, true, state);
                around.with_remote_span_context(caller)
            }
            // Samplers would take even an invalid parent for an unsampled one.
            None if around.has_active_span() => Context::new(),
            None => around.clone(),
        }
    }
}

fn find(attributes: &[KeyValue], key: &str) -> Option<String> {
    let found = attributes.iter().find(|attribute| attribute.key.as_str() == key)?;
    match &found.value {
        Value::String(text) => Some(text.as_str().to_owned()),
        _ => None,
    }
}

/// An id generator with random ids, except for spans of calls.
#[derive(Debug, Default)]
struct CallIds {
    random: RandomIdGenerator,
}

impl IdGenerator for CallIds {
    fn new_trace_id(&self) -> TraceId {
        NEXT_TRACE.take().unwrap_or_else(|| self.random.new_trace_id())
    }

    fn new_span_id(&self) -> SpanId {
        NEXT_SPAN.take().unwrap_or_else(|| self.random.new_span_id())
    }
}

thread_local! {
    static NEXT_TRACE: Cell<Option<TraceId>> = const { Cell::new(None) };
    static NEXT_SPAN: Cell<Option<SpanId>> = const { Cell::new(None) };
}

/// The ids of the next span of this thread. The provider asks its generator without arguments, so they travel in
/// thread-local variables.
struct NextIds;

impl NextIds {
    fn set(trace: TraceId, span: SpanId) -> Self {
        NEXT_TRACE.set(Some(trace));
        NEXT_SPAN.set(Some(span));
        Self
    }
}

impl Drop for NextIds {
    fn drop(&mut self) {
        // A provider after its shutdown asks for no ids, and a child asks for no trace id.
        NEXT_TRACE.take();
        NEXT_SPAN.take();
    }
}

const SYSTEM: &str = "rpc.system.name";
const TRACE_ID: &str = "trace_id";
const SPAN_ID: &str = "span_id";
const PARENT_ID: &str = "parent_span_id";
