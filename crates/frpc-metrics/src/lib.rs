//! Counters of calls without locks, histograms of their durations, and the text formats of Prometheus, without I/O.
//!
//! Each thread has its own counters, so counting takes no lock and no atomic read-modify-write instruction. A reader adds
//! them up. Methods are numbers, so counting looks up no name and no label.
//!
//! ```
//! use std::time::Duration;
//!
//! use frpc_metrics::CallCounters;
//!
//! const SAY_HELLO: usize = 0;
//!
//! let counters = CallCounters::new(1);
//! let cells = counters.here(SAY_HELLO);
//! cells.start();
//! cells.add_request(1, 32);
//! cells.add_response(1, 48);
//! cells.end(0, Duration::from_micros(20));
//!
//! let totals = counters.totals(SAY_HELLO);
//! assert_eq!((totals.started, totals.ended(0), totals.in_flight()), (1, 1, 0));
//! assert_eq!((totals.request_bytes, totals.response_bytes), (32, 48));
//! ```
#![forbid(unsafe_code)]

mod cells;
mod counters;
mod family;
mod histogram;
mod sources;
mod text;
mod thread;
mod totals;

pub use cells::{CODES, MethodCells};
pub use counters::{CallCounters, LocalCells, ThreadedCells};
pub use family::{MetricFamily, MetricKind, MetricPoint, MetricValue};
pub use histogram::{BUCKETS, DurationHistogram, bucket_bound};
pub use sources::{add_source, source_families};
pub use text::{TextFormat, write_text};
pub use totals::CallTotals;
