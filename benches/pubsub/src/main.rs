//! Compares brokers under the same load, in interleaved rounds of separate processes, and prints Markdown tables.
//!
//! `pubsub_report [--rounds N] [--seconds S] [--brokers A,B] [--row A,B]`
//!
//! A publisher keeps a limited number of messages in flight, so that every broker delivers all of them; the slowest
//! subscriber sets the pace. Missing brokers are left out, and the command that installs them is printed.

mod broker;
mod load;
mod wire;

use std::{error::Error, time::Duration};

use ::load::{Arguments, process};
use broker::Broker;
use load::{Flood, Pace, Paced, Shape};
use wire::Wire;

const ROWS: [(&str, Shape); 8] = [
    ("32B-1", Shape { subscribers: 1, ..SMALL }),
    ("32B-10", SMALL),
    ("32B-100", Shape { subscribers: 100, ..SMALL }),
    ("32B-1000", Shape { subscribers: 1000, ..SMALL }),
    ("4KiB-10", Shape { payload: 4096, ..SMALL }),
    ("100-subjects-10", Shape { subjects: 100, ..SMALL }),
    ("32B-10-idle-10k", Shape { idle: 10_000, ..SMALL }),
    ("32B-10-idle-100k", Shape { idle: 100_000, ..SMALL }),
];

const PACED: [(&str, Pace); 4] = [
    ("paced-10", SLOW),
    ("paced-100", Pace { shape: Shape { subscribers: 100, ..SMALL }, ..SLOW }),
    ("20k-1KiB-9", FAST),
    ("20k-1KiB-9-and-1-stopped", Pace { stopped: 1, ..FAST }),
];

const SLOW: Pace = Pace { shape: SMALL, pause: Duration::from_millis(2), burst: 1, stopped: 0 };
const FAST: Pace = Pace {
    shape: Shape { subscribers: 9, payload: 1024, ..SMALL },
    pause: Duration::from_millis(1),
    burst: 20,
    stopped: 0,
};

const SMALL: Shape = Shape { subjects: 1, subscribers: 10, payload: 32, idle: 0 };

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = Arguments::from_env();
    let rounds: usize = arguments.opt_value_from_str("--rounds")?.unwrap_or(3);
    let seconds = Duration::from_secs_f64(arguments.opt_value_from_str("--seconds")?.unwrap_or(1.0));
    let chosen: Option<String> = arguments.opt_value_from_str("--brokers")?;
    let rows: Option<String> = arguments.opt_value_from_str("--row")?;
    if let Some(unknown) = arguments.finish().first() {
        return Err(format!("unexpected {}", unknown.to_string_lossy()).into());
    }
    process::raise_open_files_limit()?;
    let is_in = |list: &Option<String>, name: &str| match list {
        Some(list) => list.split(',').any(|chosen| chosen == name),
        // A hundred thousand consecutive subscriptions take too long for a default run.
        None => name != "32B-10-idle-100k",
    };
    let mut brokers = Vec::new();
    for broker in Broker::ALL.iter().filter(|broker| chosen.is_none() || is_in(&chosen, broker.name)) {
        match broker.start() {
            Ok(_) => brokers.push(broker),
            Err(error) => println!("Without {}: {error}.\n", broker.name),
        }
    }
    println!(
        "Medians of {rounds} interleaved rounds of {seconds:?}. CPU is the broker's, in seconds per million deliveries.\n"
    );
    println!("| load | broker | M deliveries/s | CPU | MiB |\n|---|---|--:|--:|--:|");
    for (name, shape) in ROWS.into_iter().filter(|(name, _)| is_in(&rows, name)) {
        let mut results: Vec<_> = brokers.iter().map(|_| Vec::new()).collect();
        for _ in 0..rounds {
            for (broker, results) in brokers.iter().zip(&mut results) {
                results.push(load::flood(broker, shape, seconds).await);
            }
        }
        for (broker, results) in brokers.iter().zip(results) {
            print_flood(name, broker, results);
        }
    }
    println!("\n| load | broker | k deliveries/s | p50 µs | p99 µs | MiB |\n|---|---|--:|--:|--:|--:|");
    for (name, pace) in PACED.into_iter().filter(|(name, _)| is_in(&rows, name)) {
        let mut results: Vec<_> = brokers.iter().map(|_| Vec::new()).collect();
        for _ in 0..rounds {
            for (broker, results) in brokers.iter().zip(&mut results) {
                // The floor waits for every subscriber, so a stopped one would block it.
                if broker.wire == Wire::Floor && pace.stopped > 0 {
                    continue;
                }
                results.push(load::pace(broker, pace, seconds).await);
            }
        }
        for (broker, results) in brokers.iter().zip(results).filter(|(_, results)| !results.is_empty()) {
            print_paced(name, broker, results);
        }
    }
    Ok(())
}

fn print_flood(name: &str, broker: &Broker, results: Vec<std::io::Result<Flood>>) {
    match results.into_iter().collect::<Result<Vec<_>, _>>() {
        Ok(samples) => {
            let of = |metric: fn(&Flood) -> f64| median(samples.iter().map(metric).collect());
            let (rate, cpu, memory) = (of(|flood| flood.rate), of(|flood| flood.cpu), of(|flood| flood.memory));
            println!("| {name} | {} | {rate:.2} | {cpu:.3} | {memory:.1} |", broker.name);
        }
        Err(error) => println!("| {name} | {} | failed: {error} | | |", broker.name),
    }
}

fn print_paced(name: &str, broker: &Broker, results: Vec<std::io::Result<Paced>>) {
    match results.into_iter().collect::<Result<Vec<_>, _>>() {
        Ok(samples) => {
            let of = |metric: fn(&Paced) -> f64| median(samples.iter().map(metric).collect());
            let (rate, p50, p99, memory) =
                (of(|paced| paced.rate), of(|paced| paced.p50), of(|paced| paced.p99), of(|paced| paced.memory));
            println!("| {name} | {} | {rate:.1} | {p50:.0} | {p99:.0} | {memory:.1} |", broker.name);
        }
        Err(error) => println!("| {name} | {} | failed: {error} | | | |", broker.name),
    }
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or(f64::NAN)
}
