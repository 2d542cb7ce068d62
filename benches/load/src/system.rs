//! Questions that only a Unix system answers.

use std::{io, time::Duration};

use rustix::{
    param,
    process::{Resource, getrlimit, setrlimit},
    time::{ClockId, clock_gettime},
};

/// Lets this process open as many files as it may.
pub fn raise_open_files_limit() -> io::Result<()> {
    let mut limit = getrlimit(Resource::Nofile);
    limit.current = limit.maximum;
    Ok(setrlimit(Resource::Nofile, limit)?)
}

/// Returns the CPU time of this process so far, user and system.
pub(crate) fn cpu_time() -> Duration {
    Duration::try_from(clock_gettime(ClockId::ProcessCPUTime)).expect("CPU time is never negative")
}

/// Returns the time of the clock that all processes of the machine share.
pub(crate) fn monotonic_time() -> Duration {
    Duration::try_from(clock_gettime(ClockId::Monotonic)).expect("the monotonic clock is never negative")
}

/// Returns the unit of the times in `/proc`.
pub(crate) fn ticks_per_second() -> u64 {
    param::clock_ticks_per_second()
}
