//! System calls of a server, counted in separate runs because strace slows the server.

use std::io::{self, BufRead, BufReader};
use std::process::{Command, Stdio};
use std::time::Duration;
use std::{env, fs};

use benches::Contender;

use crate::plan::Plan;
use crate::workload::Workload;

/// Fails if strace is not available.
pub(crate) fn check() -> io::Result<()> {
    let version = Command::new("strace").arg("-V").output();
    version.map(drop).map_err(|error| io::Error::other(format!("strace: {error}")))
}

/// Returns the system calls per call, counted over a whole run including the connects.
pub(crate) fn per_call(contender: &Contender, workload: &Workload, plan: &Plan) -> io::Result<f64> {
    let (server_cores, client_cores) = workload.cores()?.unzip();
    let server = contender.start_server(Duration::from_micros(workload.sleep_us), server_cores.as_deref())?;
    let args = workload.args(server.addr, plan.seconds, plan.warmup);
    let summary = env::temp_dir().join(format!("report-{}.strace", server.pid()));
    let strace = ["-c", "-U", "calls,name", "-f", "-p", &server.pid().to_string(), "-o"];
    let mut strace = Command::new("strace").args(strace).arg(&summary).stderr(Stdio::piped()).spawn()?;
    let mut notes = BufReader::new(strace.stderr.take().expect("stderr is piped"));
    let mut attached = String::new();
    notes.read_line(&mut attached)?;
    let report = attached.contains("attached").then(|| contender.run_client(&args, client_cores.as_deref()));
    // strace ends with the last process it watches.
    drop(server);
    io::copy(&mut notes, &mut io::sink())?;
    strace.wait()?;
    let report = report.ok_or_else(|| io::Error::other(attached.trim().to_owned()))??;
    let calls = total(&fs::read_to_string(&summary)?);
    fs::remove_file(&summary)?;
    let calls = calls.ok_or_else(|| io::Error::other("strace has no total"))?;
    Ok(calls as f64 / report.rpcs_total.max(1) as f64)
}

fn total(summary: &str) -> Option<u64> {
    summary.lines().find_map(|line| line.trim().strip_suffix(" total")?.trim().parse().ok())
}

#[cfg(test)]
mod tests {
    #[test]
    fn reads_the_total_of_a_syscall_summary() {
        let summary = "    calls syscall\n--------- ----------------\n        9 read\n--------- ----------------\n       29 total\n";
        assert_eq!(super::total(summary), Some(29));
    }
}
