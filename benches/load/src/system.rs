//! System functions available only on Unix.

use std::{io, time::Duration};

use rustix::{
    param,
    process::{Resource, getrlimit, setrlimit},
    time::{ClockId, clock_gettime},
};

/// Raises the limit of open files of this process to its maximum.
pub fn raise_open_files_limit() -> io::Result<()> {
    let mut limit = getrlimit(Resource::Nofile);
    limit.current = limit.maximum;
    Ok(setrlimit(Resource::Nofile, limit)?)
}

/// Returns the user and system CPU time of this process so far.
pub(crate) fn cpu_time() -> Duration {
    Duration::try_from(clock_gettime(ClockId::ProcessCPUTime)).expect("CPU time is never negative")
}

/// Returns the time of a clock shared by all processes of the machine.
pub(crate) fn monotonic_time() -> Duration {
    Duration::try_from(clock_gettime(ClockId::Monotonic)).expect("the monotonic clock is never negative")
}

/// Returns the number of clock ticks per second in `/proc`.
pub(crate) fn ticks_per_second() -> u64 {
    param::clock_ticks_per_second()
}
