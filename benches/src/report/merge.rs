//! Ranges over several runs, from results written by `--json`. A single run is only one sample of the machine.

use std::error::Error;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::{fmt, fs};

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::row;
use crate::sample::Sample;
use crate::summary::short;
use crate::workload::{WORKLOADS, Workload, subjects};

/// Prints the origin of the runs, and the range of each ratio over them.
pub(crate) fn print(files: &[PathBuf]) -> Result<(), Box<dyn Error>> {
    print!("{}", merged(&read(files, "--merge")?)?);
    Ok(())
}

/// Reads the results of at least one run, for an option that takes their files.
fn read(files: &[PathBuf], option: &str) -> Result<Vec<Run>, Box<dyn Error>> {
    if files.is_empty() {
        return Err(format!("{option} takes the files of at least one run").into());
    }
    files.iter().map(|file| parse(file)).collect()
}

/// Reads a file of JSON, whose name is in each error.
pub(crate) fn parse<T: DeserializeOwned>(file: &Path) -> Result<T, Box<dyn Error>> {
    let named = |error: &dyn fmt::Display| format!("{}: {error}", file.display());
    let text = fs::read(file).map_err(|error| named(&error))?;
    Ok(serde_json::from_slice(&text).map_err(|error| named(&error))?)
}

/// The part of a results file needed for ranges and tables.
#[derive(Deserialize)]
pub(crate) struct Run {
    pub(crate) machine: Machine,
    pub(crate) plan: RunPlan,
    pub(crate) noise: f64,
    pub(crate) rows: Vec<Row>,
    pub(crate) idle: Vec<IdleMemory>,
}

impl Run {
    /// Returns the results of a workload, if this run has them.
    pub(crate) fn row(&self, workload: &str) -> Option<&Row> {
        self.rows.iter().find(|row| row.workload.name == workload)
    }
}

#[derive(Deserialize)]
pub(crate) struct RunPlan {
    pub(crate) rounds: usize,
}

#[derive(Deserialize)]
pub(crate) struct IdleMemory {
    pub(crate) contender: String,
    pub(crate) bytes_per_connection: Option<u64>,
}

#[derive(Clone, Deserialize, Serialize)]
pub(crate) struct Machine {
    date: String,
    kernel: String,
    cpu: String,
    cores: usize,
    profile: String,
    commit: String,
    /// Versions of other projects.
    versions: Vec<(String, String)>,
}

impl Machine {
    /// Returns a line with the date, the machine and the software of a run.
    pub(crate) fn origin(&self, rounds: usize, noise: f64) -> String {
        let Self { date, kernel, cpu, cores, profile, commit, versions } = self;
        let versions: String = versions.iter().map(|(name, version)| format!(", {name} {version}")).collect();
        format!(
            "- {date}, commit {commit}, profile {profile}, Linux {kernel}, {cpu}, {cores} cores, rounds: {rounds}, other work \
             up to {:.0} %{versions}",
            noise * 100.0
        )
    }
}

#[derive(Deserialize)]
pub(crate) struct Row {
    workload: Name,
    contenders: Vec<Rounds>,
}

impl Row {
    pub(crate) fn samples(&self, contender: &str) -> Option<&[Sample]> {
        self.contenders.iter().find(|rounds| rounds.contender == contender).map(|rounds| &*rounds.samples)
    }
}

#[derive(Deserialize)]
struct Name {
    name: String,
}

#[derive(Deserialize)]
struct Rounds {
    contender: String,
    samples: Vec<Sample>,
}

/// Returns the runs and their ranges as Markdown.
fn merged(runs: &[Run]) -> Result<String, Box<dyn Error>> {
    let mut text = String::new();
    for run in runs {
        writeln!(text, "{}", run.machine.origin(run.plan.rounds, run.noise))?;
    }
    writeln!(
        text,
        "\nCalls per second as a multiple of the contender's: least–most of {} runs, each the median of its rounds.",
        runs.len()
    )?;
    let is_known = |name: &String| WORKLOADS.iter().any(|workload| workload.name == name);
    if let Some(name) = runs.iter().flat_map(|run| &run.rows).map(|row| &row.workload.name).find(|name| !is_known(name))
    {
        return Err(format!("this report has no workload {name:?}").into());
    }
    let mut contest = None;
    for workload in &WORKLOADS {
        let rows: Vec<_> = runs.iter().filter_map(|run| run.row(workload.name)).collect();
        if rows.is_empty() {
            continue;
        }
        let subjects = subjects(workload.contest);
        if contest.replace(workload.contest) != Some(workload.contest) {
            let head: String = subjects.iter().map(|subject| format!(" {subject} to it |")).collect();
            writeln!(text, "\n| workload | contender |{head}\n|---|---|{}", "--:|".repeat(subjects.len()))?;
        }
        lines(&mut text, workload, &rows, subjects)?;
    }
    Ok(text)
}

/// Writes a line per contender of a workload.
fn lines(text: &mut String, workload: &Workload, rows: &[&Row], subjects: &[&str]) -> fmt::Result {
    let mut contenders: Vec<&str> = Vec::new();
    for rounds in rows.iter().flat_map(|row| &row.contenders) {
        if !contenders.contains(&&*rounds.contender) {
            contenders.push(&rounds.contender);
        }
    }
    for contender in contenders {
        let cell = |subject: &&str| format!(" {} |", range(rows, subject, contender).unwrap_or_default());
        writeln!(text, "| {} | {contender} |{}", workload.name, subjects.iter().map(cell).collect::<String>())?;
    }
    Ok(())
}

/// Returns the range of a ratio over all runs that contain it.
fn range(rows: &[&Row], subject: &str, other: &str) -> Option<String> {
    let ratio =
        |row: &&Row| row::ratios(row.samples(subject)?, row.samples(other)?, |sample| sample.report.rps).median();
    let ratios: Vec<_> = rows.iter().filter(|_| subject != other).filter_map(ratio).collect();
    least_to_most(&ratios)
}

/// Formats the least and the most of several figures, or one if both look the same.
pub(crate) fn least_to_most(figures: &[f64]) -> Option<String> {
    let least = short(figures.iter().copied().reduce(f64::min)?);
    let most = short(figures.iter().copied().reduce(f64::max)?);
    Some(if least == most { least } else { format!("{least}–{most}") })
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::{Run, WORKLOADS, merged};
    use crate::row::{Rounds, Row};

    /// Returns a run as written by `--json`, with these calls per second in its rounds.
    fn run(date: &str, frpc: &[f64], tonic: &[f64]) -> Value {
        let rounds = |contender, rps: &[f64]| Rounds {
            contender,
            samples: rps.iter().map(|rps| sample(*rps)).collect(),
            failure: None,
            syscalls: None,
        };
        let workload = WORKLOADS.iter().find(|workload| workload.name == "32B-C32-K1").unwrap();
        let row = Row { workload, contenders: vec![rounds("frpc", frpc), rounds("tonic", tonic)] };
        let machine = json!({
            "date": date, "kernel": "6.1", "cpu": "CPU", "cores": 2, "profile": "release", "commit": "abc", "rustc": "1.95",
            "versions": [["tonic", "0.14.9"]],
        });
        json!({ "machine": machine, "noise": 0.02, "rows": [row], "plan": { "rounds": frpc.len() }, "idle": [] })
    }

    fn sample(rps: f64) -> crate::sample::Sample {
        let report = json!({
            "rpcs": 1, "rpcs_total": 1, "seconds": 1.0, "rps": rps, "p50_us": 1.0, "p90_us": 1.0, "p99_us": 1.0, "p999_us": 1.0,
            "max_us": 1.0, "mean_us": 1.0, "errors": 0, "first_error": null, "stuck": 0, "starved": 0, "connect_s": 1.0, "client_cpu_s": 1.0,
            "client_context_switches": 1,
        });
        let sample = json!({
            "report": report, "server_cpu_s": 1.0, "server_context_switches": 1, "server_memory_kib": 1, "noise": 0.0,
        });
        serde_json::from_value(sample).unwrap()
    }

    fn merge(runs: impl IntoIterator<Item = Value>) -> Result<String, String> {
        let runs: Vec<Run> = runs.into_iter().map(|run| serde_json::from_value(run).unwrap()).collect();
        merged(&runs).map_err(|error| error.to_string())
    }

    #[test]
    fn ratios_range_over_the_medians_of_runs() {
        let first = run("2026-01-01", &[200.0, 300.0, 900.0], &[100.0, 100.0, 100.0]);
        let second = run("2026-01-02", &[200.0, 200.0], &[100.0, 100.0]);
        let text = merge([first, second]).unwrap();
        assert!(
            text.contains(
                "- 2026-01-02, commit abc, profile release, Linux 6.1, CPU, 2 cores, rounds: 2, other work up to 2 %, tonic 0.14.9\n"
            ),
            "{text}"
        );
        assert!(text.contains("| 32B-C32-K1 | frpc |  |  |  |\n| 32B-C32-K1 | tonic | 2.0–3.0 |  |  |\n"), "{text}");
    }

    #[test]
    fn runs_without_a_contender_are_excluded_from_its_range() {
        let failed = run("2026-01-01", &[200.0], &[]);
        let text = merge([failed, run("2026-01-02", &[500.0], &[100.0])]).unwrap();
        assert!(text.contains("| tonic | 5.0 |"), "{text}");
    }

    #[test]
    fn unknown_workloads_are_named_in_the_error() {
        let mut old = run("2026-01-01", &[200.0], &[100.0]);
        old["rows"][0]["workload"]["name"] = "gone".into();
        assert_eq!(merge([old]).unwrap_err(), "this report has no workload \"gone\"");
    }
}
