//! A table of the loads used on the benchmark pages of Go's fRPC for itself, grpc-go and Twirp.
//!
//! The pages, <https://frpc.io/performance/grpc-benchmarks> and <https://frpc.io/performance/twirp-benchmarks>, have
//! charts of the calls per second of each client. Their text contains some of the values. The machine had 96 cores.

use benches::Contest;

use crate::row::Row;
use crate::table;

pub(crate) fn print(rows: &[Row<'_>], subjects: &[&str]) {
    let rows: Vec<_> = rows.iter().filter(|row| row.workload.contest == Contest::Published).collect();
    let Some(first) = rows.first() else { return };
    let names: Vec<_> = first.contenders.iter().map(|rounds| rounds.contender).collect();
    let subject = subjects.iter().find(|subject| names.contains(subject));
    let others: Vec<_> = names.iter().filter(|name| subject.is_some_and(|subject| subject != *name)).collect();

    println!("\nThe loads of the pages of Go's fRPC, whose servers are in order; calls per second of each client:\n");
    let ratios: String = subject
        .map_or_else(String::new, |subject| others.iter().map(|other| format!(" {subject} to {other} |")).collect());
    println!("| workload | {} |{ratios} the pages: Go fRPC, grpc-go, Twirp | bad calls |", names.join(" | "));
    println!("|---|{}--:|---|", "--:|".repeat(names.len() + others.len()));
    for row in rows {
        print!("| {} |", row.workload.name.trim_start_matches("published-"));
        let clients = row.workload.clients as f64;
        for name in &names {
            let rate = row.rounds_of(name).map(|rounds| rounds.spread(|sample| sample.report.rps / clients));
            let precision = if clients < 100.0 { 0 } else { 1 };
            print!(" {} |", rate.map_or_else(String::new, |rate| format!("{rate:.precision$}")));
        }
        for other in &others {
            let rounds = subject.and_then(|subject| row.rounds_of(subject)).zip(row.rounds_of(other));
            let ratio = rounds.map(|(subject, other)| subject.ratio_to(other, |sample| sample.report.rps));
            print!(" {} |", ratio.map_or_else(String::new, |ratio| format!("{ratio:.2}")));
        }
        let pages = PAGES.iter().find(|(name, _)| *name == row.workload.name).map_or("", |(_, values)| values);
        let bad = row.contenders.iter().map(|rounds| (rounds.contender, table::bad_calls(rounds)));
        let bad: Vec<_> = bad.filter(|(_, bad)| bad != "none").map(|(name, bad)| format!("{name}: {bad}")).collect();
        println!(" {pages} | {} |", if bad.is_empty() { "none".to_owned() } else { bad.join("; ") });
    }
}

/// The values in the text of the pages, if any.
const PAGES: [(&str, &str); 6] = [
    ("published-32B-C8192-K1", "112, 29, 4"),
    ("published-512B-C8192-K1", "98, 29, 4"),
    ("published-128KiB-C100-K1", "192, 65, –"),
    ("published-1MiB-C100-K1", "37, 17, –"),
    ("published-32B-C1024-K10", "60 times Twirp's"),
    ("published-32B-C8192-K10", "over 244, under 61, none"),
];
