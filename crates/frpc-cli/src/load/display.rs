//! Human-readable results of load tests.

use std::{
    fmt::Write,
    io::{self, IsTerminal, Write as _},
    time::Duration,
};

use super::record::{LoadResults, QUANTILES, per_second};
use crate::{failure::code_name, terminal::OutputStyle};

/// A progress line on standard error, shown only on a terminal.
pub(crate) struct ProgressLine {
    is_shown: bool,
}

impl ProgressLine {
    pub(crate) fn new(is_wanted: bool) -> Self {
        Self { is_shown: is_wanted && io::stderr().is_terminal() }
    }

    /// Shows the progress of a load test.
    pub(crate) fn show(&self, name: &str, record: &LoadResults, done: f64, elapsed: Duration) {
        if !self.is_shown {
            return;
        }
        const WIDTH: usize = 24;
        let done = done.clamp(0.0, 1.0);
        #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "it is at most the width")]
        let full = (done * WIDTH as f64).round() as usize;
        let bar = format!("{}{}", "━".repeat(full), "╌".repeat(WIDTH - full));
        let style = OutputStyle::of_stderr();
        let line = format!(
            "{name} {} {}/s · p50 {} · p99 {} · {} failed",
            style.cyan(&bar),
            count(per_second(record.calls(), elapsed)),
            time(record.quantile(0.5)),
            time(record.quantile(0.99)),
            record.failures()
        );
        // Continue if the terminal is closed.
        let _ = write!(io::stderr(), "\r\x1b[2K{line}");
        let _ = io::stderr().flush();
    }

    /// Removes the line.
    pub(crate) fn clear(&self) {
        if self.is_shown {
            let _ = write!(io::stderr(), "\r\x1b[2K");
        }
    }
}

/// Returns the summary of a load test, including its histogram.
pub(crate) fn summary(record: &LoadResults, elapsed: Duration, style: OutputStyle) -> String {
    let mut out = String::new();
    // Writing to a string cannot fail.
    let mut line = |name: &str, text: String| {
        let _ = writeln!(out, "  {} {text}", style.dim(&format!("{name:<9}")));
    };
    let rate = count(per_second(record.calls(), elapsed));
    line("calls", format!("{} in {} · {}/s", record.calls(), time(elapsed), style.bold(&rate)));
    if record.messages() != record.calls() {
        line("messages", format!("{} · {}/s", record.messages(), count(per_second(record.messages(), elapsed))));
    }
    line("bytes", format!("{} received · {}/s", record.bytes(), count(per_second(record.bytes(), elapsed))));
    for (code, failed) in record.failed() {
        line("failed", format!("{} with {}", style.red(&failed.to_string()), code_name(code)));
    }
    if record.calls() == 0 {
        return out;
    }
    let (mean, min, max) = (time(record.mean()), time(record.min()), time(record.max()));
    line("latency", format!("mean {mean} · min {min} · max {max}"));
    let quantiles = QUANTILES.map(|(name, part)| format!("{name} {}", time(record.quantile(part))));
    line("", quantiles.join(" · "));
    out.push_str(&histogram(record, style));
    out
}

fn histogram(record: &LoadResults, style: OutputStyle) -> String {
    const WIDTH: u64 = 40;
    let rows = record.rows(10);
    let most = rows.iter().map(|(_, count)| *count).max().unwrap_or(0).max(1);
    let mut out = String::new();
    for (end, calls) in rows {
        let eighths = calls * WIDTH * 8 / most;
        let (full, part) = (usize::try_from(eighths / 8).unwrap_or(0), usize::try_from(eighths % 8).unwrap_or(0));
        let part = ["", "▏", "▎", "▍", "▌", "▋", "▊", "▉"][part];
        let bar = format!("{}{part}", "█".repeat(full));
        let _ = writeln!(out, "  {} {} {calls}", style.dim(&format!("≤{:>9}", time(end))), style.cyan(&bar));
    }
    out
}

/// Formats a duration with about three digits.
pub(crate) fn time(time: Duration) -> String {
    let nanos = time.as_nanos() as f64;
    let (value, unit) = match nanos {
        nanos if nanos < 1e3 => (nanos, "ns"),
        nanos if nanos < 1e6 => (nanos / 1e3, "µs"),
        nanos if nanos < 1e9 => (nanos / 1e6, "ms"),
        nanos => (nanos / 1e9, "s"),
    };
    let digits = if value < 10.0 { 2 } else { usize::from(value < 100.0) };
    format!("{value:.digits$} {unit}")
}

/// Formats a count with about three digits.
pub(crate) fn count(count: f64) -> String {
    let (value, unit) = match count {
        count if count < 1e4 => return format!("{count:.0}"),
        count if count < 1e6 => (count / 1e3, " k"),
        count if count < 1e9 => (count / 1e6, " M"),
        count => (count / 1e9, " G"),
    };
    let digits = if value < 10.0 { 2 } else { usize::from(value < 100.0) };
    format!("{value:.digits$}{unit}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_and_counts_have_units() {
        let times =
            [(0, "0.00 ns"), (999, "999 ns"), (1500, "1.50 µs"), (25_300_000, "25.3 ms"), (3_000_000_000, "3.00 s")];
        for (nanos, shown) in times {
            assert_eq!(time(Duration::from_nanos(nanos)), shown);
        }
        for (number, shown) in [(0.0, "0"), (9999.0, "9999"), (12_345.0, "12.3 k"), (1.5e6, "1.50 M")] {
            assert_eq!(count(number), shown);
        }
    }
}
