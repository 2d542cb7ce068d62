use std::error::Error;
use std::path::PathBuf;
use std::time::Duration;

use benches::Contender;
use load::Arguments;
use serde::Serialize;

use crate::rows::{GROUP, is_published};
use crate::workload::{WORKLOADS, Workload};

/// The workloads to measure, and their times.
#[derive(Serialize)]
pub(crate) struct Plan {
    pub(crate) rounds: usize,
    pub(crate) warmup: Duration,
    pub(crate) seconds: Duration,
    #[serde(skip)]
    pub(crate) contenders: Vec<Contender>,
    #[serde(skip)]
    pub(crate) workloads: Vec<Workload>,
    /// `true` to measure idle connections as well.
    #[serde(skip)]
    pub(crate) idle: bool,
    /// `true` to count system calls, in separate runs.
    pub(crate) syscalls: bool,
    #[serde(skip)]
    pub(crate) json: Option<PathBuf>,
    #[serde(skip)]
    pub(crate) charts: Option<PathBuf>,
}

impl Plan {
    pub(crate) fn parse(mut arguments: Arguments) -> Result<Self, Box<dyn Error>> {
        let quick = arguments.contains("--quick");
        let syscalls = arguments.contains("--syscalls");
        let rounds = arguments.opt_value_from_str("--rounds")?;
        let minutes: Option<u32> = arguments.opt_value_from_str("--minutes")?;
        let contenders = Choice::parse(&mut arguments, "--contenders")?;
        let rows = Choice::parse(&mut arguments, "--row")?;
        let json = arguments.opt_value_from_str("--json")?;
        let charts = arguments.opt_value_from_str("--charts")?;
        if let Some(unknown) = arguments.finish().first() {
            return Err(format!("unexpected {unknown:?}").into());
        }
        contenders.check(Contender::ALL.iter().map(|contender| contender.name))?;
        rows.check(WORKLOADS.iter().map(|workload| workload.name).chain([IDLE, GROUP]))?;
        let is_group = rows.chosen(GROUP) == Some(true);
        let is_chosen = |workload: &Workload| {
            let is_named = rows.chosen(workload.name).unwrap_or(!quick || workload.quick);
            is_named || is_group && is_published(workload.name)
        };
        let takes_part = |contender: &Contender| contenders.chosen(contender.name).unwrap_or(contender.is_default());
        let mut plan = Self {
            rounds: rounds.unwrap_or(if quick { 1 } else { 3 }).max(1),
            warmup: Duration::ZERO,
            seconds: Duration::ZERO,
            contenders: Contender::ALL.into_iter().filter(takes_part).collect(),
            workloads: WORKLOADS.into_iter().filter(is_chosen).collect(),
            idle: is_group || rows.chosen(IDLE).unwrap_or(true),
            syscalls,
            json,
            charts,
        };
        let runs = u32::try_from(plan.runs(&plan.contenders).max(1))?;
        let (all, longest) =
            if quick { (QUICK, QUICK_RUN_MAX) } else { (ROUND * u32::try_from(plan.rounds)?, RUN_MAX) };
        let all = minutes.map_or(all, |minutes| Duration::from_secs(60 * u64::from(minutes)));
        let per_run = all.saturating_sub(plan.settling(&plan.contenders)) / runs;
        let per_run = per_run.saturating_sub(START_AND_STOP).clamp(RUN_MIN, longest);
        (plan.warmup, plan.seconds) = (per_run / 4, per_run * 3 / 4);
        Ok(plan)
    }

    /// Returns the number of client runs with these contenders.
    pub(crate) fn runs(&self, contenders: &[Contender]) -> usize {
        let entrants: usize = self.workloads.iter().map(|workload| workload.entrants(contenders).count()).sum();
        entrants * (self.rounds + usize::from(self.syscalls))
    }

    /// Returns the minimum time of all runs. Workloads with many clients need more time.
    fn settling(&self, contenders: &[Contender]) -> Duration {
        let settling = |workload: &Workload| {
            let entrants = u32::try_from(workload.entrants(contenders).count()).unwrap_or(u32::MAX);
            workload.settling() * 2 * entrants
        };
        let round: Duration = self.workloads.iter().map(settling).sum();
        round * u32::try_from(self.rounds).unwrap_or(u32::MAX)
    }
}

/// The comma-separated values of an option.
struct Choice {
    option: &'static str,
    names: Option<Vec<String>>,
}

impl Choice {
    fn parse(arguments: &mut Arguments, option: &'static str) -> Result<Self, load::ArgsError> {
        let names: Option<String> = arguments.opt_value_from_str(option)?;
        Ok(Self { option, names: names.map(|names| names.split(',').map(str::to_owned).collect()) })
    }

    /// Returns `Some(true)` if the option includes the name, and `None` without the option.
    fn chosen(&self, name: &str) -> Option<bool> {
        Some(self.names.as_ref()?.iter().any(|chosen| chosen == name))
    }

    fn check(&self, known: impl Iterator<Item = &'static str>) -> Result<(), String> {
        let known: Vec<_> = known.collect();
        match self.names.iter().flatten().find(|name| !known.contains(&name.as_str())) {
            Some(name) => Err(format!("no {name:?} for {}: {}", self.option, known.join(", "))),
            None => Ok(()),
        }
    }
}

/// The name of the measurement of idle connections, for the option `--row`.
pub(crate) const IDLE: &str = "idle";

/// The total time of all runs of a quick report, apart from slow starts.
const QUICK: Duration = Duration::from_secs(125);

/// The time of one round of a full report, apart from slow starts.
const ROUND: Duration = Duration::from_secs(14 * 60);

/// The shortest and longest run, including the warm-up.
const RUN_MIN: Duration = Duration::from_millis(300);
const RUN_MAX: Duration = Duration::from_secs(4);
const QUICK_RUN_MAX: Duration = Duration::from_millis(1300);

/// The additional time of each run.
const START_AND_STOP: Duration = Duration::from_millis(150);
