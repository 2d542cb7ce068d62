//! `frpc bench`: load tests.

use std::time::Duration;

use serde_json::json;
use tokio::time::Instant;

use crate::{
    arguments::CallArguments,
    connect::{addresses, normal, parse_time},
    failure::{CommandError, Result},
    invocation::{CallOptions, PreparedCall},
    load::{
        AddressLoad, LoadPlan,
        display::{self, ProgressLine},
        record::{LoadResults, per_second},
    },
    terminal::{OutputStyle, print_json, print_line, printable_name},
};

/// Load-tests a method and shows its throughput and latencies.
///
/// With a second address (--against), both are tested in alternation and their ratio is shown.
#[derive(clap::Args, Clone, Debug)]
#[command(after_help = EXAMPLES)]
pub(crate) struct BenchCommand {
    #[command(flatten)]
    options: CallOptions,
    /// The number of connections.
    #[arg(long, short = 'c', default_value_t = 8, help_heading = "Load", value_parser = clap::value_parser!(u32).range(1..))]
    connections: u32,
    /// The number of concurrent calls on each connection.
    #[arg(long, short = 'K', default_value_t = 1, help_heading = "Load", value_parser = clap::value_parser!(u32).range(1..))]
    calls: u32,
    /// The total duration, including all rounds.
    #[arg(long, short = 'z', default_value = "5s", value_name = "TIME", value_parser = parse_time, help_heading = "Load")]
    duration: Duration,
    /// The total number of calls, instead of a duration.
    #[arg(long, short = 'n', value_name = "CALLS", conflicts_with = "duration", help_heading = "Load")]
    total: Option<u64>,
    /// The number of calls per second. Latencies are measured from the due time of each call, so that they include
    /// delays caused by a stalled server.
    #[arg(long, short = 'r', value_name = "CALLS", value_parser = parse_rate, help_heading = "Load")]
    rate: Option<f64>,
    /// The duration of the uncounted warm-up.
    #[arg(long, default_value = "500ms", value_name = "TIME", value_parser = parse_time, help_heading = "Load")]
    warmup: Duration,
    /// A second address for comparison.
    #[arg(long, value_name = "ADDRESS", help_heading = "Load")]
    against: Option<String>,
    /// The number of rounds for alternating between the two addresses.
    #[arg(long, default_value_t = 5, help_heading = "Load", value_parser = clap::value_parser!(u32).range(1..))]
    rounds: u32,
}

const EXAMPLES: &str = addresses!(
    "Examples:
  frpc bench tcp://localhost:7300 Say text=hello -c 32 -z 10s
  frpc bench tcp://localhost:7300 Say text=hello --against grpc://localhost:7300
  frpc bench http://localhost:7300 Say text=hello -r 5000 --json

Exit codes: as for `frpc call`; if calls failed, by their most frequent code."
);

/// An address and its results.
struct BenchTarget {
    address: String,
    load: AddressLoad,
    record: LoadResults,
    elapsed: Duration,
    /// The calls per second of each round.
    rates: Vec<f64>,
}

impl BenchCommand {
    pub(crate) async fn run(&self, is_json: bool) -> Result<()> {
        let (address, method, arguments) = self.options.target()?;
        let mut sides = vec![self.side(address, method, &arguments, is_json).await?];
        if let Some(address) = &self.against {
            sides.push(self.side(address, method, &arguments, is_json).await?);
        }
        let rounds = if sides.len() > 1 { self.rounds } else { 1 };
        let live = ProgressLine::new(!is_json);
        for side in &mut sides {
            let warmup = LoadPlan { total: None, time: self.warmup, ..self.plan(1) };
            if !self.warmup.is_zero() {
                side.load.start(warmup).stop_after(self.warmup).await?;
            }
        }
        for _ in 0..rounds {
            for side in &mut sides {
                side.round(self.plan(rounds), &live).await?;
            }
        }
        live.clear();
        match is_json {
            true => print_json(self.report(&sides))?,
            false => self.print(&sides)?,
        }
        let mut all = LoadResults::default();
        sides.iter().for_each(|side| all.merge(&side.record));
        match all.failed().first() {
            Some((code, _)) => Err(CommandError::Load(*code)),
            None => Ok(()),
        }
    }

    fn plan(&self, rounds: u32) -> LoadPlan {
        LoadPlan {
            calls: self.calls as usize,
            total: self.total.map(|total| total.div_ceil(rounds.into())),
            time: self.duration / rounds,
            rate: self.rate,
        }
    }

    async fn side(&self, address: &str, method: &str, arguments: &CallArguments, is_json: bool) -> Result<BenchTarget> {
        let first = PreparedCall::prepare(&self.options, address, method, arguments, is_json).await?;
        let messages = first.messages(&self.options, arguments)?;
        let mut invocations = vec![first];
        for _ in 1..self.connections {
            let next = invocations[0].on_another_connection(&self.options, address).await?;
            invocations.push(next);
        }
        let load = AddressLoad { invocations, messages };
        load.try_once().await?;
        let address = normal(address);
        Ok(BenchTarget { address, load, record: LoadResults::default(), elapsed: Duration::ZERO, rates: Vec::new() })
    }

    fn print(&self, sides: &[BenchTarget]) -> Result<()> {
        let style = OutputStyle::of_stdout();
        for side in sides {
            let Some(invocation) = side.load.invocations.first() else { continue };
            print_line(format_args!(
                "{} {} · {} · {} connections × {} calls",
                style.bold(&side.address),
                printable_name(&invocation.method.to_string()),
                invocation.request.format,
                self.connections,
                self.calls
            ))?;
            print_line(display::summary(&side.record, side.elapsed, style))?;
        }
        if let [one, other] = sides {
            let (median, least, most) = ratio(one, other);
            print_line(format_args!(
                "{} {} of {} in calls/s · {least:.2} to {most:.2} in {} rounds",
                style.bold(&format!("{median:.2}×")),
                one.address,
                other.address,
                self.rounds
            ))?;
            let latency = |part| factor(one.record.quantile(part), other.record.quantile(part));
            print_line(format_args!("  latency p50 {:.2}× · p99 {:.2}×", latency(0.5), latency(0.99)))?;
        }
        Ok(())
    }

    fn report(&self, sides: &[BenchTarget]) -> serde_json::Value {
        let loads: Vec<_> = sides
            .iter()
            .map(|side| {
                let mut load = side.record.to_json(side.elapsed);
                load["address"] = json!(side.address);
                load["rates"] = json!(side.rates);
                load
            })
            .collect();
        let mut report = json!({
            "method": sides.first().and_then(|side| side.load.invocations.first()).map(|one| one.method.path()),
            "connections": self.connections, "calls_per_connection": self.calls, "loads": loads,
        });
        if let [one, other] = sides {
            let (median, least, most) = ratio(one, other);
            report["ratio"] = json!({ "median": median, "min": least, "max": most });
        }
        report
    }
}

impl BenchTarget {
    async fn round(&mut self, plan: LoadPlan, live: &ProgressLine) -> Result<()> {
        let mut running = self.load.start(plan);
        let start = running.start;
        let end = start + plan.time;
        while !running.is_over() && (plan.total.is_some() || Instant::now() < end) {
            tokio::time::sleep(REFRESH.min(end.saturating_duration_since(Instant::now()).max(REFRESH_MIN))).await;
            let record = running.record();
            let done = match plan.total {
                #[allow(clippy::cast_precision_loss, reason = "it is shown as a bar")]
                Some(total) => (record.calls() + record.failures()) as f64 / total.max(1) as f64,
                None => start.elapsed().as_secs_f64() / plan.time.as_secs_f64().max(1e-9),
            };
            live.show(&self.address, &record, done, start.elapsed());
        }
        let record = running.stop().await?;
        let elapsed = start.elapsed();
        self.rates.push(per_second(record.calls(), elapsed));
        self.record.merge(&record);
        self.elapsed += elapsed;
        Ok(())
    }
}

/// Returns the median, minimum and maximum of the ratios of all rounds.
fn ratio(one: &BenchTarget, other: &BenchTarget) -> (f64, f64, f64) {
    let pairs = one.rates.iter().zip(&other.rates);
    let mut ratios: Vec<f64> = pairs.filter(|(_, other)| **other > 0.0).map(|(one, other)| one / other).collect();
    ratios.sort_by(f64::total_cmp);
    match (ratios.first(), ratios.last()) {
        (Some(least), Some(most)) => (ratios[ratios.len() / 2], *least, *most),
        _ => (f64::NAN, f64::NAN, f64::NAN),
    }
}

fn factor(one: Duration, other: Duration) -> f64 {
    one.as_secs_f64() / other.as_secs_f64().max(1e-9)
}

fn parse_rate(text: &str) -> std::result::Result<f64, String> {
    let rate: f64 = text.parse().map_err(|_| format!("{text:?} is not a number"))?;
    if rate.is_finite() && rate > 0.0 { Ok(rate) } else { Err("the rate must be more than 0".to_owned()) }
}

const REFRESH: Duration = Duration::from_millis(200);
const REFRESH_MIN: Duration = Duration::from_millis(1);
