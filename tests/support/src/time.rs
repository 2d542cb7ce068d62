//! Running tests in virtual and in real time.

use std::{pin::Pin, time::Duration};

use tokio::{
    runtime,
    time::{Instant, sleep, timeout},
};

/// Runs a test in virtual time. It jumps to the next deadline whenever all tasks wait.
pub fn in_virtual_time(test: impl Future<Output = ()>) {
    run_in_virtual_time(Box::pin(test));
}

// Not generic, to compile the rest only once for all tests.
fn run_in_virtual_time(test: Test<'_>) {
    let runtime = runtime::Builder::new_current_thread().enable_all().start_paused(true).build().unwrap();
    runtime.block_on(async { timeout(DAY, test).await.expect("a test ends within a day of virtual time") });
}

/// Runs a test in real time on two threads.
#[cfg(feature = "full")]
pub fn in_real_time(test: impl Future<Output = ()>) {
    run_in_real_time(REAL_TIME_MAX, Box::pin(test));
}

/// Runs a test with other programs in real time, with this time limit.
#[cfg(feature = "full")]
pub fn in_real_time_within(limit: Duration, test: impl Future<Output = ()>) {
    run_in_real_time(limit, Box::pin(test));
}

#[cfg(feature = "full")]
fn run_in_real_time(limit: Duration, test: Test<'_>) {
    let runtime = runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    runtime.block_on(async { timeout(limit, test).await.expect("a test ends in time") });
    runtime.shutdown_background();
}

type Test<'a> = Pin<Box<dyn Future<Output = ()> + 'a>>;

/// Lets all tasks run until they wait. Use it in virtual time only.
pub async fn settle() {
    sleep(MILLI).await;
}

/// Yields to other tasks until the condition is met.
pub async fn until(mut is_met: impl FnMut() -> bool) {
    while !is_met() {
        tokio::task::yield_now().await;
    }
}

/// Asserts that this amount of virtual time has passed, within the resolution of timers.
#[track_caller]
pub fn assert_elapsed(since: Instant, expected: Duration) {
    let elapsed = since.elapsed();
    assert!(expected <= elapsed && elapsed <= expected + 3 * MILLI, "{elapsed:?} instead of {expected:?}");
}

/// One millisecond.
pub const MILLI: Duration = Duration::from_millis(1);
/// One second.
pub const SECOND: Duration = Duration::from_secs(1);
/// One day.
pub const DAY: Duration = Duration::from_secs(24 * 3600);
/// Time limit for hanging tests. Long enough for any busy machine.
#[cfg(feature = "full")]
const REAL_TIME_MAX: Duration = Duration::from_secs(120);
