//! Worlds in processes of their own, so that a seed repeats exactly and a world cannot take others with it.

use std::{
    env, io,
    ops::Range,
    process::{Command, Stdio},
    sync::atomic::{AtomicU64, Ordering},
    thread,
    time::{Duration, Instant},
};

use crate::simulation::{WorldReport, WorldSize};

/// The worlds to run.
#[derive(Clone, Debug)]
pub(crate) struct WorldRun {
    pub(crate) seeds: Range<u64>,
    pub(crate) size: WorldSize,
    pub(crate) defect: Option<String>,
    pub(crate) jobs: usize,
    /// No further world begins after this time.
    pub(crate) until: Option<Instant>,
}

impl WorldRun {
    /// Runs the worlds, and passes each report to the function. Returns the next seed.
    pub(crate) fn run(&self, report: impl Fn(WorldReport) + Sync) -> u64 {
        let next = AtomicU64::new(self.seeds.start);
        let work = || {
            while self.until.is_none_or(|until| Instant::now() < until) {
                let seed = next.fetch_add(1, Ordering::Relaxed);
                if seed >= self.seeds.end {
                    next.fetch_sub(1, Ordering::Relaxed);
                    break;
                }
                report(self.run_world(seed));
            }
        };
        thread::scope(|scope| (0..self.jobs.max(1)).for_each(|_| _ = scope.spawn(work)));
        next.into_inner()
    }

    fn run_world(&self, seed: u64) -> WorldReport {
        let failed = |why: String| WorldReport {
            seed,
            seconds: 0.0,
            cpu_seconds: 0.0,
            counts: Default::default(),
            violations: vec![why],
            digest: 0,
        };
        match self.start_world(seed) {
            Ok((true, output)) => serde_json::from_str(&output)
                .unwrap_or_else(|error| failed(format!("the report is unreadable: {error}"))),
            Ok((false, output)) => failed(format!("the world died: {}", output.trim())),
            Err(error) => failed(format!("the world did not end: {error}")),
        }
    }

    /// Runs the process of a world. Returns its success and its output.
    fn start_world(&self, seed: u64) -> io::Result<(bool, String)> {
        let mut command = Command::new(env::current_exe()?);
        command.args(["seed", &seed.to_string(), self.size.name()]).args(&self.defect);
        let mut child = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn()?;
        let (output, errors) = (child.stdout.take(), child.stderr.take());
        thread::scope(|scope| {
            let output = scope.spawn(|| output.map(io::read_to_string));
            let errors = scope.spawn(|| errors.map(io::read_to_string));
            let deadline = Instant::now() + WORLD_MAX;
            let status = loop {
                match child.try_wait()? {
                    Some(status) => break status,
                    None if Instant::now() > deadline => {
                        child.kill()?;
                        child.wait()?;
                        return Err(io::Error::new(io::ErrorKind::TimedOut, format!("it ran for {WORLD_MAX:?}")));
                    }
                    None => thread::sleep(POLL_PAUSE),
                }
            };
            let read = |thread: thread::ScopedJoinHandle<'_, Option<io::Result<String>>>| {
                thread.join().ok().flatten().unwrap_or_else(|| Ok(String::new()))
            };
            let (output, errors) = (read(output)?, read(errors)?);
            Ok((status.success(), if status.success() { output } else { errors }))
        })
    }
}

impl WorldSize {
    /// Returns the name on the command line.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Short => "short",
            Self::Full => "full",
            Self::Long => "long",
        }
    }
}

/// The real time of one world. None takes a tenth of it, even without optimisation and on a busy machine.
const WORLD_MAX: Duration = Duration::from_secs(600);
const POLL_PAUSE: Duration = Duration::from_millis(5);
