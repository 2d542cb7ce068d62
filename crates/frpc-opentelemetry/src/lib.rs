//! Metrics and traces of [frpc] for [OpenTelemetry](https://opentelemetry.io).
//!
//! - [`OtlpMetrics`] sends the counters of the process to a collector, over gRPC.
//! - [`TraceBridge`] exports the spans of [`frpc::layers::Trace`] with the ids of their trace contexts, so a trace
//!   through many processes is one tree. It uses `tracing-opentelemetry`, and is part of the feature `traces`.
//!
//! ```no_run
//! use frpc_opentelemetry::{OtlpMetrics, OtlpSettings};
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! // OTEL_SERVICE_NAME, OTEL_EXPORTER_OTLP_ENDPOINT and other variables of OpenTelemetry apply.
//! let metrics = OtlpMetrics::start(OtlpSettings::from_env()?)?;
//! // Serve and call.
//! metrics.shutdown().await?;
//! # Ok(())
//! # }
//! ```
//!
//! Tonic and its transport are not needed: the collector is called over a channel of frpc.
#![forbid(unsafe_code)]

#[cfg(feature = "traces")]
mod bridge;
mod collector;
#[cfg(feature = "traces")]
mod current_span;
mod error;
mod metrics;
mod points;
mod process;
pub mod protos;
mod settings;
#[cfg(feature = "traces")]
mod spans;

#[cfg(feature = "traces")]
pub use bridge::{CallTracer, TraceBridge};
#[cfg(feature = "traces")]
pub use current_span::CurrentSpan;
pub use error::{ExportError, OtlpError};
pub use metrics::OtlpMetrics;
pub use settings::{HistogramFormat, OtlpSettings};
#[cfg(feature = "traces")]
pub use spans::OtlpSpans;
