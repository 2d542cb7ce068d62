//! Process statistics from the kernel.

use std::io;
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

pub use crate::system::raise_open_files_limit;
use crate::{
    Window,
    system::{cpu_time as own_cpu_time, ticks_per_second},
};

/// The CPU usage of a process so far.
#[derive(Clone, Copy, Debug, Default)]
pub struct CpuUse {
    /// User and system time.
    pub time: Duration,
    /// The number of context switches of its threads, voluntary or not.
    pub context_switches: u64,
}

/// Measures the CPU usage of this process during `window`.
///
/// A separate thread keeps time even if all workers of the runtime are busy.
pub fn watch_cpu(window: Window) -> JoinHandle<CpuUse> {
    let switches = || context_switches(std::process::id()).unwrap_or_default();
    thread::spawn(move || {
        sleep_until(window.start());
        let (time, context_switches) = (own_cpu_time(), switches());
        sleep_until(window.end());
        CpuUse { time: own_cpu_time() - time, context_switches: switches().saturating_sub(context_switches) }
    })
}

/// Returns the user and system time of a process so far, in kernel ticks of 10 ms.
pub fn cpu_time(pid: u32) -> io::Result<Duration> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat"))?;
    // The command name is in parentheses and may contain anything, so fields are counted from its end.
    let fields = stat.rsplit(')').next().unwrap_or_default().split_whitespace();
    let ticks = fields.skip(UTIME_AFTER_COMMAND).take(2).map(str::parse::<u64>).sum::<Result<u64, _>>();
    let ticks = ticks.map_err(io::Error::other)?;
    Ok(Duration::from_secs(ticks) / u32::try_from(ticks_per_second()).map_err(io::Error::other)?)
}

/// Returns the context switches of the current threads of a process so far.
pub fn context_switches(pid: u32) -> io::Result<u64> {
    let mut switches = 0;
    for thread in std::fs::read_dir(format!("/proc/{pid}/task"))? {
        // A thread may end in the meantime.
        let status = std::fs::read_to_string(thread?.path().join("status")).unwrap_or_default();
        let counts = status.lines().filter_map(|line| line.split_once("voluntary_ctxt_switches:"));
        switches += counts.filter_map(|(_, count)| count.trim().parse::<u64>().ok()).sum::<u64>();
    }
    Ok(switches)
}

/// Returns a size in KiB from `/proc/PID/status`, such as `VmRSS` or `VmHWM`.
pub fn memory_kib(pid: u32, field: &str) -> io::Result<u64> {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status"))?;
    let value = status.lines().find_map(|line| line.strip_prefix(field)?.strip_prefix(':')?.strip_suffix("kB"));
    value
        .and_then(|kib| kib.trim().parse().ok())
        .ok_or_else(|| io::Error::other(format!("no {field} in /proc/{pid}/status")))
}

fn sleep_until(instant: Instant) {
    thread::sleep(instant.saturating_duration_since(Instant::now()));
}

const UTIME_AFTER_COMMAND: usize = 11;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_memory_cpu_time_and_context_switches() {
        let pid = std::process::id();
        assert!(cpu_time(pid).unwrap() <= own_cpu_time() + Duration::from_millis(20));
        assert!(context_switches(pid).unwrap() > 0);
        assert!(memory_kib(pid, "VmHWM").unwrap() > 0);
        assert!(memory_kib(pid, "VmNothing").is_err());
    }
}
