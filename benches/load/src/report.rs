use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::Recorder;
use crate::process::CpuUse;
use crate::window::{Window, nanoseconds};

/// The result of one run, printed as one line of JSON.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Report {
    /// Calls completed inside the window.
    pub rpcs: u64,
    /// All answered calls, including those of the warm-up and after the window.
    pub rpcs_total: u64,
    /// The length of the window.
    pub seconds: f64,
    /// Calls per second inside the window.
    pub rps: f64,
    /// The median latency.
    pub p50_us: f64,
    /// The latency not exceeded by 90 % of calls.
    pub p90_us: f64,
    /// The latency not exceeded by 99 % of calls.
    pub p99_us: f64,
    /// The latency not exceeded by 99.9 % of calls.
    pub p999_us: f64,
    /// The maximum latency.
    pub max_us: f64,
    /// The mean latency.
    pub mean_us: f64,
    /// Wrong answers and failed connections.
    pub errors: u64,
    /// The first error.
    pub first_error: Option<String>,
    /// Calls without an answer at the deadline.
    pub stuck: u64,
    /// Workers without a completed call inside the window.
    pub starved: u64,
    /// The time to open all connections.
    pub connect_s: f64,
    /// User and system time of the client inside the window.
    pub client_cpu_s: f64,
    /// Context switches of the client inside the window.
    pub client_context_switches: u64,
    /// `CLOCK_MONOTONIC` at the start of the window. Not reported by Go clients.
    #[serde(default)]
    pub t_start_ns: u64,
    /// `CLOCK_MONOTONIC` at the end of the window. Not reported by Go clients.
    #[serde(default)]
    pub t_end_ns: u64,
}

impl Report {
    /// Combines the measurements of all workers.
    pub fn new(window: Window, recorders: Vec<Recorder>, connect: Duration, client_cpu: CpuUse) -> Self {
        let starved = recorders.iter().filter(|recorder| recorder.is_starved()).count() as u64;
        let mut all = Recorder::new(window);
        recorders.into_iter().for_each(|recorder| all.merge(recorder));

        let rpcs = all.latencies.len();
        let seconds = window.duration().as_secs_f64();
        let quantile_us = |quantile| all.latencies.value_at_quantile(quantile) as f64 / 1e3;
        Self {
            rpcs,
            rpcs_total: all.total,
            seconds,
            rps: rpcs as f64 / seconds,
            p50_us: quantile_us(0.5),
            p90_us: quantile_us(0.9),
            p99_us: quantile_us(0.99),
            p999_us: quantile_us(0.999),
            max_us: quantile_us(1.0),
            mean_us: all.latencies.mean() / 1e3,
            errors: all.errors,
            first_error: all.first_error,
            stuck: all.stuck,
            starved,
            connect_s: connect.as_secs_f64(),
            client_cpu_s: client_cpu.time.as_secs_f64(),
            client_context_switches: client_cpu.context_switches,
            t_start_ns: window.start_ns,
            t_end_ns: window.start_ns + nanoseconds(window.duration()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_calls_in_the_window_and_starved_workers() {
        let window = Window::after(Duration::ZERO, Duration::from_secs(2));
        let mut busy = Recorder::new(window);
        for answered in [window.start() + Duration::from_micros(500), window.end()] {
            busy.complete(window.start(), answered, 1);
        }
        let mut idle = Recorder::new(window);
        idle.fail("no answer");
        idle.give_up(3);

        let report = Report::new(window, vec![busy, idle], Duration::ZERO, CpuUse::default());
        assert_eq!((report.rpcs, report.rpcs_total, report.rps), (1, 2, 0.5));
        assert_eq!((report.errors, report.stuck, report.starved), (1, 3, 1));
        assert!((report.p50_us - 500.0).abs() < 5.0, "{report:?}");
        assert!(serde_json::to_string(&report).unwrap().contains(r#""first_error":"no answer""#));
    }
}
