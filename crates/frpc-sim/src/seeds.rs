//! One simulation for each seed.

use std::{
    env,
    ops::Range,
    panic::{AssertUnwindSafe, catch_unwind},
    sync::{
        Mutex,
        atomic::{AtomicU64, Ordering},
    },
    thread,
};

use tokio::runtime;

use crate::lock::lock;

/// Runs a simulation for each of this many seeds, in virtual time and on all processors.
///
/// A seed repeats each event and its time, if it decides your code too: random numbers of `fastrand`, a `select!` that is
/// `biased`, and at most one task per `watch` of tokio.
///
/// The variable `FRPC_SIM_SEEDS` replaces the number. `FRPC_SIM_SEED` selects one seed, or a range such as `100..200`.
/// After ten failures, no further simulation begins.
///
/// # Panics
///
/// If a simulation panics. Its seed is printed before.
pub fn run(seeds: u64, simulation: impl AsyncFn() + Sync) {
    let seeds = match env::var("FRPC_SIM_SEED") {
        Ok(text) => selected(&text).expect("FRPC_SIM_SEED is a number or a range"),
        Err(_) => 0..env::var("FRPC_SIM_SEEDS").map_or(seeds, |text| text.parse().expect("a number of seeds")),
    };
    let (next, failed) = (AtomicU64::new(seeds.start), Mutex::new(Vec::new()));
    let work = || {
        while lock(&failed).len() < FAILURES_MAX {
            let seed = next.fetch_add(1, Ordering::Relaxed);
            if seed >= seeds.end {
                break;
            }
            if catch_unwind(AssertUnwindSafe(|| simulate(seed, &simulation))).is_err() {
                eprintln!("the simulation with seed {seed} failed: FRPC_SIM_SEED={seed} runs it alone");
                lock(&failed).push(seed);
            }
        }
    };
    thread::scope(|scope| {
        let threads = thread::available_parallelism().map_or(1, usize::from).min(THREADS_MAX);
        (0..threads).for_each(|_| _ = scope.spawn(work));
    });
    let failed = failed.into_inner().unwrap_or_default();
    assert!(failed.is_empty(), "the simulations with the seeds {failed:?} of {seeds:?} failed");
}

fn selected(text: &str) -> Option<Range<u64>> {
    if let Some((start, end)) = text.split_once("..") {
        return Some(start.parse().ok()?..end.parse().ok()?);
    }
    let seed = text.parse().ok()?;
    Some(seed..seed + 1)
}

fn simulate(seed: u64, simulation: &impl AsyncFn()) {
    fastrand::seed(seed);
    let runtime = runtime::Builder::new_current_thread().enable_all().start_paused(true).build();
    runtime.expect("the system has room for a runtime").block_on(simulation());
}

/// The number of failed simulations after which no other begins.
const FAILURES_MAX: usize = 10;
const THREADS_MAX: usize = 64;

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn seeds_decide_the_random_numbers() {
        let numbers = || {
            let drawn = Mutex::new(Vec::new());
            run(3, async || lock(&drawn).push(fastrand::u64(..)));
            let mut drawn = drawn.into_inner().unwrap();
            drawn.sort_unstable();
            drawn
        };
        let first = numbers();
        assert_eq!(first, numbers());
        assert_ne!(first[0], first[1]);
    }

    #[test]
    fn time_is_virtual() {
        let begun = std::time::Instant::now();
        run(1, async || tokio::time::sleep(Duration::from_secs(100_000)).await);
        assert!(begun.elapsed() < Duration::from_secs(1_000));
    }

    #[test]
    #[should_panic(expected = "of 0..5 failed")]
    fn a_failed_simulation_fails_the_run() {
        run(5, async || assert!(fastrand::u64(..).is_multiple_of(2), "an odd number"));
    }

    #[test]
    fn a_seed_or_a_range_is_selected() {
        assert_eq!(["7", "7..9", "x", "7..", "-1"].map(selected), [Some(7..8), Some(7..9), None, None, None]);
    }
}
