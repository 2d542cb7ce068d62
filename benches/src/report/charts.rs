//! Charts: one per family of workloads and per metric, with up to three metrics. The workloads of a family differ in
//! clients, message size or server threads.

use std::path::Path;
use std::{fs, io};

use benches::{Contender, Contest};

use crate::chart::{Across, Chart, Line, Scale};
use crate::noise;
use crate::row::Row;
use crate::sample::Sample;
use crate::workload::Workload;

/// Writes a file `FAMILY-METRIC.svg` for each chart.
pub(crate) fn write(directory: &Path, rows: &[Row<'_>]) -> io::Result<()> {
    fs::create_dir_all(directory)?;
    for family in rows.chunk_by(|one, other| one.workload.family() == other.workload.family()) {
        let workload = family[0].workload;
        let Some(subject) = Subject::of(workload.contest) else { continue };
        if family.len() < subject.points_min {
            continue;
        }
        for metric in subject.metrics {
            let path = directory.join(format!("{}-{}.svg", workload.family(), metric.file));
            fs::write(path, metric.chart(family, subject.across).to_svg())?;
        }
    }
    Ok(())
}

/// The axes and metrics for a contest.
struct Subject {
    /// The property that differs within a family.
    across: Across,
    /// The minimum number of points for a chart.
    points_min: usize,
    metrics: &'static [Metric],
}

impl Subject {
    fn of(contest: Contest) -> Option<Self> {
        Some(match contest {
            Contest::Stacks | Contest::Sums(_) => Self { across: CLIENTS, points_min: 3, metrics: &[CALLS, P99, CPU] },
            Contest::Grpc => Self { across: CONCURRENT, points_min: 3, metrics: &[CALLS, P99, CPU] },
            Contest::Streams | Contest::GrpcStreams => {
                Self { across: SIZE, points_min: 3, metrics: &[BYTES, MESSAGE_CPU] }
            }
            Contest::Scaling => Self { across: THREADS, points_min: 2, metrics: &[CALLS, CPU] },
            Contest::Servers
            | Contest::Clients
            | Contest::GrpcServers
            | Contest::GrpcClients
            | Contest::Http1Servers => return None,
        })
    }
}

/// Returns the position of a workload on the horizontal axis.
fn place(workload: &Workload) -> f64 {
    let place = match workload.contest {
        Contest::Streams | Contest::GrpcStreams => workload.size,
        Contest::Grpc => workload.concurrent.into(),
        Contest::Scaling => workload.server_cores.unwrap_or(1),
        _ => workload.clients,
    };
    place as f64
}

struct Metric {
    file: &'static str,
    title: &'static str,
    scale: Scale,
    label: fn(f64) -> String,
    of: fn(&Workload, &Sample) -> f64,
}

impl Metric {
    fn chart(&self, family: &[Row<'_>], across: Across) -> Chart {
        let line = |(contender, color): (&Contender, _)| {
            let value = |row: &Row<'_>| {
                row.rounds_of(contender.name)?.spread(|sample| (self.of)(row.workload, sample)).median()
            };
            let point = |row: &Row<'_>| Some((place(row.workload), value(row)?));
            Line { name: contender.name, color, points: family.iter().filter_map(point).collect() }
        };
        let lines = Contender::ALL.iter().zip(COLORS).map(line).filter(|line| !line.points.is_empty());
        let noise = family.iter().map(Row::noise).fold(0.0, f64::max);
        let warning = if noise::is_quiet(noise) { "" } else { " — noisy run, not a result" };
        Chart {
            title: self.title.to_owned(),
            subtitle: format!("{}{warning}", load_of(family[0].workload)),
            lines: lines.collect(),
            across,
            scale: self.scale,
            label: self.label,
        }
    }
}

fn load_of(workload: &Workload) -> String {
    let &Workload { contest, size, clients, concurrent, sleep_us, .. } = workload;
    if matches!(contest, Contest::Streams | Contest::GrpcStreams) {
        return match (concurrent, clients) {
            (1, 1) => "one stream on one connection".to_owned(),
            _ => format!("{concurrent} streams on each of {clients} connections"),
        };
    }
    let size = bytes(size as f64);
    if contest == Contest::Grpc {
        return format!("echo of {size}, {clients} clients, all but frpc over gRPC");
    }
    let calls = if concurrent == 1 { "one call".to_owned() } else { format!("{concurrent} calls") };
    let sleep = if sleep_us == 0 { String::new() } else { format!(", handlers sleep {sleep_us} µs") };
    let clients = if contest == Contest::Scaling { format!(", {clients} clients") } else { String::new() };
    format!("echo of {size}, {calls} in flight per client{clients}{sleep}")
}

fn bytes(value: f64) -> String {
    match value {
        1048576.0.. => format!("{} MiB", rounded(value / 1048576.0)),
        1024.0.. => format!("{} KiB", rounded(value / 1024.0)),
        _ => format!("{} B", rounded(value)),
    }
}

fn count(value: f64) -> String {
    match value {
        1e9.. => format!("{} G", rounded(value / 1e9)),
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

const CALLS: Metric = Metric {
    file: "calls",
    title: "Calls per second",
    scale: Scale::Linear,
    label: count,
    of: |_, sample| sample.report.rps,
};

const P99: Metric = Metric {
    file: "p99",
    title: "Latency that 99 of 100 calls do not exceed",
    scale: Scale::Log,
    label: microseconds,
    of: |_, sample| sample.report.p99_us,
};

const CPU: Metric = Metric {
    file: "cpu",
    title: "CPU time of the server per call",
    scale: Scale::Linear,
    label: microseconds,
    of: |_, sample| sample.server_cpu_per_million(),
};

const BYTES: Metric = Metric {
    file: "bytes",
    title: "Bytes of messages per second",
    scale: Scale::Linear,
    label: |value| format!("{}B", count(value)),
    of: |workload, sample| sample.report.rps * workload.size as f64,
};

/// Logarithmic, because message sizes change the value by factors of thousands.
const MESSAGE_CPU: Metric = Metric { title: "CPU time of the server per message", scale: Scale::Log, ..CPU };

/// One color per contender, of medium lightness for both backgrounds.
const COLORS: [&str; Contender::ALL.len()] = [
    "#8b949e", "#db61a2", "#e5534b", "#d4691e", "#8957e5", "#2f81f7", "#1b9e9e", "#2da44e", "#bf8700", "#bf3989",
    "#57606a", "#116329", "#8250df", "#d29922", "#218bff", "#54aeff", "#80ccff", "#a475f9", "#0969da", "#1a7f37",
    "#4ac26b", "#8c959f", "#bc4c00", "#9a6700", "#d4a72c", "#cf222e", "#bf4b8a",
];

const CLIENTS: Across = Across { name: "clients", label: |clients| clients.to_string() };
const CONCURRENT: Across = Across { name: "calls in flight on each connection", label: |calls| calls.to_string() };
const SIZE: Across = Across { name: "size of a message", label: bytes };
const THREADS: Across = Across { name: "threads of the server", label: |threads| threads.to_string() };
