//! The page of the benchmark: `docs/benchmark/report.json`, written by `target/release/report --json`.

use std::fmt::Write as _;

use serde::Deserialize;

use crate::{
    limits::grouped,
    pages::{heading, read, update},
};

#[derive(Deserialize)]
struct BenchmarkReport {
    machine: Machine,
    rows: Vec<WorkloadRow>,
}

#[derive(Deserialize)]
struct Machine {
    date: String,
    kernel: String,
    cpu: String,
    cores: usize,
    rustc: String,
    profile: String,
    commit: String,
    versions: Vec<(String, String)>,
}

#[derive(Deserialize)]
struct WorkloadRow {
    workload: Workload,
    contenders: Vec<ContenderRounds>,
}

#[derive(Deserialize)]
struct Workload {
    name: String,
    contest: String,
}

#[derive(Deserialize)]
struct ContenderRounds {
    contender: String,
    samples: Vec<Sample>,
}

#[derive(Deserialize)]
struct Sample {
    report: Load,
    server_cpu_s: f64,
    noise: f64,
}

#[derive(Deserialize)]
struct Load {
    rpcs_total: f64,
    rps: f64,
    p99_us: f64,
}

#[test]
fn the_page_of_the_benchmark_matches_its_figures() {
    let report: BenchmarkReport = serde_json::from_str(&read("docs/benchmark/report.json")).unwrap();
    let Machine { date, kernel, cpu, cores, rustc, profile, commit, versions } = &report.machine;
    let mut page = heading(
        "Benchmark",
        "The figures of one run on one machine. They do not hold for other machines; compare the columns of a row. The\n\
         client and the server share the cores. Each contender runs in separate processes, and the contenders take\n\
         turns in each round. [The measurements](../notes/performance.md) explain the figures and have further runs.",
    );
    let versions: Vec<_> = versions.iter().map(|(name, version)| format!("{name} {version}")).collect();
    writeln!(
        page,
        "\n| | |\n|---|---|\n| date | {date} |\n| machine | {cpu}, {cores} cores, Linux {kernel} |\n\
         | programs | commit {commit}, profile {profile}, {rustc} |\n| versions | {} |\n\n\
         One command repeats it. It writes the figures, and the test makes this page of them:\n\n\
         ```sh\ncargo build --release -p benches -p examples && benches/peers/build.sh\n\
         target/release/report --json docs/benchmark/report.json\ncargo test -p tests --test guide benchmark\n```\n\n\
         Names of rows: the length of a message, **C** connections, **K** calls in flight on each. A figure is the median\n\
         of the rounds, with the least and the greatest. *Other work* is the largest share of the machine that other\n\
         processes used in a round: ignore rows with more than a few percent.",
        versions.join(", ")
    )
    .unwrap();
    let mut contest = "";
    for row in &report.rows {
        if contest != row.workload.contest {
            contest = &row.workload.contest;
            writeln!(page, "\n## {}\n\n{HEAD}", title(contest)).unwrap();
        }
        for rounds in row.contenders.iter().filter(|rounds| !rounds.samples.is_empty()) {
            rounds.write(&row.workload.name, &mut page);
        }
    }
    update(&[("docs/benchmark/README.md", &page)]);
}

const HEAD: &str =
    "| row | contender | calls per second | p99 | server CPU per call | other work |\n|---|---|--:|--:|--:|--:|";

/// Returns the heading for the rows of a contest.
fn title(contest: &str) -> &str {
    match contest {
        "stacks" => "Each server with its own client",
        "streams" => "Messages of one stream, each server with its own client",
        "servers" => "Servers, with the client of fRPC",
        "clients" => "Clients, with the server of fRPC",
        "grpc" => "gRPC, each server with its own client",
        "grpcstreams" => "Messages of one stream over gRPC",
        "grpcservers" => "gRPC servers, with one client",
        "grpcclients" => "gRPC clients, with one server",
        "http1servers" => "Servers of HTTP/1.1, with one client",
        "scaling" => "Servers by cores",
        other => other,
    }
}

impl ContenderRounds {
    fn write(&self, row: &str, page: &mut String) {
        let of = |figure: fn(&Sample) -> f64| Figures::of(self.samples.iter().map(figure));
        let calls = of(|sample| sample.report.rps);
        let p99 = of(|sample| sample.report.p99_us).median / 1000.0;
        let cpu = of(|sample| 1e6 * sample.server_cpu_s / sample.report.rpcs_total).median;
        let noise = 100.0 * of(|sample| sample.noise).most;
        let [median, least, most] =
            [calls.median, calls.least, calls.most].map(|calls| grouped(&format!("{calls:.0}")));
        let contender = &self.contender;
        writeln!(
            page,
            "| {row} | {contender} | {median} ({least}–{most}) | {p99:.2} ms | {cpu:.2} µs | {noise:.0} % |"
        )
        .unwrap();
    }
}

/// The figures of all rounds.
struct Figures {
    least: f64,
    median: f64,
    most: f64,
}

impl Figures {
    fn of(figures: impl Iterator<Item = f64>) -> Self {
        let mut sorted: Vec<_> = figures.collect();
        sorted.sort_by(f64::total_cmp);
        let len = sorted.len();
        Self { least: sorted[0], median: (sorted[(len - 1) / 2] + sorted[len / 2]) / 2.0, most: sorted[len - 1] }
    }
}
