//! Compares contenders in interleaved rounds of separate processes, and prints Markdown tables.
//!
//! `report --help` lists the options.

mod chart;
mod charts;
mod help;
mod idle;
mod machine;
mod merge;
mod noise;
mod plan;
mod progress;
mod published;
mod row;
mod rows;
mod sample;
mod scaling;
mod spread;
mod summary;
mod syscalls;
mod table;
mod workload;

use std::error::Error;
use std::fs::File;
use std::path::PathBuf;
use std::process::ExitCode;

use benches::{Contender, Contest};
use load::{Arguments, process};
use serde::Serialize;

use crate::idle::Idle;
use crate::machine::Machine;
use crate::plan::Plan;
use crate::progress::Progress;
use crate::row::Row;
use crate::workload::subjects;

fn main() -> ExitCode {
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::FAILURE
        }
    }
}

fn run() -> Result<(), Box<dyn Error>> {
    let mut arguments = Arguments::from_env();
    if arguments.contains(["-h", "--help"]) {
        print!("{}", help::HELP);
        return Ok(());
    }
    if arguments.contains("--list") {
        print!("{}", help::list());
        return Ok(());
    }
    for (option, print) in [("--merge", merge::print as fn(&[PathBuf]) -> _), ("--publish", published::write)] {
        if arguments.contains(option) {
            let files: Vec<_> = arguments.finish().into_iter().map(PathBuf::from).collect();
            return print(&files);
        }
    }
    let mut plan = Plan::parse(arguments)?;
    process::raise_open_files_limit()?;
    let machine = Machine::now()?;
    println!("{machine}\n");
    let contenders = take_part(&plan.contenders)?;
    if plan.syscalls
        && let Err(error) = syscalls::check()
    {
        println!("Without system calls: {error}.\n");
        plan.syscalls = false;
    }
    let takes_part = |subject: &&str| contenders.iter().any(|contender| contender.name == *subject);
    let subjects_of = |contest| -> Vec<_> { subjects(contest).iter().copied().filter(takes_part).collect() };
    let subjects = subjects_of(Contest::Stacks);
    let idle_runs = if plan.idle { contenders.iter().filter(|contender| contender.idles()).count() } else { 0 };
    let mut progress = Progress::new(plan.runs(&contenders) + idle_runs);

    table::print_legend(&plan, &subjects);
    let mut rows: Vec<Row<'_>> = Vec::new();
    for workload in &plan.workloads {
        let row = Row::measure(workload, &contenders, &plan, &mut progress);
        progress.clear();
        let of_contest = subjects_of(workload.contest);
        if rows.last().is_none_or(|last| last.workload.contest != workload.contest) {
            table::print_head(workload.contest, &plan, &of_contest);
        }
        table::print_row(&row, &plan, &of_contest);
        rows.push(row);
    }
    summary::print(&rows, &subjects);
    scaling::print(&rows);
    let idle = if plan.idle { idle::measure(&contenders, &mut progress) } else { Vec::new() };
    progress.clear();
    table::print_idle(&idle);

    let noise = rows.iter().map(Row::noise).fold(0.0, f64::max);
    println!("\n{}", noise::verdict(noise));
    if let Some(directory) = &plan.charts {
        charts::write(directory, &rows)?;
    }
    if let Some(path) = &plan.json {
        serde_json::to_writer_pretty(File::create(path)?, &Results { machine, plan: &plan, noise, rows, idle })?;
    }
    Ok(())
}

/// Removes contenders that cannot be measured, and prints the reason.
fn take_part(contenders: &[Contender]) -> Result<Vec<Contender>, &'static str> {
    let works = |contender: &Contender| match contender.check() {
        Ok(()) => true,
        Err(error) => {
            println!("Without {}: {error}.\n", contender.name);
            false
        }
    };
    let contenders: Vec<_> = contenders.iter().copied().filter(works).collect();
    if contenders.is_empty() { Err("nobody takes part") } else { Ok(contenders) }
}

#[derive(Serialize)]
struct Results<'a> {
    machine: Machine,
    plan: &'a Plan,
    /// The largest share of the machine used by other work.
    noise: f64,
    rows: Vec<Row<'a>>,
    idle: Vec<Idle>,
}
