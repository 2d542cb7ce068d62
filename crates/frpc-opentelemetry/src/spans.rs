//! The exporter of spans.

use std::{io, time::Duration};

use frpc::{Body, Call, Channel, Head, Metadata, Method, Status, prost::Message};
use opentelemetry::KeyValue;
use opentelemetry_proto::{
    tonic::collector::trace::v1::{ExportTraceServiceRequest, ExportTraceServiceResponse},
    transform::{common::tonic::ResourceAttributesWithSchema, trace::tonic::group_spans_by_resource_and_scope},
};
use opentelemetry_sdk::{
    Resource,
    error::{OTelSdkError, OTelSdkResult},
    trace::{SpanData, SpanExporter},
};
use tokio::{
    runtime::{self, Handle, Runtime},
    time::timeout,
};
use tracing::warn;

use crate::{
    collector,
    error::{ExportError, OtlpError},
    process::instance,
    settings::OtlpSettings,
};

/// Sends spans to an OpenTelemetry collector, over gRPC. An exporter for
/// [`SdkTracerProvider`](opentelemetry_sdk::trace::SdkTracerProvider), which queues spans within its limits.
///
/// It has a separate thread with a tokio runtime, because the provider waits for exports on the thread of
/// its caller. An unreachable collector is no error. A failed batch is lost, with a warning.
///
/// The provider drops spans while its queue is full, 2,048 spans unless `OTEL_BSP_MAX_QUEUE_SIZE` says otherwise. It logs a
/// warning at the first one, and their number at its shutdown.
#[derive(Debug)]
pub struct OtlpSpans {
    runtime: OwnRuntime,
    channel: Channel,
    timeout: Duration,
    headers: Metadata,
    own: Vec<(String, String)>,
    resource: ResourceAttributesWithSchema,
}

impl OtlpSpans {
    /// Connects to the [endpoint](OtlpSettings::endpoint) in the background. The attributes in
    /// [`resource`](OtlpSettings::resource) take precedence over the ones of the provider.
    ///
    /// # Errors
    ///
    /// A setting is invalid, or the thread cannot be started.
    pub fn start(settings: &OtlpSettings) -> Result<Self, OtlpError> {
        let runtime = OwnRuntime::start().map_err(OtlpError::Thread)?;
        let channel = {
            let _inside = runtime.handle.enter();
            collector::connect(settings)?
        };
        let mut spans = Self {
            runtime,
            channel,
            timeout: settings.timeout,
            headers: settings.headers.clone(),
            own: settings.resource.clone(),
            resource: ResourceAttributesWithSchema::default(),
        };
        spans.set_resource(&Resource::builder().build());
        Ok(spans)
    }
}

impl SpanExporter for OtlpSpans {
    fn export(&self, batch: Vec<SpanData>) -> impl Future<Output = OTelSdkResult> + Send {
        let count = batch.len();
        let resource_spans = group_spans_by_resource_and_scope(batch, &self.resource);
        let request = ExportTraceServiceRequest { resource_spans }.encode_to_vec();
        let (channel, headers, limit) = (self.channel.clone(), self.headers.clone(), self.timeout);
        let task = self.runtime.handle.spawn(async move {
            timeout(limit, send(&channel, headers, request)).await.unwrap_or(Err(ExportError::Timeout))
        });
        async move {
            match task.await {
                Ok(Ok(())) => Ok(()),
                Ok(Err(error)) => {
                    warn!(%error, count, "spans not exported");
                    Err(OTelSdkError::InternalFailure(error.to_string()))
                }
                Err(_) => Err(OTelSdkError::AlreadyShutdown),
            }
        }
    }

    fn set_resource(&mut self, resource: &Resource) {
        let of_provider = resource.iter().map(|(key, value)| KeyValue::new(key.clone(), value.clone()));
        let own = self.own.iter().map(|(key, value)| KeyValue::new(key.clone(), value.clone()));
        // The later attributes take precedence. The instance is the same as for metrics.
        let resource = Resource::builder_empty()
            .with_attribute(KeyValue::new("service.instance.id", instance()))
            .with_attributes(of_provider)
            .with_attributes(own)
            .build();
        self.resource = ResourceAttributesWithSchema::from(&resource);
    }
}

/// A runtime with one thread. Its drop does not wait, because the provider may be dropped in another runtime.
#[derive(Debug)]
struct OwnRuntime {
    handle: Handle,
    /// Taken at the end.
    runtime: Option<Runtime>,
}

impl OwnRuntime {
    fn start() -> io::Result<Self> {
        let mut builder = runtime::Builder::new_multi_thread();
        let runtime = builder.worker_threads(1).thread_name("frpc-otlp-spans").enable_all().build()?;
        Ok(Self { handle: runtime.handle().clone(), runtime: Some(runtime) })
    }
}

impl Drop for OwnRuntime {
    fn drop(&mut self) {
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}

async fn send(channel: &Channel, headers: Metadata, request: Vec<u8>) -> Result<(), ExportError> {
    let format = channel.call_format().await?;
    let mut head = Head::default();
    *head.metadata_mut() = headers;
    let answer = channel.call(Call::new(&EXPORT, format, head, Body::from(request))).await?;
    let Body::One(message) = answer.into_body() else {
        return Err(Status::internal("the collector answered with a stream").into());
    };
    let response = ExportTraceServiceResponse::decode(message.into_bytes())
        .map_err(|error| Status::internal(format!("the answer of the collector is malformed: {error}")))?;
    match response.partial_success {
        Some(partial) if partial.rejected_spans > 0 => {
            Err(ExportError::Rejected { count: partial.rejected_spans, message: partial.error_message })
        }
        _ => Ok(()),
    }
}

static EXPORT: Method = Method::unary("opentelemetry.proto.collector.trace.v1.TraceService", "Export", 65_110);
