//! The share of the machine used by other work during a measurement.

use std::{fs, io, process};

/// CPU time counted by the kernel so far.
pub(crate) struct Ticks {
    /// All cores, idle or busy.
    all: u64,
    /// Time used by other processes or taken by the hypervisor.
    others: u64,
}

impl Ticks {
    pub(crate) fn now() -> io::Result<Self> {
        let cores: [u64; 8] = numbers_after(1, &fs::read_to_string("/proc/stat")?)?;
        let [.., steal] = cores;
        let mut others = steal;
        for entry in fs::read_dir("/proc")? {
            let name = entry?.file_name();
            let pid = name.to_str().and_then(|name| name.parse::<u32>().ok());
            // A process may end in the meantime. Its time then counts for its parent.
            if let Some(pid) = pid.filter(|&pid| pid != process::id())
                && let Ok(stat) = fs::read_to_string(format!("/proc/{pid}/stat"))
            {
                others += time_of(&stat)?;
            }
        }
        Ok(Self { all: cores.iter().sum(), others })
    }

    /// Returns the share of the machine used by other work since `before`.
    pub(crate) fn others_since(&self, before: &Self) -> f64 {
        self.others.saturating_sub(before.others) as f64 / (self.all - before.all).max(1) as f64
    }
}

/// Returns `true` if a run with this noise counts as a result.
pub(crate) fn is_quiet(noise: f64) -> bool {
    noise <= NOISE_MAX
}

pub(crate) fn verdict(noise: f64) -> String {
    let percent = noise * 100.0;
    if is_quiet(noise) {
        format!("Other work took at most {percent:.0} % of the machine.")
    } else {
        format!("**Not a result**: other work took up to {percent:.0} % of the machine during a measurement.")
    }
}

/// Returns the user and system time of a process and its reaped children. Kernel threads count as zero, because they
/// work for the measured programs.
fn time_of(stat: &str) -> io::Result<u64> {
    // The command name is in parentheses and may contain anything, so fields are counted from its end.
    let fields = stat.rsplit(')').next().unwrap_or_default();
    let [parent] = numbers_after(1, fields)?;
    let times: [u64; 4] = numbers_after(11, fields)?;
    Ok(if parent == KERNEL { 0 } else { times.iter().sum() })
}

fn numbers_after<const N: usize>(words: usize, text: &str) -> io::Result<[u64; N]> {
    let numbers: Vec<_> = text.split_whitespace().skip(words).map_while(|word| word.parse().ok()).take(N).collect();
    numbers.try_into().map_err(|_| io::Error::other("the kernel's counters are not in the known format"))
}

/// The maximum noise of a quiet run.
const NOISE_MAX: f64 = 0.05;

/// The parent of all kernel threads.
const KERNEL: u64 = 2;
