//! The totals of all runs, in a file.

use std::{collections::BTreeMap, fmt::Write as _, fs, io, path::Path};

use serde::{Deserialize, Serialize};

use crate::simulation::WorldReport;

/// The totals, continued by each run.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
#[serde(default)]
pub(crate) struct CampaignTotals {
    pub(crate) simulation: SimulationTotals,
    /// By the name of the target.
    pub(crate) fuzzing: BTreeMap<String, FuzzTotals>,
    pub(crate) soak: SoakTotals,
    pub(crate) failures: Vec<Failure>,
}

/// The totals of simulated worlds.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
#[serde(default)]
pub(crate) struct SimulationTotals {
    /// The first seed of the next run.
    pub(crate) next_seed: u64,
    pub(crate) worlds: u64,
    /// Virtual time with load and faults. The checks afterwards do not count.
    pub(crate) simulated_hours: f64,
    pub(crate) cpu_hours: f64,
    pub(crate) counts: BTreeMap<String, u64>,
}

/// The totals of one fuzz target.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
#[serde(default)]
pub(crate) struct FuzzTotals {
    pub(crate) inputs: u64,
    pub(crate) cpu_hours: f64,
    /// The covered edges at the end of the last run.
    pub(crate) coverage: u64,
    /// The hours at which the coverage last grew.
    pub(crate) grew_at: f64,
}

/// The totals of the soak test.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
#[serde(default)]
pub(crate) struct SoakTotals {
    pub(crate) runs: u64,
    pub(crate) hours: f64,
    pub(crate) cpu_hours: f64,
}

/// A failure, with the command that repeats it.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
#[serde(default)]
pub(crate) struct Failure {
    pub(crate) repeat: String,
    pub(crate) what: String,
    /// The cause and the fix, added by hand.
    pub(crate) fix: String,
}

impl CampaignTotals {
    /// Reads the file. A missing file has no totals.
    pub(crate) fn read(path: &Path) -> io::Result<Self> {
        match fs::read_to_string(path) {
            Ok(text) => Ok(serde_json::from_str(&text)?),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Self::default()),
            Err(error) => Err(error),
        }
    }

    /// Replaces the file.
    pub(crate) fn write(&self, path: &Path) -> io::Result<()> {
        let next = path.with_extension("json.next");
        fs::write(&next, serde_json::to_string_pretty(self)? + "\n")?;
        fs::rename(next, path)
    }

    /// Adds a world.
    pub(crate) fn add_world(&mut self, report: &WorldReport) {
        let totals = &mut self.simulation;
        totals.worlds += 1;
        totals.simulated_hours += report.seconds / 3600.0;
        totals.cpu_hours += report.cpu_seconds / 3600.0;
        for (what, count) in &report.counts {
            *totals.counts.entry(what.clone()).or_default() += count;
        }
    }

    /// Returns the rows of the table in docs/notes/campaign.md.
    pub(crate) fn table(&self) -> String {
        let mut table = String::from("| what | total |\n|---|---:|\n");
        let SimulationTotals { worlds, simulated_hours, cpu_hours, counts, .. } = &self.simulation;
        let count = |what: &str| counts.get(what).copied().unwrap_or_default();
        let mut row = |what: &str, total: String| _ = writeln!(table, "| {what} | {total} |");
        row("simulated worlds", grouped(*worlds));
        row("simulated hours, with load and faults", format!("{simulated_hours:.1}"));
        row("CPU hours of simulations", format!("{cpu_hours:.2}"));
        row("simulated hours per CPU hour", format!("{:.0}", simulated_hours / cpu_hours.max(f64::MIN_POSITIVE)));
        row("calls", grouped(count("calls")));
        row("· answered", grouped(count("answered")));
        row("· failed by their handler, as ordered", grouped(count("failed by handlers")));
        row("· failed, certainly not executed", grouped(count("failed, not executed")));
        row("· failed, maybe executed", grouped(count("failed, maybe executed")));
        row("· cancelled by the caller", grouped(count("cancelled")));
        row("answers, in streams and alone", grouped(count("messages")));
        row("published messages", grouped(count("published")));
        row("deliveries to subscribers", grouped(count("deliveries")));
        row("subscriptions with a complete account", grouped(count("subscriptions accounted for")));
        row("faults, with stalls and cuts of links", grouped(count("faults")));
        row("worlds with a check of memory", grouped(count("memory checks")));
        let inputs = self.fuzzing.values().map(|target| target.inputs).sum();
        // Without a target, the sum of floats is -0.
        let fuzzed = 0.0 + self.fuzzing.values().map(|target| target.cpu_hours).sum::<f64>();
        row("fuzz inputs", grouped(inputs));
        row("CPU hours of fuzzing", format!("{fuzzed:.2}"));
        row("hours of soak", format!("{:.2}", self.soak.hours));
        row("CPU hours of soak", format!("{:.2}", self.soak.cpu_hours));
        row("failures found", grouped(self.failures.len() as u64));
        table
    }
}

/// Writes a number with commas between groups of three digits.
fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::new();
    for (place, digit) in digits.chars().enumerate() {
        if place > 0 && (digits.len() - place).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn totals_continue_in_the_file() {
        let folder = std::env::temp_dir().join(format!("frpc-campaign-{}", std::process::id()));
        fs::create_dir_all(&folder).expect("a folder for the test");
        let path = folder.join("totals.json");
        for run in 1..=3 {
            let mut totals = CampaignTotals::read(&path).expect("totals");
            let counts = [("calls".to_owned(), 500)].into();
            let report =
                WorldReport { seed: 1, seconds: 1800.0, cpu_seconds: 1.0, counts, violations: Vec::new(), digest: 0 };
            totals.add_world(&report);
            totals.write(&path).expect("the file");
            assert_eq!(totals.simulation.worlds, run);
        }
        let table = CampaignTotals::read(&path).expect("totals").table();
        assert!(table.contains("| simulated hours, with load and faults | 1.5 |"), "{table}");
        assert!(table.contains("| calls | 1,500 |"), "{table}");
        fs::remove_dir_all(folder).expect("the folder goes");
    }
}
