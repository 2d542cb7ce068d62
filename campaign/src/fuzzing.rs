//! Fuzz targets, run by cargo fuzz.

use std::{
    collections::BTreeMap,
    fs, io,
    path::{Path, PathBuf},
    process::{Command, Output},
    time::Duration,
};

use crate::{
    deterministic,
    totals::{Failure, FuzzTotals},
};

/// Returns the names of all targets, or the reason for none.
pub(crate) fn targets(root: &Path) -> Result<Vec<String>, String> {
    let output = cargo_fuzz(root, &["list"]).map_err(|error| error.to_string())?;
    match output.status.success() {
        true => Ok(String::from_utf8_lossy(&output.stdout).lines().map(str::to_owned).collect()),
        false => Err("`cargo +nightly fuzz list` fails: install cargo-fuzz and a nightly toolchain".to_owned()),
    }
}

/// Fuzzes a target for this time and adds its totals. A crash is kept in `campaign/regressions/TARGET`.
pub(crate) fn fuzz(
    root: &Path,
    target: &str,
    time: Duration,
    totals: &mut BTreeMap<String, FuzzTotals>,
) -> io::Result<Option<Failure>> {
    for folder in ["corpus", "seeds"] {
        fs::create_dir_all(root.join("fuzz").join(folder).join(target))?;
    }
    let cpu_before = deterministic::processor_seconds_of_children();
    let (corpus, seeds) = (format!("fuzz/corpus/{target}"), format!("fuzz/seeds/{target}"));
    let limit = format!("-max_total_time={}", time.as_secs().max(1));
    let arguments =
        ["run", target, &corpus, &seeds, "--", &limit, "-timeout=5", "-rss_limit_mb=1024", "-print_final_stats=1"];
    let output = cargo_fuzz(root, &arguments)?;
    let log = String::from_utf8_lossy(&output.stderr);
    let entry = totals.entry(target.to_owned()).or_default();
    entry.inputs += number_after(&log, "stat::number_of_executed_units:").unwrap_or_default();
    entry.cpu_hours += (deterministic::processor_seconds_of_children() - cpu_before) / 3600.0;
    let coverage = log.lines().rev().find_map(|line| number_after(line, "cov:")).unwrap_or_default();
    if coverage > entry.coverage {
        entry.coverage = coverage;
        entry.grew_at = entry.cpu_hours;
    }
    if output.status.success() {
        return Ok(None);
    }
    let artifact = log.lines().find_map(|line| line.split_once("Test unit written to ")).map(|(_, path)| path.trim());
    let Some(artifact) = artifact else {
        let last: Vec<_> = log.lines().rev().take(5).collect();
        return Err(io::Error::other(format!("{target} ended without a crash: {}", last.join(" / "))));
    };
    let kept = keep(root, target, &root.join(artifact))?;
    let what = log.lines().find(|line| line.contains("panicked") || line.contains("ERROR: ")).unwrap_or("a crash");
    let repeat = format!("cargo +nightly fuzz run {target} {}", kept.display());
    Ok(Some(Failure { repeat, what: what.trim().to_owned(), fix: String::new() }))
}

/// Copies the input of a crash into the repository, where a test finds it.
fn keep(root: &Path, target: &str, artifact: &Path) -> io::Result<PathBuf> {
    let name = artifact.file_name().ok_or(io::ErrorKind::NotFound)?;
    let kept = Path::new("campaign/regressions").join(target);
    fs::create_dir_all(root.join(&kept))?;
    fs::copy(artifact, root.join(&kept).join(name))?;
    Ok(kept.join(name))
}

fn cargo_fuzz(root: &Path, arguments: &[&str]) -> io::Result<Output> {
    Command::new("cargo").args(["+nightly", "fuzz"]).args(arguments).current_dir(root).output()
}

/// Returns the first number after this word.
fn number_after(text: &str, word: &str) -> Option<u64> {
    let (_, rest) = text.split_once(word)?;
    rest.split_whitespace().next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_statistics_of_libfuzzer_are_read() {
        let line = "#4096\tpulse  cov: 1234 ft: 2222 corp: 99/1Kb exec/s: 100 rss: 50Mb";
        assert_eq!(number_after(line, "cov:"), Some(1234));
        assert_eq!(
            number_after("stat::number_of_executed_units: 77\nstat::x: 1", "stat::number_of_executed_units:"),
            Some(77)
        );
        assert_eq!(number_after(line, "cov!"), None);
    }
}
