//! Runs simulations, fuzz targets and the soak test for a given time, and continues their totals.
//!
//! docs/notes/campaign.md explains its use, and has the totals.

mod deterministic;
mod fuzzing;
mod memory;
mod page;
mod regressions;
mod seeding;
mod simulation;
mod soaking;
mod totals;
mod worlds;

use std::{
    env,
    ops::Range,
    path::PathBuf,
    process::ExitCode,
    sync::{Mutex, PoisonError},
    time::{Duration, Instant},
};

use self::{
    fuzzing::Fuzzers,
    simulation::{Defect, WorldSize},
    totals::{CampaignTotals, Failure, SimulationTotals},
    worlds::WorldRun,
};

const USAGE: &str = "\
frpc-campaign run MINUTES [PART...]                 runs parts, or all, and continues campaign/totals.json; the parts are
                                                    simulations, long-simulations, fuzzing and soak
frpc-campaign simulate SEEDS [SIZE] [DEFECT]        runs the worlds of seeds such as 0..100, without totals
frpc-campaign seed SEED [SIZE] [DEFECT]             runs one world in this process and prints its report
frpc-campaign table                                 writes the totals into the tables of docs/notes/campaign.md
frpc-campaign seeds [TARGET]                        renews fuzz/seeds from the local corpora, within limits

SIZE is short, full (the default) or long.

FRPC_CAMPAIGN_JOBS sets the number of worlds at the same time, FRPC_CAMPAIGN_TRACE=1 prints the events of a world,
FRPC_CAMPAIGN_FUZZERS names a folder with built fuzz targets.";

fn main() -> ExitCode {
    let arguments: Vec<String> = env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let result = match &*arguments {
        ["seed", seed, rest @ ..] => run_seed(seed, rest),
        ["simulate", seeds, rest @ ..] => simulate(seeds, rest),
        ["run", minutes, parts @ ..] => run(minutes, parts),
        ["table"] => write_tables(),
        ["seeds", targets @ ..] => renew_seeds(targets),
        _ => Err(USAGE.to_owned()),
    };
    match result {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(why) => {
            eprintln!("{why}");
            ExitCode::from(2)
        }
    }
}

/// Reads the size and the defect of worlds.
fn world_options(rest: &[&str]) -> Result<(WorldSize, Option<Defect>), String> {
    let (mut size, mut defect) = (WorldSize::Full, None);
    for word in rest {
        match *word {
            "short" => size = WorldSize::Short,
            "full" => size = WorldSize::Full,
            "long" => size = WorldSize::Long,
            name => {
                let known = || Defect::ALL.map(|(name, _)| name).join(", ");
                defect = Some(Defect::named(name).ok_or_else(|| format!("no defect is named {name}: {}", known()))?);
            }
        }
    }
    Ok((size, defect))
}

fn run_seed(seed: &str, rest: &[&str]) -> Result<bool, String> {
    let seed = seed.parse().map_err(|_| format!("{seed} is no seed\n\n{USAGE}"))?;
    let (size, defect) = world_options(rest)?;
    let report = simulation::run(seed, size, defect);
    println!("{}", serde_json::to_string_pretty(&report).map_err(|error| error.to_string())?);
    Ok(true)
}

fn simulate(seeds: &str, rest: &[&str]) -> Result<bool, String> {
    let seeds = parse_seeds(seeds).ok_or_else(|| format!("{seeds} are no seeds, such as 0..100\n\n{USAGE}"))?;
    let (size, defect) = world_options(rest)?;
    let name = Defect::ALL.iter().find(|(_, known)| Some(*known) == defect).map(|(name, _)| (*name).to_owned());
    let run = WorldRun { seeds, size, defect: name, jobs: jobs(), until: None };
    let (totals, failed) = (Mutex::new(SimulationTotals::default()), Mutex::new(0));
    run.run(|world| {
        let mut totals = totals.lock().unwrap_or_else(PoisonError::into_inner);
        totals.add_world(&world);
        if !world.violations.is_empty() {
            *failed.lock().unwrap_or_else(PoisonError::into_inner) += 1;
            println!("seed {} {}: {}", world.seed, size.name(), world.violations.join("\n    "));
        }
    });
    let (totals, failed) =
        (totals.into_inner().unwrap_or_default(), failed.into_inner().unwrap_or_else(PoisonError::into_inner));
    println!("{}", serde_json::to_string_pretty(&totals).map_err(|error| error.to_string())?);
    println!("{failed} of {} worlds have failed", totals.worlds);
    Ok(failed == 0)
}

fn parse_seeds(text: &str) -> Option<Range<u64>> {
    let (start, end) = text.split_once("..")?;
    Some(start.parse().ok()?..end.parse().ok()?)
}

fn jobs() -> usize {
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    env::var("FRPC_CAMPAIGN_JOBS").ok().and_then(|jobs| jobs.parse().ok()).unwrap_or(cores)
}

/// Runs parts of the campaign, each for the same share of the time.
fn run(minutes: &str, parts: &[&str]) -> Result<bool, String> {
    let minutes: f64 = minutes.parse().map_err(|_| format!("{minutes} is no number of minutes\n\n{USAGE}"))?;
    let parts = if parts.is_empty() { &["simulations", "long-simulations", "fuzzing", "soak"] } else { parts };
    let time = Duration::from_secs_f64(minutes * 60.0) / u32::try_from(parts.len()).unwrap_or(1);
    let mut failures = 0;
    for part in parts {
        failures += match *part {
            "simulations" => simulate_for(WorldSize::Full, time)?,
            "long-simulations" => simulate_for(WorldSize::Long, time)?,
            "fuzzing" => fuzz_for(time)?,
            "soak" => soak_for(time)?,
            other => return Err(format!("no part is named {other}\n\n{USAGE}")),
        }
    }
    let totals = read_totals()?;
    println!("\n{}\n{}{failures} new failures", totals.simulation_table(), totals.table());
    Ok(failures == 0)
}

fn simulate_for(size: WorldSize, time: Duration) -> Result<usize, String> {
    let before = read_totals()?.simulations(size).clone();
    let seeds = before.next_seed..u64::MAX;
    let until = Some(Instant::now() + time);
    let run = WorldRun { seeds: seeds.clone(), size, defect: None, jobs: jobs(), until };
    let shared = Mutex::new((before.clone(), Instant::now(), 0));
    let error = Mutex::new(None);
    let next = run.run(|world| {
        let (totals, saved, failures) = &mut *shared.lock().unwrap_or_else(PoisonError::into_inner);
        totals.add_world(&world);
        if let [first, ..] = &*world.violations {
            *failures += 1;
            let (seed, size) = (world.seed, size.name());
            let (line, repeat) = (format!("world {size} {seed}"), format!("frpc-campaign seed {seed} {size}"));
            let added = regressions::add(&campaign_folder(), &line, first).map_err(|error| error.to_string());
            let added = added.and_then(|()| add_failure(Failure { repeat, what: first.clone(), fix: String::new() }));
            if let Err(why) = added {
                *error.lock().unwrap_or_else(PoisonError::into_inner) = Some(why);
            }
        }
        if saved.elapsed() > SAVE_INTERVAL {
            // Worlds of other threads may be running, and are repeated after an interruption.
            totals.next_seed = totals.next_seed.max(world.seed.saturating_sub(jobs() as u64));
            if let Err(why) = update(|all| *all.simulations(size) = totals.clone()) {
                *error.lock().unwrap_or_else(PoisonError::into_inner) = Some(why);
            }
            *saved = Instant::now();
        }
    });
    let (mut totals, _, failures) = shared.into_inner().unwrap_or_else(PoisonError::into_inner);
    totals.next_seed = next;
    let (worlds, hours) = (totals.worlds - before.worlds, totals.simulated_hours - before.simulated_hours);
    update(|all| *all.simulations(size) = totals)?;
    println!(
        "{} simulations: {worlds} worlds more, with {hours:.1} simulated hours, seeds {}..{next}",
        size.name(),
        seeds.start
    );
    error.into_inner().unwrap_or_default().map_or(Ok(failures), Err)
}

fn fuzz_for(time: Duration) -> Result<usize, String> {
    let fuzzers = match Fuzzers::build(&root()) {
        Ok(fuzzers) => fuzzers,
        Err(why) => {
            println!("fuzzing is skipped: {why}");
            return Ok(0);
        }
    };
    let targets = fuzzers.targets().map_err(|error| error.to_string())?;
    let each = time / u32::try_from(targets.len().max(1)).unwrap_or(1);
    let mut failures = 0;
    for target in targets {
        let (run, failure) = fuzzing::fuzz(&fuzzers, &target, each).map_err(|error| error.to_string())?;
        println!("fuzzing {target}: {} inputs more, {} edges, {} features", run.inputs, run.edges, run.features);
        update(|all| all.fuzzing.entry(target).or_default().add(&run))?;
        if let Some(failure) = failure {
            failures += 1;
            add_failure(failure)?;
        }
    }
    Ok(failures)
}

fn soak_for(time: Duration) -> Result<usize, String> {
    let (run, failure) = soaking::soak(&root(), time).map_err(|error| error.to_string())?;
    update(|all| all.soak.add(&run))?;
    failure.map_or(Ok(0), |failure| add_failure(failure).map(|()| 1))
}

fn add_failure(failure: Failure) -> Result<(), String> {
    println!("NEW FAILURE: {}\n    repeat: {}", failure.what, failure.repeat);
    update(|all| all.failures.push(failure))
}

fn renew_seeds(targets: &[&str]) -> Result<bool, String> {
    let fuzzers = Fuzzers::build(&root())?;
    let targets = match targets {
        [] => fuzzers.targets().map_err(|error| error.to_string())?,
        named => named.iter().map(|target| (*target).to_owned()).collect(),
    };
    for target in targets {
        let renewed = seeding::renew(&fuzzers, &target);
        println!("{target}: {}", renewed.map_err(|error| format!("{target}: {error}"))?);
    }
    Ok(true)
}

fn write_tables() -> Result<bool, String> {
    let (totals, path) = (read_totals()?, root().join("docs/notes/campaign.md"));
    let page = std::fs::read_to_string(&path).map_err(|error| error.to_string())?;
    let page = page::with_tables(&page, &totals).ok_or_else(|| format!("{} has no tables", path.display()))?;
    std::fs::write(&path, page).map_err(|error| error.to_string())?;
    println!("{}\n{}\n{}", totals.simulation_table(), totals.table(), totals.fuzz_table());
    Ok(true)
}

fn read_totals() -> Result<CampaignTotals, String> {
    let path = totals_path();
    CampaignTotals::read(&path).map_err(|error| format!("{}: {error}", path.display()))
}

fn update(change: impl FnOnce(&mut CampaignTotals)) -> Result<(), String> {
    let path = totals_path();
    CampaignTotals::update(&path, change).map_err(|error| format!("{}: {error}", path.display()))
}

fn totals_path() -> PathBuf {
    campaign_folder().join("totals.json")
}

/// Returns the folder of the repository. The campaign runs where it was built.
fn root() -> PathBuf {
    campaign_folder().join("..")
}

fn campaign_folder() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
}

const SAVE_INTERVAL: Duration = Duration::from_secs(10);
