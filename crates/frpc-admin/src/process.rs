//! The process as a whole.

use std::{
    env,
    sync::OnceLock,
    time::{Duration, Instant},
};

/// Returns the file name of the program.
pub(crate) fn name() -> String {
    let program = env::current_exe().ok();
    let name = program.as_deref().and_then(|path| path.file_name());
    name.map(|name| name.to_string_lossy().into_owned()).unwrap_or_default()
}

/// Returns the time since the first call of this function.
pub(crate) fn uptime() -> Duration {
    static START: OnceLock<Instant> = OnceLock::new();
    START.get_or_init(Instant::now).elapsed()
}

/// Returns the resident memory in bytes. 0 if unknown.
pub(crate) fn memory() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let kib = line.and_then(|line| line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok());
    kib.unwrap_or(0) * 1024
}
