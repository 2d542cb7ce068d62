//! A short comparison of our engines with each contender.

use benches::Contest;

use crate::row::Row;

pub(crate) fn print(rows: &[Row<'_>], subjects: &[&str]) {
    let is_own = |row: &&Row<'_>| matches!(row.workload.contest, Contest::Stacks | Contest::Streams);
    let rows: Vec<_> = rows.iter().filter(is_own).collect();
    let mut others: Vec<&str> = Vec::new();
    for name in rows.iter().flat_map(|row| &row.contenders).map(|rounds| rounds.contender) {
        if !subjects.contains(&name) && !others.contains(&name) {
            others.push(name);
        }
    }
    if others.is_empty() {
        return;
    }
    for subject in subjects {
        println!("\nCalls per second of {subject}, as a multiple of each contender's (medians):\n");
        println!("| workload | {} |", others.join(" | "));
        println!("|---|{}", "--:|".repeat(others.len()));
        for row in &rows {
            let cell = |other: &&str| format!(" {} |", ratio(row, subject, other).map_or_else(String::new, short));
            println!("| {} |{}", row.workload.name, others.iter().map(cell).collect::<String>());
        }
    }
}

fn ratio(row: &Row<'_>, subject: &str, other: &str) -> Option<f64> {
    row.rounds_of(subject)?.ratio_to(row.rounds_of(other)?, |sample| sample.report.rps).median()
}

/// Formats a ratio with two digits. Shared machines allow no higher precision.
pub(crate) fn short(ratio: f64) -> String {
    match ratio {
        10.0.. => format!("{ratio:.0}"),
        1.5.. => format!("{ratio:.1}"),
        _ => format!("{ratio:.2}"),
    }
}
