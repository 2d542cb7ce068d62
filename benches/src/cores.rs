//! Processes pinned to some of the cores.

use std::io;

use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

/// Returns the numbers of the cores available to this thread.
pub fn all() -> io::Result<Vec<usize>> {
    let set = sched_getaffinity(None)?;
    Ok((0..CpuSet::MAX_CPU).filter(|&core| set.is_set(core)).collect())
}

/// Starts a process pinned to these cores, with all its threads. Servers start one thread per available core.
pub(crate) fn start_on<T>(cores: &[usize], start: impl FnOnce() -> io::Result<T>) -> io::Result<T> {
    let before = sched_getaffinity(None)?;
    let mut set = CpuSet::new();
    cores.iter().for_each(|&core| set.set(core));
    // A process inherits the cores of the thread that starts it.
    sched_setaffinity(None, &set)?;
    let started = start();
    sched_setaffinity(None, &before)?;
    started
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn start_on_pins_only_the_started_code() {
        let before = all().unwrap();
        assert_eq!(start_on(&before[..1], all).unwrap(), before[..1]);
        assert_eq!(all().unwrap(), before);
    }
}
