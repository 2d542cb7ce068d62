//! The benchmark page and its figures, from results written by `--json`.

use std::collections::BTreeMap;
use std::error::Error;
use std::fmt::{self, Write as _};
use std::fs;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use crate::merge::{self, Machine, Run};
use crate::noise;
use crate::row;
use crate::rows::{GRPC_ROWS, ROWS};
use crate::sample::Sample;
use crate::spread::Spread;

/// The columns of the table of calls over frisbee: our engine, and the contender to compare with.
const COLUMNS: [(&str, &str); 9] = [
    ("frpc", "tonic"),
    ("frpc", "connect-rust"),
    ("frpc", "tarpc"),
    ("frpc", "go-frpc"),
    ("frpc", "floor"),
    ("frpc-per-core", "tonic"),
    ("frpc-per-core", "floor"),
    ("frpc-uring", "tonic"),
    ("frpc-uring", "floor"),
];

/// The columns of the table of gRPC.
const GRPC_COLUMNS: [(&str, &str); 6] = [
    ("frpc-grpc", "tonic"),
    ("frpc-grpc", "connect-rust"),
    ("frpc-grpc", "grpc-go"),
    ("frpc-grpc", "frpc"),
    ("frpc-grpc-per-core", "tonic"),
    ("frpc-grpc-uring", "tonic"),
];

/// The columns of the table of latency, CPU and memory.
const CONTENDERS: [&str; 8] =
    ["frpc", "frpc-per-core", "frpc-uring", "floor", "tonic", "connect-rust", "tarpc", "go-frpc"];

/// The figures of the page, in `report.json`.
#[derive(Default, Deserialize, Serialize)]
struct PublishedReport {
    runs: Vec<PublishedRun>,
}

#[derive(Deserialize, Serialize)]
struct PublishedRun {
    machine: Machine,
    rounds: usize,
    /// The largest share of the machine used by other work.
    noise: f64,
    /// By row and column.
    figures: BTreeMap<String, BTreeMap<String, f64>>,
}

/// A file to publish: a run, or runs that are already published.
#[derive(Deserialize)]
struct PublishedFile {
    #[serde(default)]
    runs: Option<Vec<PublishedRun>>,
}

/// Writes `report.json` and `README.md` of these runs into the directory before them.
pub(crate) fn write(paths: &[PathBuf]) -> Result<(), Box<dyn Error>> {
    let Some((directory, files @ [_, ..])) = paths.split_first() else {
        return Err("--publish takes a directory, and the files of at least one run".into());
    };
    let mut report = PublishedReport::default();
    for file in files {
        match merge::parse::<PublishedFile>(file)?.runs {
            Some(runs) => report.runs.extend(runs),
            None => report.runs.push(PublishedRun::of(&merge::parse(file)?)),
        }
    }
    let page = report.page()?;
    fs::create_dir_all(directory)?;
    fs::write(directory.join("report.json"), serde_json::to_string_pretty(&report)? + "\n")?;
    fs::write(directory.join("README.md"), page)?;
    Ok(())
}

impl PublishedRun {
    fn of(run: &Run) -> Self {
        let mut figures: BTreeMap<String, BTreeMap<String, f64>> = BTreeMap::new();
        let mut insert = |row: &str, column: String, figure: Option<f64>| {
            if let Some(figure) = figure {
                figures.entry(row.to_owned()).or_default().insert(column, (figure * 1e3).round() / 1e3);
            }
        };
        let tables = [(&ROWS[..], &COLUMNS[..]), (&GRPC_ROWS, &GRPC_COLUMNS)];
        for (rows, columns) in tables {
            for ((workload, _), pair) in rows.iter().flat_map(|row| columns.iter().map(move |pair| (row, *pair))) {
                insert(workload, column(&pair), ratio(run, workload, pair));
            }
        }
        for ((title, figure), name) in FIGURES.iter().flat_map(|row| CONTENDERS.map(|name| (row, name))) {
            insert(title, name.to_owned(), figure(run, name));
        }
        Self { machine: run.machine.clone(), rounds: run.plan.rounds, noise: (run.noise * 1e3).round() / 1e3, figures }
    }
}

impl PublishedReport {
    fn page(&self) -> Result<String, fmt::Error> {
        let mut text = INTRODUCTION.to_owned();
        for PublishedRun { machine, rounds, noise, .. } in &self.runs {
            writeln!(text, "{}", machine.origin(*rounds, *noise))?;
        }
        if self.runs.iter().any(|run| !noise::is_quiet(run.noise)) {
            writeln!(text, "\n**Not a result**: other work took more than 5 % of the machine during a run.")?;
        }
        text += match self.runs.len() {
            1 => "\nThis is one run on one machine.\n",
            _ => "\nA cell has the least and the greatest figure of these runs.\n",
        };
        text += CALLS;
        self.write_table(&mut text, &ROWS, &COLUMNS.map(|pair| column(&pair)))?;
        text += OTHER_FIGURES;
        self.write_table(&mut text, &FIGURES.map(|(title, _)| (title, title)), &CONTENDERS.map(str::to_owned))?;
        text += GRPC;
        self.write_table(&mut text, &GRPC_ROWS, &GRPC_COLUMNS.map(|pair| column(&pair)))?;
        Ok(text)
    }

    fn write_table(&self, text: &mut String, rows: &[(&str, &str)], columns: &[String]) -> fmt::Result {
        writeln!(text, "| | {} |\n|---|{}", columns.join(" | "), "--:|".repeat(columns.len()))?;
        for (row, title) in rows {
            let cell = |column: &String| {
                let figure = |run: &PublishedRun| run.figures.get(*row)?.get(column).copied();
                cell(column, &self.runs.iter().filter_map(figure).collect::<Vec<_>>())
            };
            writeln!(text, "| {title} |{}", columns.iter().map(cell).collect::<String>())?;
        }
        Ok(())
    }
}

fn column((subject, other): &(&str, &str)) -> String {
    format!("{subject}: {other}")
}

/// Formats the figures of several runs. Bold marks a faster contender, apart from the floor, which is faster by design.
fn cell(column: &str, figures: &[f64]) -> String {
    let Some(text) = merge::least_to_most(figures) else { return " – |".to_owned() };
    let is_contest = column.split_once(": ").is_some_and(|(_, other)| !matches!(other, "floor" | "frpc"));
    let is_slower = is_contest && figures.iter().all(|ratio| *ratio < 0.995);
    if is_slower { format!(" **{text}** |") } else { format!(" {text} |") }
}

fn ratio(run: &Run, workload: &str, (subject, other): (&str, &str)) -> Option<f64> {
    let row = run.row(workload)?;
    row::ratios(row.samples(subject)?, row.samples(other)?, |sample| sample.report.rps).median()
}

const INTRODUCTION: &str = "\
# Benchmark

<!-- Generated by `benches/published`. -->

The client and the server share the cores of one machine, over loopback. Each contender runs in separate processes, and
the contenders take turns in each round. Compare the columns of a row: absolute figures do not hold for other machines.
[The measurements](../notes/performance.md) explain the figures and have further rows.

One command measures again, in about 40 minutes. It writes this page, its charts and [its figures](report.json).
`benches/published FILE...` adds the figures of other machines, for ranges.

```sh
benches/published
```

";

const CALLS: &str = "
## Calls

Calls per second as a multiple of each contender's, medians of rounds: an echo of a 32-byte `string` unless stated. **C**
is the number of connections, **K** the calls in flight on each. *frpc* is the default configuration, *frpc-per-core* has
`Engine::PerCore` and *frpc-uring* `Engine::Uring` on both sides. The *floor* is a plain tokio loop without any framework. Bold
marks rows where a contender is faster, apart from the floor.

![calls per second by clients, ten calls in flight on each](32B-K10-calls.svg)

";

const OTHER_FIGURES: &str = "
## Latency, CPU and memory

![99th percentile of the latency by clients](32B-K10-p99.svg)
![server CPU per call](32B-K10-cpu.svg)

";

const GRPC: &str = "
## gRPC

Calls per second as a multiple of each contender's, with gRPC on both sides; *frpc* is the default configuration over
frisbee. A message of a stream counts as a call.

![calls per second over gRPC by calls in flight](grpc-32B-C32-calls.svg)

";

type Figure = fn(&Run, &str) -> Option<f64>;

/// The rows of the table of latency, CPU and memory.
const FIGURES: [(&str, Figure); 5] = [
    ("p99 at C=32 K=10, ms", |run, name| median(run, "32B-C32-K10", name, |sample| sample.report.p99_us / 1e3)),
    ("p99 at C=256 K=10, ms", |run, name| median(run, "32B-C256-K10", name, |sample| sample.report.p99_us / 1e3)),
    ("server CPU per call at C=32 K=10, of the floor's", |run, name| {
        let row = run.row("32B-C32-K10")?;
        row::ratios(row.samples(name)?, row.samples("floor")?, Sample::server_cpu_per_million).median()
    }),
    ("server memory at C=8192, MiB", |run, name| median(run, "32B-C8192-K1", name, Sample::server_mib)),
    ("an idle connection, KiB", |run, name| {
        let idle = run.idle.iter().find(|idle| idle.contender == name)?;
        Some(idle.bytes_per_connection? as f64 / 1024.0)
    }),
];

fn median(run: &Run, workload: &str, contender: &str, metric: impl Fn(&Sample) -> f64) -> Option<f64> {
    Spread::of(run.row(workload)?.samples(contender)?.iter().map(metric)).median()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workload::WORKLOADS;

    #[test]
    fn every_published_row_is_measured() {
        for name in ROWS.iter().chain(&GRPC_ROWS).map(|(name, _)| name) {
            assert!(WORKLOADS.iter().any(|workload| workload.name == *name), "{name}");
        }
    }

    #[test]
    fn tables_have_medians_and_ranges_over_runs() {
        let run = |rps: [f64; 2], idle: u64, noise: f64| -> PublishedRun {
            let report = |rps: f64| {
                serde_json::json!({
                    "rpcs": 1, "rpcs_total": 1, "seconds": 1.0, "rps": rps, "p50_us": 1.0, "p90_us": 1.0, "p99_us": 4300.0,
                    "p999_us": 1.0, "max_us": 1.0, "mean_us": 1.0, "errors": 0, "first_error": null, "stuck": 0, "starved": 0,
                    "connect_s": 1.0, "client_cpu_s": 1.0, "client_context_switches": 1,
                })
            };
            let rounds = |contender: &str, rps: f64| {
                let sample = serde_json::json!({
                    "report": report(rps), "server_cpu_s": 1.0, "server_context_switches": 1, "server_memory_kib": 1,
                    "noise": 0.0,
                });
                serde_json::json!({ "contender": contender, "samples": [sample] })
            };
            let run = serde_json::json!({
                "machine": {
                    "date": "2026-01-01", "kernel": "6.1", "cpu": "CPU", "cores": 2, "profile": "release", "commit": "abc",
                    "versions": [["tonic", "0.14.9"]],
                },
                "plan": { "rounds": 1 },
                "noise": noise,
                "rows": [{
                    "workload": { "name": "32B-C32-K10" },
                    "contenders": [rounds("frpc", rps[0]), rounds("tonic", rps[1]), rounds("floor", 2.0 * rps[0])],
                }],
                "idle": [{ "contender": "frpc", "bytes_per_connection": idle }],
            });
            PublishedRun::of(&serde_json::from_value(run).unwrap())
        };
        let page = |runs: Vec<PublishedRun>| PublishedReport { runs }.page().unwrap();
        let one = page(vec![run([90.0, 100.0], 4915, 0.02)]);
        assert!(one.contains("CPU, 2 cores") && one.contains("one run on one machine"), "{one}");
        assert!(one.contains("| C=32 K=10 | **0.90** | – | – | – | 0.50 | – |"), "{one}");
        assert!(
            one.contains("| p99 at C=32 K=10, ms | 4.3 |") && one.contains("| an idle connection, KiB | 4.8 |"),
            "{one}"
        );
        let two = page(vec![run([90.0, 100.0], 4915, 0.02), run([1800.0, 100.0], 4915, 0.02)]);
        assert!(two.contains("| C=32 K=10 | 0.90–18 |") && !two.contains("Not a result"), "{two}");
        let disturbed = page(vec![run([90.0, 100.0], 4915, 0.5)]);
        assert!(disturbed.contains("**Not a result**"), "{disturbed}");
    }

    #[test]
    fn the_page_has_the_published_figures() {
        let directory = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/benchmark");
        let read = |name| fs::read_to_string(format!("{directory}/{name}")).unwrap();
        let report: PublishedReport = serde_json::from_str(&read("report.json")).unwrap();
        let advice = "run `target/release/report --publish docs/benchmark docs/benchmark/report.json`";
        assert!(report.page().unwrap() == read("README.md"), "{advice}");
    }
}
