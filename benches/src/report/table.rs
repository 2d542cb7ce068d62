//! Results as Markdown tables.

use benches::{Contest, SumWire};
use load::Report;

use crate::idle::{self, Idle};
use crate::plan::Plan;
use crate::row::{Rounds, Row};
use crate::sample::Sample;
use crate::workload::PER_CLIENT;

pub(crate) fn print_legend(plan: &Plan, subjects: &[&str]) {
    let Plan { rounds, warmup, seconds, .. } = plan;
    println!(
        "Median (least–most) of {rounds} interleaved rounds of {warmup:.0?} warm-up and {seconds:.0?}, both at least {PER_CLIENT:?} per client."
    );
    println!("CPU is seconds per million calls, switches are context switches per call, memory is the server's peak.");
    if plan.syscalls {
        println!(
            "System calls are the server's per call, counted in another run under strace, which slows the server."
        );
    }
    if !subjects.is_empty() {
        println!("Ratios are of {} to the row's contender, each taken within a round.", subjects.join(", "));
    }
}

/// Prints the head of a table. Does nothing for contests with a separate table.
pub(crate) fn print_head(contest: Contest, plan: &Plan, subjects: &[&str]) {
    println!(
        "\n{}\n",
        match contest {
            Contest::Scaling => return,
            Contest::Stacks => "Each server under the client of its own:",
            Contest::Streams => "Streams, each server under the client of its own; a message is a call:",
            Contest::Servers => "Servers alone, all under the load client of frpc, Go's in order:",
            Contest::Clients => "Clients alone, all before the server of frpc:",
            Contest::Grpc => "gRPC on both sides, each server under the client of its own; frpc speaks frisbee:",
            Contest::GrpcStreams => "Streams over gRPC on both sides; a message is a call; frpc speaks frisbee:",
            Contest::GrpcServers => "Servers of gRPC, all under the same client on hyper:",
            Contest::GrpcClients => "Clients of gRPC, all before the server of tonic:",
            Contest::Http1Servers => {
                "Servers of HTTP/1.1, all under the same client on hyper, and tonic with gRPC over HTTP/2 under it:"
            }
            Contest::Sums(wire) => match wire {
                SumWire::Tcp => "Sums by JSON-RPC over TCP, all servers under the same client:",
                SumWire::TcpReset => "The same with a connection for each call:",
                SumWire::Http => "Sums by JSON-RPC over HTTP/1.1, all servers under the same client:",
                SumWire::HttpBatch => "The same in batches of ten:",
                SumWire::WebSocket => "Sums by JSON-RPC over WebSocket, all servers under the same client:",
                SumWire::Rest => "Sums by GET, without JSON-RPC:",
                SumWire::RestWebSocket => "Sums over WebSocket, without JSON-RPC:",
            },
        }
    );
    let ratios: String = subjects.iter().map(|subject| format!(" {subject} to it |")).collect();
    let syscalls = if plan.syscalls { " system calls |" } else { "" };
    println!(
        "| workload | contender | k calls/s |{ratios} p50 µs | p99 µs | p99.9 µs | server CPU |{ratios} client CPU \
         | server switches | client switches |{syscalls} server MiB | bad calls |"
    );
    println!("|---|---|{}---|", "--:|".repeat(9 + 2 * subjects.len() + usize::from(plan.syscalls)));
}

/// Prints the row of a workload. Does nothing for contests with a separate table.
pub(crate) fn print_row(row: &Row<'_>, plan: &Plan, subjects: &[&str]) {
    if row.workload.contest == Contest::Scaling {
        return;
    }
    for rounds in &row.contenders {
        let ratio = |subject: &str, metric: fn(&Sample) -> f64| {
            let subject = row.rounds_of(subject).filter(|subject| subject.contender != rounds.contender);
            subject.map_or_else(String::new, |subject| format!("{:.2}", subject.ratio_to(rounds, metric)))
        };
        let ratios = |metric: fn(&Sample) -> f64| -> String {
            subjects.iter().map(|subject| format!(" {} |", ratio(subject, metric))).collect()
        };
        let syscalls = rounds.syscalls.map_or_else(|| " – |".to_owned(), |syscalls| format!(" {syscalls:.2} |"));
        println!(
            "| {} | {} | {:.2} |{} {:.0} | {:.0} | {:.0} | {:.2} |{} {:.2} | {:.2} | {:.2} |{} {:.1} | {} |",
            row.workload.name,
            rounds.contender,
            rounds.spread(|sample| sample.report.rps / 1e3),
            ratios(|sample| sample.report.rps),
            rounds.spread(|sample| sample.report.p50_us),
            rounds.spread(|sample| sample.report.p99_us),
            rounds.spread(|sample| sample.report.p999_us),
            rounds.spread(Sample::server_cpu_per_million),
            ratios(Sample::server_cpu_per_million),
            rounds.spread(Sample::client_cpu_per_million),
            rounds.spread(Sample::server_switches_per_call),
            rounds.spread(Sample::client_switches_per_call),
            if plan.syscalls { &syscalls } else { "" },
            rounds.spread(Sample::server_mib),
            bad_calls(rounds),
        );
    }
}

pub(crate) fn print_idle(idle: &[Idle]) {
    if idle.is_empty() {
        return;
    }
    println!("\n| {} idle connections | server bytes per connection |", idle::CLIENTS);
    println!("|---|--:|");
    for Idle { contender, bytes_per_connection, failure } in idle {
        let bytes = bytes_per_connection.map(|bytes| bytes.to_string());
        let failure = failure.as_ref().map(|failure| format!("failed: {failure}"));
        println!("| {contender} | {} |", bytes.or(failure).unwrap_or_default());
    }
}

pub(crate) fn bad_calls(rounds: &Rounds) -> String {
    if let Some(failure) = &rounds.failure {
        return format!("failed: {failure}");
    }
    let sum = |count: fn(&Report) -> u64| rounds.samples.iter().map(|sample| count(&sample.report)).sum::<u64>();
    match (sum(|report| report.errors), sum(|report| report.stuck), sum(|report| report.starved)) {
        (0, 0, 0) => "none".to_owned(),
        (errors, stuck, starved) => format!("{errors} errors, {stuck} stuck, {starved} starved"),
    }
}
