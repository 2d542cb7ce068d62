//! The totals of all runs, in a file.

use std::{
    collections::BTreeMap,
    fmt::{Display, Write as _},
    fs, io,
    path::Path,
};

use serde::{Deserialize, Serialize};

use crate::simulation::{WorldReport, WorldSize};

/// The totals, continued by each run.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
#[serde(default)]
pub(crate) struct CampaignTotals {
    pub(crate) simulation: SimulationTotals,
    pub(crate) long_simulation: SimulationTotals,
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
    pub(crate) edges: u64,
    /// The same with counts of their executions.
    pub(crate) features: u64,
    /// The number of inputs up to the last one with a new edge.
    pub(crate) grew_at: u64,
}

/// The totals of the soak test.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
#[serde(default)]
pub(crate) struct SoakTotals {
    pub(crate) runs: u64,
    pub(crate) hours: f64,
    pub(crate) cpu_hours: f64,
    pub(crate) acts: u64,
    /// The largest growth of resident memory in one run.
    pub(crate) growth_kib_max: u64,
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

    /// Changes the totals in the file. Another process may run another part of the campaign in the meantime.
    pub(crate) fn update(path: &Path, change: impl FnOnce(&mut Self)) -> io::Result<()> {
        let lock = fs::File::create(path.with_extension("lock"))?;
        lock.lock()?;
        let mut totals = Self::read(path)?;
        change(&mut totals);
        let next = path.with_extension("json.next");
        fs::write(&next, serde_json::to_string_pretty(&totals)? + "\n")?;
        fs::rename(next, path)
    }

    /// Returns the totals of the campaign's worlds of a size.
    pub(crate) fn simulations(&mut self, size: WorldSize) -> &mut SimulationTotals {
        match size {
            WorldSize::Long => &mut self.long_simulation,
            WorldSize::Short | WorldSize::Full => &mut self.simulation,
        }
    }

    /// Returns the rows of the table of simulations in docs/notes/campaign.md.
    pub(crate) fn simulation_table(&self) -> String {
        let mut table = String::from("| what | full worlds | long worlds |\n|---|---:|---:|\n");
        let all = [&self.simulation, &self.long_simulation];
        let mut row = |what: &str, total: &dyn Fn(&SimulationTotals) -> String| {
            let [full, long] = all.map(total);
            _ = writeln!(table, "| {what} | {full} | {long} |");
        };
        row("simulated worlds", &|totals| grouped(totals.worlds));
        row("simulated hours, with load and faults", &|totals| grouped(totals.simulated_hours));
        row("CPU hours", &|totals| format!("{:.2}", totals.cpu_hours));
        row("simulated hours per CPU hour", &|totals| {
            grouped(totals.simulated_hours / totals.cpu_hours.max(f64::MIN_POSITIVE))
        });
        for (what, count) in [
            ("calls", "calls"),
            ("· answered", "answered"),
            ("· failed by their handler, as ordered", "failed by handlers"),
            ("· failed, certainly not executed", "failed, not executed"),
            ("· failed, maybe executed", "failed, maybe executed"),
            ("· cancelled by the caller", "cancelled"),
            ("· notifications, without answers", "notifications"),
            ("batches of calls", "batches"),
            ("answers, in streams and alone", "messages"),
            ("published messages", "published"),
            ("deliveries to subscribers", "deliveries"),
            ("subscriptions with a complete account", "subscriptions accounted for"),
            ("faults, with stalls and cuts of links", "faults"),
            ("worlds with a check of memory", "memory checks"),
            ("worlds with TLS", "worlds with TLS"),
        ] {
            row(what, &|totals| grouped(totals.counts.get(count).copied().unwrap_or_default()));
        }
        table
    }

    /// Returns the rows of the table of other totals.
    pub(crate) fn table(&self) -> String {
        let mut table = String::from("| what | total |\n|---|---:|\n");
        let mut row = |what: &str, total: String| _ = writeln!(table, "| {what} | {total} |");
        let inputs = self.fuzzing.values().map(|target| target.inputs).sum::<u64>();
        // Without a target, the sum of floats is -0.
        let fuzzed = 0.0 + self.fuzzing.values().map(|target| target.cpu_hours).sum::<f64>();
        row("fuzz inputs", grouped(inputs));
        row("CPU hours of fuzzing", format!("{fuzzed:.2}"));
        row("fuzz inputs per CPU hour", grouped(inputs as f64 / fuzzed.max(f64::MIN_POSITIVE)));
        row("hours of soak", format!("{:.2}", self.soak.hours));
        row("CPU hours of soak, with its build", format!("{:.2}", self.soak.cpu_hours));
        row("acts of its users, each with up to 60 calls or messages", grouped(self.soak.acts));
        row("largest growth of resident memory, in KiB", grouped(self.soak.growth_kib_max));
        row("failures found", grouped(self.failures.len() as u64));
        table
    }

    /// Returns the rows of the table of fuzz targets.
    pub(crate) fn fuzz_table(&self) -> String {
        let head = "| target | inputs | edges | features | inputs since the last new edge | plateau |";
        let mut table = format!("{head}\n|---|---:|---:|---:|---:|---|\n");
        for (name, totals) in &self.fuzzing {
            let [inputs, edges, features] = [totals.inputs, totals.edges, totals.features].map(grouped);
            let (since, plateau) =
                (grouped(totals.inputs_since_growth()), if totals.is_plateau() { "yes" } else { "no" });
            _ = writeln!(table, "| `{name}` | {inputs} | {edges} | {features} | {since} | {plateau} |");
        }
        table
    }
}

impl SimulationTotals {
    /// Adds a world.
    pub(crate) fn add_world(&mut self, report: &WorldReport) {
        self.worlds += 1;
        self.simulated_hours += report.seconds / 3600.0;
        self.cpu_hours += report.cpu_seconds / 3600.0;
        for (what, count) in &report.counts {
            *self.counts.entry(what.clone()).or_default() += count;
        }
    }
}

impl SoakTotals {
    /// Adds a run.
    pub(crate) fn add(&mut self, run: &Self) {
        self.runs += run.runs;
        self.hours += run.hours;
        self.cpu_hours += run.cpu_hours;
        self.acts += run.acts;
        self.growth_kib_max = self.growth_kib_max.max(run.growth_kib_max);
    }
}

impl FuzzTotals {
    /// Adds a run.
    pub(crate) fn add(&mut self, run: &Self) {
        // A corpus that grew elsewhere, or more code, has more edges from the start.
        if run.grew_at > 0 || run.edges > self.edges {
            self.grew_at = self.inputs + run.grew_at;
        }
        self.inputs += run.inputs;
        self.cpu_hours += run.cpu_hours;
        // A crash while the corpus is read comes before the first count.
        if run.edges > 0 {
            (self.edges, self.features) = (run.edges, run.features);
        }
    }

    fn inputs_since_growth(&self) -> u64 {
        self.inputs.saturating_sub(self.grew_at)
    }

    /// Returns `true` if the last half of the inputs has found no new edge.
    fn is_plateau(&self) -> bool {
        self.inputs_since_growth() >= self.inputs / 2
    }
}

/// Writes a whole number with commas between groups of three digits.
fn grouped(number: impl Display) -> String {
    let digits = format!("{number:.0}");
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
        for _ in 0..3 {
            let counts = [("calls".to_owned(), 500)].into();
            let report =
                WorldReport { seed: 1, seconds: 3.6e6, cpu_seconds: 1.0, counts, violations: Vec::new(), digest: 0 };
            CampaignTotals::update(&path, |totals| totals.simulations(WorldSize::Long).add_world(&report))
                .expect("the file");
        }
        let table = CampaignTotals::read(&path).expect("totals").simulation_table();
        assert!(table.contains("| simulated worlds | 0 | 3 |"), "{table}");
        assert!(table.contains("| simulated hours, with load and faults | 0 | 3,000 |"), "{table}");
        assert!(table.contains("| calls | 0 | 1,500 |"), "{table}");
        fs::remove_dir_all(folder).expect("the folder goes");
    }

    #[test]
    fn runs_at_the_same_time_lose_nothing() {
        let folder = std::env::temp_dir().join(format!("frpc-campaign-shared-{}", std::process::id()));
        fs::create_dir_all(&folder).expect("a folder for the test");
        let path = folder.join("totals.json");
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    for _ in 0..50 {
                        CampaignTotals::update(&path, |totals| totals.soak.runs += 1).expect("the file");
                    }
                });
            }
        });
        assert_eq!(CampaignTotals::read(&path).expect("totals").soak.runs, 200);
        fs::remove_dir_all(folder).expect("the folder goes");
    }

    #[test]
    fn a_plateau_is_half_of_the_inputs_without_a_new_edge() {
        let mut totals = FuzzTotals::default();
        totals.add(&FuzzTotals { inputs: 100, grew_at: 60, edges: 10, features: 20, cpu_hours: 1.0 });
        assert!(!totals.is_plateau());
        totals.add(&FuzzTotals { inputs: 20, edges: 10, features: 21, ..FuzzTotals::default() });
        assert!(totals.is_plateau(), "60 of 120");
        totals.add(&FuzzTotals { inputs: 50, grew_at: 1, edges: 11, features: 22, ..FuzzTotals::default() });
        assert_eq!(totals.inputs_since_growth(), 49);
        assert!(!totals.is_plateau());
        let table = CampaignTotals { fuzzing: [("http".to_owned(), totals)].into(), ..Default::default() }.fuzz_table();
        assert!(table.ends_with("| `http` | 170 | 11 | 22 | 49 | no |\n"), "{table}");
    }
}
