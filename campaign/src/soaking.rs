//! The soak test for a longer time.

use std::{io, path::Path, process::Command, time::Duration};

use crate::{
    deterministic,
    totals::{Failure, SoakTotals},
};

/// Soaks for this time and adds the totals. The test builds first if necessary.
pub(crate) fn soak(root: &Path, time: Duration, totals: &mut SoakTotals) -> io::Result<Option<Failure>> {
    let cpu_before = deterministic::processor_seconds_of_children();
    let seconds = time.as_secs().max(1).to_string();
    let arguments = ["test", "--package", "tests", "--test", "soak", "--", "--nocapture"];
    let output = Command::new("cargo").args(arguments).env("SOAK_SECONDS", &seconds).current_dir(root).output()?;
    totals.cpu_hours += (deterministic::processor_seconds_of_children() - cpu_before) / 3600.0;
    if output.status.success() {
        totals.runs += 1;
        totals.hours += time.as_secs_f64() / 3600.0;
        return Ok(None);
    }
    let log = String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr);
    let Some(place) = log.find("panicked") else { return Err(io::Error::other(log)) };
    let what: Vec<_> = log[place..].lines().take(3).collect();
    let repeat = format!("SOAK_SECONDS={seconds} cargo {}", arguments.join(" "));
    Ok(Some(Failure { repeat, what: what.join(" "), fix: String::new() }))
}
