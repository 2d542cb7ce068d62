//! The tables of `docs/notes/performance.md`, from results written by `--json`.

use std::error::Error;
use std::fmt::{self, Write as _};
use std::path::PathBuf;

use crate::merge::{self, Run};
use crate::noise;
use crate::row;
use crate::rows::ROWS;
use crate::sample::Sample;
use crate::spread::Spread;

/// The columns of the first table: our engine, and the contender to compare with.
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

/// The columns of the second table.
const CONTENDERS: [&str; 8] =
    ["frpc", "frpc-per-core", "frpc-uring", "floor", "tonic", "connect-rust", "tarpc", "go-frpc"];

/// Prints the published tables of these runs, with the range over several.
pub(crate) fn print(files: &[PathBuf]) -> Result<(), Box<dyn Error>> {
    print!("{}", tables(&merge::read(files, "--tables")?)?);
    Ok(())
}

fn tables(runs: &[Run]) -> Result<String, fmt::Error> {
    let mut text = String::new();
    merge::write_origins(&mut text, runs)?;
    if runs.iter().any(|run| !noise::is_quiet(run.noise)) {
        writeln!(text, "\n**Not a result**: other work disturbed a run.")?;
    }
    let of = if runs.len() == 1 { "of one run" } else { "least–most of the runs" };
    writeln!(text, "\nCalls per second as a multiple of each contender's, medians of rounds, {of}.\n")?;
    let head: String = COLUMNS.iter().map(|(subject, other)| format!(" {subject}: {other} |")).collect();
    writeln!(text, "| workload |{head}\n|---|{}", "--:|".repeat(COLUMNS.len()))?;
    for (workload, title) in ROWS {
        let cell = |(subject, other): &(&str, &str)| ratio_cell(other, &ratios(runs, workload, subject, other));
        let cells: String = COLUMNS.iter().map(cell).collect();
        writeln!(text, "| {title} |{cells}")?;
    }
    let head: String = CONTENDERS.iter().map(|name| format!(" {name} |")).collect();
    writeln!(text, "\n| |{head}\n|---|{}", "--:|".repeat(CONTENDERS.len()))?;
    for (title, figure) in FIGURES {
        let figures = |name: &&str| runs.iter().filter_map(|run| figure(run, name)).collect::<Vec<_>>();
        let cells: String = CONTENDERS.iter().map(|name| cell(&figures(name))).collect();
        writeln!(text, "| {title} |{cells}")?;
    }
    Ok(text)
}

fn cell(figures: &[f64]) -> String {
    merge::least_to_most(figures).map_or(" – |".to_owned(), |text| format!(" {text} |"))
}

/// Formats a ratio. Bold marks a faster contender, apart from the floor, which is faster by design.
fn ratio_cell(other: &str, ratios: &[f64]) -> String {
    let cell = cell(ratios);
    let is_slower = other != "floor" && !ratios.is_empty() && ratios.iter().all(|ratio| *ratio < 0.995);
    if is_slower { format!(" **{}** |", cell.trim_matches([' ', '|'])) } else { cell }
}

fn ratios(runs: &[Run], workload: &str, subject: &str, other: &str) -> Vec<f64> {
    let ratio = |run: &Run| {
        let row = run.row(workload)?;
        row::ratios(row.samples(subject)?, row.samples(other)?, |sample| sample.report.rps).median()
    };
    runs.iter().filter_map(ratio).collect()
}

type Figure = fn(&Run, &str) -> Option<f64>;

/// The rows of the second table.
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
    use crate::rows::CHARTED;
    use crate::workload::WORKLOADS;

    #[test]
    fn every_published_row_is_measured() {
        for name in ROWS.iter().map(|(name, _)| name).chain(&CHARTED) {
            assert!(WORKLOADS.iter().any(|workload| workload.name == *name), "{name}");
        }
    }

    #[test]
    fn tables_have_medians_and_ranges_over_runs() {
        let run = |rps: [f64; 2], idle: u64, noise: f64| -> Run {
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
            serde_json::from_value(serde_json::json!({
                "machine": {
                    "date": "2026-01-01", "kernel": "6.1", "cpu": "CPU", "cores": 2, "profile": "release", "commit": "abc",
                },
                "noise": noise,
                "rows": [{
                    "workload": { "name": "32B-C32-K10" },
                    "contenders": [rounds("frpc", rps[0]), rounds("tonic", rps[1]), rounds("floor", 2.0 * rps[0])],
                }],
                "idle": [{ "contender": "frpc", "bytes_per_connection": idle }],
            }))
            .unwrap()
        };
        let one = tables(&[run([90.0, 100.0], 4915, 0.02)]).unwrap();
        assert!(one.contains("CPU, 2 cores") && one.contains("of one run"), "{one}");
        assert!(one.contains("| C=32 K=10 | **0.90** | – | – | – | 0.50 | – |"), "{one}");
        assert!(
            one.contains("| p99 at C=32 K=10, ms | 4.3 |") && one.contains("| an idle connection, KiB | 4.8 |"),
            "{one}"
        );
        let two = tables(&[run([90.0, 100.0], 4915, 0.02), run([1800.0, 100.0], 4915, 0.02)]).unwrap();
        assert!(two.contains("| C=32 K=10 | 0.90–18 |") && !two.contains("Not a result"), "{two}");
        let disturbed = tables(&[run([90.0, 100.0], 4915, 0.5)]).unwrap();
        assert!(disturbed.contains("**Not a result**"), "{disturbed}");
    }
}
