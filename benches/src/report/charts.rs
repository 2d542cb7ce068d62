//! What the charts show: each family of workloads with enough numbers of clients, by three metrics.

use std::path::Path;
use std::{fs, io};

use benches::{Contender, Contest};

use crate::chart::{Chart, Line, Scale};
use crate::noise;
use crate::row::Row;
use crate::sample::Sample;
use crate::workload::Workload;

/// Writes `FAMILY-METRIC.svg` for each.
pub(crate) fn write(directory: &Path, rows: &[Row<'_>]) -> io::Result<()> {
    fs::create_dir_all(directory)?;
    for family in rows.chunk_by(|one, other| one.workload.family() == other.workload.family()) {
        let workload = family[0].workload;
        if family.len() < CLIENT_COUNTS_MIN || workload.contest != Contest::Stacks {
            continue;
        }
        for metric in METRICS {
            let path = directory.join(format!("{}-{}.svg", workload.family(), metric.file));
            fs::write(path, metric.chart(family).to_svg())?;
        }
    }
    Ok(())
}

struct Metric {
    file: &'static str,
    title: &'static str,
    scale: Scale,
    label: fn(f64) -> String,
    of: fn(&Sample) -> f64,
}

impl Metric {
    fn chart(&self, family: &[Row<'_>]) -> Chart {
        let line = |(contender, color): (&Contender, _)| {
            let value = |row: &Row<'_>| row.rounds_of(contender.name)?.spread(self.of).median();
            let point = |row: &Row<'_>| Some((row.workload.clients as f64, value(row)?));
            Line { name: contender.name, color, points: family.iter().filter_map(point).collect() }
        };
        let lines = Contender::ALL.iter().zip(COLORS).map(line).filter(|line| !line.points.is_empty());
        let noise = family.iter().map(Row::noise).fold(0.0, f64::max);
        let warning = if noise::is_quiet(noise) { "" } else { " — noisy run, not a result" };
        Chart {
            title: self.title.to_owned(),
            subtitle: format!("{}{warning}", load_of(family[0].workload)),
            lines: lines.collect(),
            scale: self.scale,
            label: self.label,
        }
    }
}

fn load_of(workload: &Workload) -> String {
    let &Workload { size, concurrent, sleep_us, .. } = workload;
    let size = match size {
        0x10_0000.. => format!("{} MiB", size >> 20),
        0x400.. => format!("{} KiB", size >> 10),
        _ => format!("{size} B"),
    };
    let calls = if concurrent == 1 { "one call".to_owned() } else { format!("{concurrent} calls") };
    let sleep = if sleep_us == 0 { String::new() } else { format!(", handlers sleep {sleep_us} µs") };
    format!("echo of {size}, {calls} in flight per client{sleep}")
}

fn count(value: f64) -> String {
    match value {
        1e6.. => format!("{} M", rounded(value / 1e6)),
        1e3.. => format!("{} k", rounded(value / 1e3)),
        _ => rounded(value).to_string(),
    }
}

fn microseconds(value: f64) -> String {
    match value {
        1e6.. => format!("{} s", rounded(value / 1e6)),
        1e3.. => format!("{} ms", rounded(value / 1e3)),
        _ => format!("{} µs", rounded(value)),
    }
}

fn rounded(value: f64) -> f64 {
    (value * 1e3).round() / 1e3
}

const METRICS: [Metric; 3] = [
    Metric {
        file: "calls",
        title: "Calls per second",
        scale: Scale::Linear,
        label: count,
        of: |sample| sample.report.rps,
    },
    Metric {
        file: "p99",
        title: "Latency that 99 of 100 calls do not exceed",
        scale: Scale::Log,
        label: microseconds,
        of: |sample| sample.report.p99_us,
    },
    Metric {
        file: "cpu",
        title: "CPU time of the server per call",
        scale: Scale::Linear,
        label: microseconds,
        of: Sample::server_cpu_per_million,
    },
];

/// For each contender. Of middle lightness, for paper of both kinds.
const COLORS: [&str; Contender::ALL.len()] = [
    "#8b949e", "#db61a2", "#e5534b", "#d4691e", "#8957e5", "#b0456e", "#c78a7a", "#2f81f7", "#1b9e9e", "#2da44e",
    "#bf8700", "#7a9a2e", "#a371f7", "#6e7781",
];

/// Fewer do not make a curve.
const CLIENT_COUNTS_MIN: usize = 3;
