//! Fuzz targets, run by cargo fuzz.

use std::{
    env, fs, io,
    path::{Path, PathBuf},
    process::{Command, Output},
    time::Duration,
};

use crate::{
    deterministic,
    totals::{Failure, FuzzTotals},
};

/// The fuzz targets of the repository, built.
#[derive(Debug)]
pub(crate) struct Fuzzers {
    root: PathBuf,
    programs: PathBuf,
}

impl Fuzzers {
    /// Builds the targets, unless `FRPC_CAMPAIGN_FUZZERS` names a folder with programs.
    pub(crate) fn build(root: &Path) -> Result<Self, String> {
        let root = root.canonicalize().map_err(|error| error.to_string())?;
        if let Some(programs) = env::var_os("FRPC_CAMPAIGN_FUZZERS") {
            return Ok(Self { root, programs: programs.into() });
        }
        let run = |program: &str, arguments: &[&str]| {
            Command::new(program).args(arguments).current_dir(&root).output().map_err(|error| error.to_string())
        };
        let built = run("bash", &["fuzz/build"])?;
        if !built.status.success() {
            let log = String::from_utf8_lossy(&built.stderr).into_owned();
            return Err(format!("`fuzz/build` needs cargo-fuzz and a nightly toolchain: {log}"));
        }
        let version = String::from_utf8_lossy(&run("rustc", &["-vV"])?.stdout).into_owned();
        let host = version.lines().find_map(|line| line.strip_prefix("host: ")).ok_or("rustc names no host")?;
        let programs = root.join("fuzz/target").join(host).join("release");
        Ok(Self { root, programs })
    }

    /// Returns the folder `fuzz` of the repository.
    pub(crate) fn folder(&self) -> PathBuf {
        self.root.join("fuzz")
    }

    /// Returns the names of the targets with a program.
    pub(crate) fn targets(&self) -> io::Result<Vec<String>> {
        let mut names = Vec::new();
        for source in fs::read_dir(self.folder().join("fuzz_targets"))? {
            let name = source?.path().file_stem().unwrap_or_default().to_string_lossy().into_owned();
            if self.programs.join(&name).exists() {
                names.push(name);
            }
        }
        names.sort();
        Ok(names)
    }

    /// Runs the program of a target. Crashes go to `fuzz/artifacts/TARGET`.
    pub(crate) fn run(&self, target: &str, arguments: &[&str]) -> io::Result<Output> {
        let artifacts = self.folder().join("artifacts").join(target);
        fs::create_dir_all(&artifacts)?;
        let mut command = Command::new(self.programs.join(target));
        command.args(limits()).args(arguments).arg(format!("-artifact_prefix={}/", artifacts.display()));
        // As cargo-fuzz does, for programs with AddressSanitizer: Rust has symbols that look like violations.
        command.env("ASAN_OPTIONS", "detect_odr_violation=0").current_dir(&self.root).output()
    }
}

/// Fuzzes a target for this time. A crash is kept in `campaign/regressions/TARGET`.
pub(crate) fn fuzz(fuzzers: &Fuzzers, target: &str, time: Duration) -> io::Result<(FuzzTotals, Option<Failure>)> {
    let folders = ["corpus", "seeds"].map(|name| fuzzers.folder().join(name).join(target));
    for folder in &folders {
        fs::create_dir_all(folder)?;
    }
    let cpu_before = deterministic::processor_seconds_of_children();
    let [corpus, seeds] = folders.map(|folder| folder.to_string_lossy().into_owned());
    let limit = format!("-max_total_time={}", time.as_secs().max(1));
    let output = fuzzers.run(target, &[&corpus, &seeds, &limit])?;
    let log = String::from_utf8_lossy(&output.stderr);
    let cpu_hours = (deterministic::processor_seconds_of_children() - cpu_before) / 3600.0;
    let run = FuzzTotals { cpu_hours, ..read_progress(&log) };
    if output.status.success() {
        return Ok((run, None));
    }
    let artifact = log.lines().find_map(|line| line.split_once("Test unit written to ")).map(|(_, path)| path.trim());
    let Some(artifact) = artifact else {
        let last: Vec<_> = log.lines().rev().take(5).collect();
        return Err(io::Error::other(format!("{target} ended without a crash: {}", last.join(" / "))));
    };
    let kept = keep(&fuzzers.root, target, Path::new(artifact))?;
    let what = log.lines().find(|line| line.contains("panicked") || line.contains("ERROR: ")).unwrap_or("a crash");
    let repeat = format!("fuzz/run {target} {}", kept.display());
    Ok((run, Some(Failure { repeat, what: what.trim().to_owned(), fix: String::new() })))
}

/// Reads the lines of libFuzzer, such as `#1024 NEW cov: 12 ft: 34 corp: 5/60b`. Reading the corpus is no growth.
fn read_progress(log: &str) -> FuzzTotals {
    let (mut totals, mut is_corpus_read) = (FuzzTotals::default(), false);
    for line in log.lines() {
        let Some(inputs) = number_after(line, "#").filter(|_| line.starts_with('#')) else { continue };
        totals.inputs = totals.inputs.max(inputs);
        let [edges, features] = ["cov:", "ft:"].map(|word| number_after(line, word).unwrap_or_default());
        if edges > totals.edges && is_corpus_read {
            totals.grew_at = inputs;
        }
        // An empty corpus has no numbers.
        is_corpus_read |= line.contains("INITED");
        (totals.edges, totals.features) = (totals.edges.max(edges), totals.features.max(features));
    }
    totals
}

/// Copies the input of a crash into the repository, where a test finds it.
fn keep(root: &Path, target: &str, artifact: &Path) -> io::Result<PathBuf> {
    let name = artifact.file_name().ok_or(io::ErrorKind::NotFound)?;
    let kept = Path::new("campaign/regressions").join(target);
    fs::create_dir_all(root.join(&kept))?;
    fs::copy(artifact, root.join(&kept).join(name))?;
    Ok(kept.join(name))
}

/// Returns the first number after this word.
fn number_after(line: &str, word: &str) -> Option<u64> {
    let (_, rest) = line.split_once(word)?;
    rest.split_whitespace().next()?.parse().ok()
}

/// Returns the limits of CI and of OSS-Fuzz as options.
fn limits() -> impl Iterator<Item = String> {
    let lines = include_str!("../../fuzz/libfuzzer.options").lines();
    lines.filter_map(|line| line.split_once(" = ")).map(|(name, value)| format!("-{name}={value}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_limits_are_those_of_the_repository() {
        assert!(limits().any(|limit| limit == "-timeout=5"), "{:?}", limits().collect::<Vec<_>>());
    }

    #[test]
    fn the_progress_of_libfuzzer_is_read() {
        let log = "INFO: Running with entropic power schedule\n\
            #2\tpulse  cov: 5 ft: 6 exec/s: 0 rss: 40Mb\n\
            #30\tINITED cov: 100 ft: 200 corp: 20/1Kb exec/s: 0 rss: 50Mb\n\
            #40\tREDUCE cov: 100 ft: 200 corp: 20/1Kb lim: 4 exec/s: 0 rss: 50Mb L: 3/4 MS: 1 EraseBytes-\n\
            #50\tNEW    cov: 101 ft: 210 corp: 21/1Kb lim: 4 exec/s: 0 rss: 50Mb L: 4/4 MS: 1 ChangeBit-\n\
            #60\tNEW    cov: 101 ft: 211 corp: 22/1Kb lim: 4 exec/s: 0 rss: 50Mb L: 4/4 MS: 1 ChangeBit-\n\
            #900\tDONE   cov: 101 ft: 211 corp: 22/1Kb lim: 4 exec/s: 0 rss: 50Mb\n\
            Done 900 runs in 2 second(s)\n";
        let FuzzTotals { inputs, edges, features, grew_at, .. } = read_progress(log);
        assert_eq!((inputs, edges, features, grew_at), (900, 101, 211, 50));
        let log = "#2\tINITED exec/s: 0 rss: 32Mb\n#700\tNEW    cov: 8 ft: 9 corp: 2/12b\n#800\tDONE   cov: 8 ft: 9\n";
        assert_eq!(read_progress(log).grew_at, 700);
        assert_eq!(read_progress("#64\tpulse  cov: 8 ft: 9 exec/s: 0 rss: 40Mb\n").grew_at, 0);
    }
}
