//! Processes that stay on some of the cores.

use std::io;

use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

/// The numbers of the cores that this thread may use.
pub fn all() -> io::Result<Vec<usize>> {
    let set = sched_getaffinity(None)?;
    Ok((0..CpuSet::MAX_CPU).filter(|&core| set.is_set(core)).collect())
}

/// Starts a process that stays on these cores, as its threads do. Servers have a thread for each core that they may use.
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
    fn what_is_started_stays_on_its_cores_and_who_starts_it_does_not() {
        let before = all().unwrap();
        assert_eq!(start_on(&before[..1], all).unwrap(), before[..1]);
        assert_eq!(all().unwrap(), before);
    }
}
