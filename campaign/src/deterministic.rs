//! Random numbers and clocks of a process as functions of a seed.
//!
//! The standard library draws the keys of its hash maps, and tokio the order of its branches, from `getrandom` of the system.
//! This program has its own. A process runs one world, because tokio counts its runtimes too.
#![allow(unsafe_code, reason = "functions of the C library are replaced")]

use std::{
    slice,
    sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering},
};

static IS_ON: AtomicBool = AtomicBool::new(false);
static RANDOM: AtomicU64 = AtomicU64::new(0);
static WALL_CLOCK: AtomicI64 = AtomicI64::new(1_800_000_000);
static STEPS: AtomicI64 = AtomicI64::new(0);

/// Makes this process a function of a seed.
pub(crate) fn begin(seed: u64) {
    RANDOM.store(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15), Ordering::SeqCst);
    IS_ON.store(true, Ordering::SeqCst);
}

/// Moves the clock of `SystemTime`.
pub(crate) fn jump_wall_clock(seconds: i64) {
    WALL_CLOCK.fetch_add(seconds, Ordering::SeqCst);
}

/// Returns the processor time of this process.
pub(crate) fn processor_seconds() -> f64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    system_clock(libc::CLOCK_PROCESS_CPUTIME_ID, &mut time);
    time.tv_sec as f64 + time.tv_nsec as f64 / 1e9
}

/// Returns the processor time of the ended child processes, and of theirs.
pub(crate) fn processor_seconds_of_children() -> f64 {
    let mut usage = std::mem::MaybeUninit::<libc::rusage>::zeroed();
    // SAFETY: `usage` is valid for writing, and zeroes are valid too.
    let usage = unsafe {
        libc::getrusage(libc::RUSAGE_CHILDREN, usage.as_mut_ptr());
        usage.assume_init()
    };
    [usage.ru_utime, usage.ru_stime].iter().map(|time| time.tv_sec as f64 + time.tv_usec as f64 / 1e6).sum()
}

/// SplitMix64.
fn next_random() -> u64 {
    let state = RANDOM.fetch_add(0x9e37_79b9_7f4a_7c15, Ordering::SeqCst);
    let mixed = (state ^ (state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ (mixed >> 31)
}

fn system_clock(clock: libc::clockid_t, time: *mut libc::timespec) -> libc::c_int {
    // SAFETY: the arguments are those of the system call, and `time` is valid for writing.
    let result = unsafe { libc::syscall(libc::SYS_clock_gettime, clock, time) };
    libc::c_int::try_from(result).unwrap_or(-1)
}

/// Replaces the function of the C library.
///
/// # Safety
///
/// `buffer` is valid for writing `len` bytes.
#[unsafe(no_mangle)]
unsafe extern "C" fn getrandom(buffer: *mut libc::c_void, len: libc::size_t, flags: libc::c_uint) -> libc::ssize_t {
    if !IS_ON.load(Ordering::SeqCst) {
        // SAFETY: the arguments are those of the system call.
        let result = unsafe { libc::syscall(libc::SYS_getrandom, buffer, len, flags) };
        return libc::ssize_t::try_from(result).unwrap_or(-1);
    }
    // SAFETY: the caller promises it.
    let buffer = unsafe { slice::from_raw_parts_mut(buffer.cast::<u8>(), len) };
    for chunk in buffer.chunks_mut(8) {
        chunk.copy_from_slice(&next_random().to_le_bytes()[..chunk.len()]);
    }
    libc::ssize_t::try_from(len).unwrap_or(-1)
}

/// Replaces the function of the C library. Time passes by one microsecond per call: virtual time is that of tokio.
///
/// # Safety
///
/// `time` is valid for writing.
#[unsafe(no_mangle)]
unsafe extern "C" fn clock_gettime(clock: libc::clockid_t, time: *mut libc::timespec) -> libc::c_int {
    let is_wall = clock == libc::CLOCK_REALTIME || clock == libc::CLOCK_REALTIME_COARSE;
    let is_steady = clock == libc::CLOCK_MONOTONIC || clock == libc::CLOCK_BOOTTIME;
    if !IS_ON.load(Ordering::SeqCst) || !(is_wall || is_steady) {
        return system_clock(clock, time);
    }
    let steps = STEPS.fetch_add(1, Ordering::SeqCst);
    let start = if is_wall { WALL_CLOCK.load(Ordering::SeqCst) } else { 1_000_000 };
    // SAFETY: the caller promises it.
    unsafe { time.write(libc::timespec { tv_sec: start + steps / 1_000_000, tv_nsec: steps % 1_000_000 * 1000 }) };
    0
}
