//! The soak test for a longer time.

use std::{io, path::Path, process::Command, time::Duration};

use crate::{
    deterministic,
    totals::{Failure, SoakTotals},
};

/// Soaks for this time. The test builds first if necessary.
pub(crate) fn soak(root: &Path, time: Duration) -> io::Result<(SoakTotals, Option<Failure>)> {
    let cpu_before = deterministic::processor_seconds_of_children();
    let (seconds, rate) = (time.as_secs().max(1).to_string(), ACTS_PER_SECOND.to_string());
    let arguments = ["test", "--package", "tests", "--test", "soak", "--", "--nocapture"];
    let mut command = Command::new("cargo");
    command.args(arguments).env("SOAK_SECONDS", &seconds).env("SOAK_ACTS_PER_SECOND", &rate).current_dir(root);
    let output = command.output()?;
    let log = String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr);
    println!("{}", log.lines().filter(|line| line.contains(" acts, ")).collect::<Vec<_>>().join("\n"));
    let cpu_hours = (deterministic::processor_seconds_of_children() - cpu_before) / 3600.0;
    let run = SoakTotals { cpu_hours, ..read_summaries(&log) };
    if output.status.success() {
        return Ok((SoakTotals { runs: 1, hours: time.as_secs_f64() / 3600.0, ..run }, None));
    }
    let Some(place) = log.find("panicked") else { return Err(io::Error::other(log)) };
    let what: Vec<_> = log[place..].lines().take(3).collect();
    let repeat = format!("SOAK_SECONDS={seconds} SOAK_ACTS_PER_SECOND={rate} cargo {}", arguments.join(" "));
    Ok((run, Some(Failure { repeat, what: what.join(" "), fix: String::new() })))
}

/// Reads lines such as `tokio: 500 acts, 100 KiB resident before, 120 KiB after`.
fn read_summaries(log: &str) -> SoakTotals {
    let mut totals = SoakTotals::default();
    for line in log.lines().filter(|line| line.contains(" acts, ")) {
        let numbers = line.split_whitespace().filter_map(|word| word.parse().ok());
        let [acts, before, after] = *numbers.collect::<Vec<u64>>() else { continue };
        totals.acts += acts;
        totals.growth_kib_max = totals.growth_kib_max.max(after.saturating_sub(before));
    }
    totals
}

/// A rate that leaves a core of two for others.
const ACTS_PER_SECOND: u32 = 100;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_summaries_of_the_soak_test_are_read() {
        let log = "tokio: Held { descriptors: 9, threads: 1 }, 90 KiB resident\n\
            tokio: 500 acts, 100 KiB resident before, 120 KiB after\n\
            uring: 70 acts, 130 KiB resident before, 125 KiB after\n";
        let SoakTotals { acts, growth_kib_max, .. } = read_summaries(log);
        assert_eq!((acts, growth_kib_max), (570, 20));
    }
}
