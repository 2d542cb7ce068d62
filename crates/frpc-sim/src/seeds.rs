//! One simulation for each seed.

use std::{
    env,
    panic::{AssertUnwindSafe, catch_unwind, resume_unwind},
};

use tokio::runtime;

/// Runs a simulation for each of this many seeds, in virtual time.
///
/// The variable `FRPC_SIM_SEEDS` replaces the number, and `FRPC_SIM_SEED` selects one seed.
///
/// # Panics
///
/// If a simulation panics. Its seed is printed before.
pub fn run(seeds: u64, simulation: impl AsyncFn()) {
    let number = |name: &str| env::var(name).ok().map(|text| text.parse().expect("a seed is a number"));
    let seeds = match number("FRPC_SIM_SEED") {
        Some(seed) => seed..seed + 1,
        None => 0..number("FRPC_SIM_SEEDS").unwrap_or(seeds),
    };
    for seed in seeds {
        fastrand::seed(seed);
        let runtime = runtime::Builder::new_current_thread().enable_all().start_paused(true).build();
        let runtime = runtime.expect("the system has room for a runtime");
        let outcome = catch_unwind(AssertUnwindSafe(|| runtime.block_on(simulation())));
        if let Err(panic) = outcome {
            eprintln!("the simulation with seed {seed} failed: FRPC_SIM_SEED={seed} runs it alone");
            resume_unwind(panic);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::{cell::RefCell, time::Duration};

    use super::*;

    #[test]
    fn seeds_decide_the_random_numbers() {
        let numbers = || {
            let drawn = RefCell::new(Vec::new());
            run(3, async || drawn.borrow_mut().push(fastrand::u64(..)));
            drawn.into_inner()
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
    #[should_panic(expected = "seed 2")]
    fn a_failure_ends_the_run() {
        run(5, async || {
            fastrand::seed(fastrand::u64(..));
            let seed = SEED.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
            assert!(seed < 2, "seed {seed}");
        });
    }

    static SEED: std::sync::atomic::AtomicU64 = std::sync::atomic::AtomicU64::new(0);
}
