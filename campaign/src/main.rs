//! Runs simulations, fuzz targets and the soak test for a given time, and continues their totals.
//!
//! docs/notes/campaign.md explains its use, and has the totals.

mod deterministic;
mod fuzzing;
mod memory;
mod regressions;
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
    simulation::{Defect, WorldSize},
    totals::{CampaignTotals, Failure},
    worlds::WorldRun,
};

const USAGE: &str = "\
frpc-campaign run MINUTES [simulations] [fuzzing] [soak]   runs these parts, or all, and continues campaign/totals.json
frpc-campaign simulate SEEDS [short|full] [DEFECT]         runs the worlds of seeds such as 0..100, without totals
frpc-campaign seed SEED [short|full] [DEFECT]              runs one world in this process and prints its report
frpc-campaign table                                        prints the totals as a table, also into docs/notes/campaign.md

FRPC_CAMPAIGN_JOBS sets the number of worlds at the same time, FRPC_CAMPAIGN_TRACE=1 prints the events of a world.";

fn main() -> ExitCode {
    let arguments: Vec<String> = env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let result = match &*arguments {
        ["seed", seed, rest @ ..] => run_seed(seed, rest),
        ["simulate", seeds, rest @ ..] => simulate(seeds, rest),
        ["run", minutes, parts @ ..] => run(minutes, parts),
        ["table"] => print_table(),
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
    let (totals, failed) = (Mutex::new(CampaignTotals::default()), Mutex::new(0));
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
    println!("{}", serde_json::to_string_pretty(&totals.simulation).map_err(|error| error.to_string())?);
    println!("{failed} of {} worlds have failed", totals.simulation.worlds);
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
    let parts = if parts.is_empty() { &["simulations", "fuzzing", "soak"] } else { parts };
    let time = Duration::from_secs_f64(minutes * 60.0) / u32::try_from(parts.len()).unwrap_or(1);
    let path = campaign_folder().join("totals.json");
    let mut totals = CampaignTotals::read(&path).map_err(|error| format!("{}: {error}", path.display()))?;
    let known_failures = totals.failures.len();
    for part in parts {
        match *part {
            "simulations" => simulate_for(time, &mut totals, &path)?,
            "fuzzing" => fuzz_for(time, &mut totals, &path)?,
            "soak" => {
                let failure = soaking::soak(&root(), time, &mut totals.soak).map_err(|error| error.to_string())?;
                failure.into_iter().for_each(|failure| add_failure(&mut totals, failure));
                save(&totals, &path)?;
            }
            other => return Err(format!("no part is named {other}\n\n{USAGE}")),
        }
    }
    let new = totals.failures.len() - known_failures;
    println!("\n{}{new} new failures", totals.table());
    Ok(new == 0)
}

fn simulate_for(time: Duration, totals: &mut CampaignTotals, path: &std::path::Path) -> Result<(), String> {
    let seeds = totals.simulation.next_seed..u64::MAX;
    let until = Some(Instant::now() + time);
    let run = WorldRun { seeds: seeds.clone(), size: WorldSize::Full, defect: None, jobs: jobs(), until };
    let before = totals.simulation.clone();
    let (shared, error) = (Mutex::new((&mut *totals, Instant::now())), Mutex::new(None));
    let next = run.run(|world| {
        let (totals, saved) = &mut *shared.lock().unwrap_or_else(PoisonError::into_inner);
        totals.add_world(&world);
        if let [first, ..] = &*world.violations {
            let line = format!("world full {}", world.seed);
            if let Err(why) = regressions::add(&campaign_folder(), &line, first) {
                *error.lock().unwrap_or_else(PoisonError::into_inner) = Some(why.to_string());
            }
            let repeat = format!("frpc-campaign seed {} full", world.seed);
            add_failure(totals, Failure { repeat, what: first.clone(), fix: String::new() });
        }
        if saved.elapsed() > SAVE_INTERVAL {
            // Worlds of other threads may be running, and are repeated after an interruption.
            totals.simulation.next_seed = totals.simulation.next_seed.max(world.seed.saturating_sub(jobs() as u64));
            *error.lock().unwrap_or_else(PoisonError::into_inner) = save(totals, path).err();
            *saved = Instant::now();
        }
    });
    totals.simulation.next_seed = next;
    save(totals, path)?;
    let (worlds, hours) =
        (totals.simulation.worlds - before.worlds, totals.simulation.simulated_hours - before.simulated_hours);
    println!("simulations: {worlds} worlds more, with {hours:.1} simulated hours, seeds {}..{next}", seeds.start);
    error.into_inner().unwrap_or_default().map_or(Ok(()), Err)
}

fn fuzz_for(time: Duration, totals: &mut CampaignTotals, path: &std::path::Path) -> Result<(), String> {
    let targets = match fuzzing::targets(&root()) {
        Ok(targets) => targets,
        Err(why) => {
            println!("fuzzing is skipped: {why}");
            return Ok(());
        }
    };
    let each = time / u32::try_from(targets.len().max(1)).unwrap_or(1);
    for target in targets {
        let inputs = totals.fuzzing.get(&target).map_or(0, |totals| totals.inputs);
        let failure = fuzzing::fuzz(&root(), &target, each, &mut totals.fuzzing).map_err(|error| error.to_string())?;
        let after = &totals.fuzzing[&target];
        println!("fuzzing {target}: {} inputs more, {} edges", after.inputs - inputs, after.coverage);
        failure.into_iter().for_each(|failure| add_failure(totals, failure));
        save(totals, path)?;
    }
    Ok(())
}

fn add_failure(totals: &mut CampaignTotals, failure: Failure) {
    println!("NEW FAILURE: {}\n    repeat: {}", failure.what, failure.repeat);
    totals.failures.push(failure);
}

fn save(totals: &CampaignTotals, path: &std::path::Path) -> Result<(), String> {
    totals.write(path).map_err(|error| format!("{}: {error}", path.display()))
}

/// Prints the table, and writes it into the page of the campaign.
fn print_table() -> Result<bool, String> {
    let totals = CampaignTotals::read(&campaign_folder().join("totals.json")).map_err(|error| error.to_string())?;
    let (table, page) = (totals.table(), root().join("docs/notes/campaign.md"));
    let text = std::fs::read_to_string(&page).map_err(|error| error.to_string())?;
    let parts = text.split_once(BEGIN).and_then(|(before, rest)| Some((before, rest.split_once(END)?.1)));
    let (before, after) = parts.ok_or_else(|| format!("{} has no place for the table", page.display()))?;
    std::fs::write(&page, format!("{before}{BEGIN}\n{table}{END}{after}")).map_err(|error| error.to_string())?;
    println!("{table}");
    Ok(true)
}

/// Returns the folder of the repository. The campaign runs where it was built.
fn root() -> PathBuf {
    campaign_folder().join("..")
}

fn campaign_folder() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
}

const BEGIN: &str = "<!-- totals: generated -->";
const END: &str = "<!-- totals: end -->";
const SAVE_INTERVAL: Duration = Duration::from_secs(10);
