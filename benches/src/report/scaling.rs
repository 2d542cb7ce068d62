//! The table that compares one server thread with two.

use benches::Contest;

use crate::row::Row;
use crate::sample::Sample;
use crate::table;

pub(crate) fn print(rows: &[Row<'_>]) {
    let rows: Vec<_> = rows.iter().filter(|row| row.workload.contest == Contest::Scaling).collect();
    if rows.is_empty() {
        return;
    }
    println!("{HEAD}");
    println!(
        "| workload | contender | threads | k calls/s | p99 µs | server CPU | client CPU | cores the server kept busy \
         | two threads of one | bad calls |"
    );
    println!("|---|---|{}---|", "--:|".repeat(7));
    for row in &rows {
        for rounds in &row.contenders {
            let one = rows.iter().find(|one| one.workload.family() == row.workload.family());
            let one = one.filter(|one| one.workload.server_cores != row.workload.server_cores);
            let one = one.and_then(|one| one.rounds_of(rounds.contender));
            let gain = one.map(|one| one.ratio_to(rounds, Sample::server_cpu_per_million).times(2.0));
            println!(
                "| {} | {} | {} | {:.2} | {:.0} | {:.2} | {:.2} | {:.2} | {} | {} |",
                row.workload.family().trim_start_matches("scaling-"),
                rounds.contender,
                row.workload.server_cores.unwrap_or_default(),
                rounds.spread(|sample| sample.report.rps / 1e3),
                rounds.spread(|sample| sample.report.p99_us),
                rounds.spread(Sample::server_cpu_per_million),
                rounds.spread(Sample::client_cpu_per_million),
                rounds.spread(|sample| sample.server_cpu_per_million() * sample.report.rps / 1e6),
                gain.map_or_else(String::new, |gain| format!("{gain:.2}")),
                table::bad_calls(rounds),
            );
        }
    }
}

const HEAD: &str = "
Servers with one thread on one core, and with two threads on two. Clients have the cores that are left, and all of them if none
is: then calls per second do not tell what two threads can serve, because they share their cores with the client. CPU per call
tells what the second thread costs. The last column is what two threads serve with their cores to themselves, of what one does;
more than two means that a call is cheaper where both sides of it are on one core.
";
