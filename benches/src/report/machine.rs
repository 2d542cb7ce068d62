use std::fmt::{self, Display, Formatter};
use std::process::Command;
use std::{fs, io, thread};

use benches::profile;
use serde::Serialize;

/// The machine and the software of a measurement.
#[derive(Serialize)]
pub(crate) struct Machine {
    date: String,
    kernel: String,
    cpu: String,
    cores: usize,
    congestion_control: String,
    load_average: String,
    rustc: String,
    go: String,
    /// The directory of the programs, named after their cargo profile.
    profile: String,
    commit: String,
    /// Versions of other projects.
    versions: Vec<(&'static str, &'static str)>,
}

impl Machine {
    pub(crate) fn now() -> io::Result<Self> {
        let read = |path| fs::read_to_string(path).map(|text| text.trim().to_owned());
        let cpu = read("/proc/cpuinfo")?;
        let cpu = cpu.lines().find_map(|line| line.strip_prefix("model name")?.trim_start().strip_prefix(": "));
        Ok(Self {
            date: output_of("date", &["-u", "+%Y-%m-%d"]),
            kernel: without_build(&read("/proc/sys/kernel/osrelease")?).to_owned(),
            cpu: cpu.unwrap_or("unknown CPU").to_owned(),
            cores: thread::available_parallelism()?.get(),
            congestion_control: read("/proc/sys/net/ipv4/tcp_congestion_control")?,
            load_average: read("/proc/loadavg")?,
            profile: profile()?,
            rustc: output_of("rustc", &["--version"]),
            go: output_of("go", &["version"]),
            commit: output_of("git", &["-C", env!("CARGO_MANIFEST_DIR"), "describe", "--always", "--dirty"]),
            versions: versions(),
        })
    }
}

impl Display for Machine {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let Self { date, kernel, cpu, cores, congestion_control, load_average, rustc, go, profile, commit, .. } = self;
        writeln!(
            f,
            "{date}, Linux {kernel}, {cpu}, {cores} cores, {congestion_control}; load average at the start {load_average}."
        )?;
        write!(f, "Commit {commit}, profile {profile}; {rustc}, {go}")?;
        self.versions.iter().try_for_each(|(name, version)| write!(f, ", {name} {version}"))?;
        f.write_str(".")
    }
}

/// Returns `6.18.44` of `6.18.44-build-7`. The rest names a build, and with it whose machine it is.
fn without_build(release: &str) -> &str {
    release.split_once('-').map_or(release, |(version, _)| version)
}

fn output_of(program: &str, words: &[&str]) -> String {
    let output = Command::new(program).args(words).output().ok().filter(|output| output.status.success());
    let output = output.and_then(|output| String::from_utf8(output.stdout).ok());
    output.map_or_else(|| format!("unknown to {program}"), |text| text.trim().to_owned())
}

fn versions() -> Vec<(&'static str, &'static str)> {
    let crates = ["tokio", "tonic", "connectrpc", "tarpc"]
        .map(|name| (name, LOCK_FILE, format!("name = \"{name}\"\nversion = \"")));
    let modules = [
        ("frisbee-go", GO_FRPC, "github.com/loopholelabs/frisbee-go v"),
        ("polyglot", GO_FRPC, "github.com/loopholelabs/polyglot/v2 v"),
        ("grpc-go", GRPC_GO, "google.golang.org/grpc v"),
    ];
    let modules = modules.map(|(name, file, start)| (name, file, start.to_owned()));
    let version = |(name, file, start): (_, &'static str, String)| {
        let (_, rest) = file.split_once(&start)?;
        Some((name, rest.split(['"', '\n']).next()?))
    };
    crates.into_iter().chain(modules).filter_map(version).collect()
}

const LOCK_FILE: &str = include_str!("../../../Cargo.lock");
const GO_FRPC: &str = include_str!("../../../tests/go/go.mod");
const GRPC_GO: &str = include_str!("../../go/go.mod");
