use std::io;

use benches::Contender;
use serde::Serialize;

use crate::plan::Plan;
use crate::progress::Progress;
use crate::sample::Sample;
use crate::spread::Spread;
use crate::syscalls;
use crate::workload::Workload;

/// A workload and the results of each contender.
#[derive(Serialize)]
pub(crate) struct Row<'a> {
    pub(crate) workload: &'a Workload,
    pub(crate) contenders: Vec<Rounds>,
}

/// The samples of one contender, by round.
#[derive(Serialize)]
pub(crate) struct Rounds {
    pub(crate) contender: &'static str,
    pub(crate) samples: Vec<Sample>,
    /// The reason for missing samples.
    pub(crate) failure: Option<String>,
    /// System calls of the server per call.
    pub(crate) syscalls: Option<f64>,
}

impl<'a> Row<'a> {
    pub(crate) fn measure(
        workload: &'a Workload,
        contenders: &[Contender],
        plan: &Plan,
        progress: &mut Progress,
    ) -> Self {
        let entrants: Vec<_> = workload.entrants(contenders).collect();
        let mut rows: Vec<_> = entrants.iter().map(|entrant| Rounds::new(entrant.name)).collect();
        for _ in 0..plan.rounds {
            for (entrant, rounds) in entrants.iter().zip(&mut rows) {
                progress.start(format_args!("{} {}", workload.name, entrant.name));
                rounds.attempt(|rounds| {
                    let sample = Sample::measure(entrant, workload, plan)?;
                    if let Some(error) = &sample.report.first_error {
                        progress.note(format_args!("{} {}: {error}", workload.name, entrant.name));
                    }
                    rounds.samples.push(sample);
                    Ok(())
                });
                progress.finish();
            }
        }
        for (entrant, rounds) in entrants.iter().zip(&mut rows).filter(|_| plan.syscalls) {
            progress.start(format_args!("{} {}, system calls", workload.name, entrant.name));
            rounds.attempt(|rounds| {
                rounds.syscalls = Some(syscalls::per_call(entrant, workload, plan)?);
                Ok(())
            });
            progress.finish();
        }
        Self { workload, contenders: rows }
    }

    pub(crate) fn rounds_of(&self, contender: &str) -> Option<&Rounds> {
        self.contenders.iter().find(|rounds| rounds.contender == contender)
    }

    pub(crate) fn noise(&self) -> f64 {
        self.contenders.iter().flat_map(|rounds| &rounds.samples).map(|sample| sample.noise).fold(0.0, f64::max)
    }
}

impl Rounds {
    fn new(contender: &'static str) -> Self {
        Self { contender, samples: Vec::new(), failure: None, syscalls: None }
    }

    /// Runs `measure`, unless an earlier attempt has failed.
    fn attempt(&mut self, measure: impl FnOnce(&mut Self) -> io::Result<()>) {
        if self.failure.is_none() {
            self.failure = measure(self).err().map(|error| error.to_string());
        }
    }

    pub(crate) fn spread(&self, metric: impl Fn(&Sample) -> f64) -> Spread {
        Spread::of(self.samples.iter().map(metric))
    }

    /// Returns the ratio of this contender's metric to the other's, per round.
    pub(crate) fn ratio_to(&self, other: &Self, metric: impl Fn(&Sample) -> f64) -> Spread {
        ratios(&self.samples, &other.samples, metric)
    }
}

/// Returns the ratios of a metric between two contenders, per round.
pub(crate) fn ratios(own: &[Sample], other: &[Sample], metric: impl Fn(&Sample) -> f64) -> Spread {
    Spread::of(own.iter().zip(other).map(|(own, other)| metric(own) / metric(other)))
}
