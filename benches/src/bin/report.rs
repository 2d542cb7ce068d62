//! Compares frisbee with the floor, in interleaved rounds of separate processes, and prints a table in markdown.
//!
//! `cargo run --release -p benches --bin report -- [--quick] [--rounds N] [--row NAME]`

use std::error::Error;
use std::fmt::{self, Display, Formatter};
use std::fs;
use std::io::{self, Write};
use std::net::TcpStream;
use std::process::ExitCode;
use std::thread;
use std::time::{Duration, Instant};

use benches::Contender;
use load::{Args, Arguments, Report, process};

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
    let plan = Plan::parse(Arguments::from_env())?;
    CONTENDERS.iter().try_for_each(Contender::check_built)?;
    process::raise_open_files_limit()?;
    print_conditions(&plan)?;
    for workload in WORKLOADS.iter().filter(|workload| plan.includes(workload.name)) {
        let rounds = (0..plan.rounds).map(|_| run_round(workload, &plan)).collect::<io::Result<Vec<_>>>()?;
        print_rows(workload.name, &rounds);
    }
    if plan.includes(IDLE) {
        print_idle_memory()?;
    }
    Ok(())
}

struct Plan {
    rounds: usize,
    warmup: Duration,
    seconds: Duration,
    only: Option<String>,
}

impl Plan {
    fn parse(mut arguments: Arguments) -> Result<Self, Box<dyn Error>> {
        let quick = arguments.contains("--quick");
        let (rounds, warmup, seconds) = if quick { (2, 500, 1000) } else { (3, 1000, 3000) };
        let plan = Self {
            rounds: arguments.opt_value_from_str("--rounds")?.unwrap_or(rounds).max(1),
            warmup: Duration::from_millis(warmup),
            seconds: Duration::from_millis(seconds),
            only: arguments.opt_value_from_str("--row")?,
        };
        if let Some(unknown) = arguments.finish().first() {
            return Err(format!("unexpected {unknown:?}").into());
        }
        let names: Vec<_> = WORKLOADS.iter().map(|workload| workload.name).chain([IDLE]).collect();
        if names.iter().any(|name| plan.includes(name)) {
            Ok(plan)
        } else {
            Err(format!("--row is one of {}", names.join(", ")).into())
        }
    }

    fn includes(&self, name: &str) -> bool {
        self.only.as_ref().is_none_or(|only| only == name)
    }
}

struct Workload {
    name: &'static str,
    size: usize,
    clients: usize,
    concurrent: u16,
}

/// What one run of one contender showed.
struct Sample {
    report: Report,
    /// Over the whole run, warm-up too.
    server_cpu: Duration,
    server_memory_kib: u64,
}

impl Sample {
    fn server_cpu_per_million(&self) -> f64 {
        self.server_cpu.as_secs_f64() * 1e6 / self.report.rpcs_total as f64
    }

    fn client_cpu_per_million(&self) -> f64 {
        self.report.client_cpu_s * 1e6 / self.report.rpcs as f64
    }
}

fn run_round(workload: &Workload, plan: &Plan) -> io::Result<[Sample; 2]> {
    let [floor, frisbee] = &CONTENDERS;
    Ok([measure(floor, workload, plan)?, measure(frisbee, workload, plan)?])
}

fn measure(contender: &Contender, workload: &Workload, plan: &Plan) -> io::Result<Sample> {
    let server = contender.start_server()?;
    let &Workload { size, clients, concurrent, .. } = workload;
    let args = Args { addr: server.addr, size, clients, concurrent, seconds: plan.seconds, warmup: plan.warmup };

    let cpu_before = process::cpu_time(server.pid())?;
    let report = contender.run_client(&args)?;
    let server_cpu = process::cpu_time(server.pid())? - cpu_before;
    if let Some(error) = &report.first_error {
        eprintln!("{} {}: {error}", workload.name, contender.name);
    }
    Ok(Sample { report, server_cpu, server_memory_kib: process::memory_kib(server.pid(), "VmHWM")? })
}

/// The server's resident memory for each connection that only pings.
fn idle_connection_len(contender: &Contender) -> io::Result<u64> {
    let server = contender.start_server()?;
    let before = process::memory_kib(server.pid(), "VmRSS")?;
    let streams = (0..IDLE_CLIENTS).map(|_| TcpStream::connect(server.addr)).collect::<io::Result<Vec<_>>>()?;
    let end = Instant::now() + IDLE_TIME;
    while Instant::now() < end {
        streams.iter().try_for_each(|mut stream| stream.write_all(&PING))?;
        thread::sleep(PING_INTERVAL);
    }
    let grown = process::memory_kib(server.pid(), "VmRSS")?.saturating_sub(before);
    // The server goes first, or it would see each connection fail.
    drop(server);
    Ok(grown * 1024 / IDLE_CLIENTS)
}

fn print_conditions(plan: &Plan) -> io::Result<()> {
    let read = |path| fs::read_to_string(path).map(|text| text.trim().to_owned());
    let kernel = read("/proc/sys/kernel/osrelease")?;
    let congestion = read("/proc/sys/net/ipv4/tcp_congestion_control")?;
    let load_average = read("/proc/loadavg")?;
    let cores = thread::available_parallelism()?;
    let Plan { rounds, warmup, seconds, .. } = plan;
    println!("Linux {kernel}, {cores} cores, {congestion}; load average at the start {load_average}.");
    println!("Median (least–most) of {rounds} interleaved rounds of {warmup:?} warm-up and {seconds:?}.");
    println!("A ratio is taken within each round. CPU is seconds per million calls.\n");
    println!(
        "| workload | contender | k calls/s | p50 µs | p99 µs | server CPU | client CPU | server MiB | bad calls |"
    );
    println!("|---|---|---|---|---|---|---|---|---|");
    Ok(())
}

fn print_rows(workload: &str, rounds: &[[Sample; 2]]) {
    for (number, contender) in CONTENDERS.iter().enumerate() {
        let spread = |metric: fn(&Sample) -> f64| Spread::of(rounds.iter().map(|round| metric(&round[number])));
        println!(
            "| {workload} | {} | {:.1} | {:.0} | {:.0} | {:.2} | {:.2} | {:.1} | {} |",
            contender.name,
            spread(|sample| sample.report.rps / 1e3),
            spread(|sample| sample.report.p50_us),
            spread(|sample| sample.report.p99_us),
            spread(Sample::server_cpu_per_million),
            spread(Sample::client_cpu_per_million),
            spread(|sample| sample.server_memory_kib as f64 / 1024.0),
            bad_calls(rounds.iter().map(|round| &round[number].report)),
        );
    }
    let ratio =
        |metric: fn(&Sample) -> f64| Spread::of(rounds.iter().map(|[floor, frisbee]| metric(frisbee) / metric(floor)));
    let (rps, cpu) = (ratio(|sample| sample.report.rps), ratio(Sample::server_cpu_per_million));
    println!("| {workload} | frisbee / floor | {rps:.2} | | | {cpu:.2} | | | |");
}

fn bad_calls<'a>(reports: impl Iterator<Item = &'a Report> + Clone) -> String {
    let sum = |count: fn(&Report) -> u64| reports.clone().map(count).sum::<u64>();
    match (sum(|report| report.errors), sum(|report| report.stuck), sum(|report| report.starved)) {
        (0, 0, 0) => "none".to_owned(),
        (errors, stuck, starved) => format!("{errors} errors, {stuck} stuck, {starved} starved"),
    }
}

fn print_idle_memory() -> io::Result<()> {
    println!("\n| {IDLE_CLIENTS} idle connections | server bytes per connection |");
    println!("|---|---|");
    for contender in &CONTENDERS {
        println!("| {} | {} |", contender.name, idle_connection_len(contender)?);
    }
    Ok(())
}

/// The middle and the ends of what the rounds gave.
struct Spread {
    sorted: Vec<f64>,
}

impl Spread {
    fn of(values: impl Iterator<Item = f64>) -> Self {
        let mut sorted: Vec<_> = values.collect();
        sorted.sort_by(f64::total_cmp);
        Self { sorted }
    }

    fn median(&self) -> f64 {
        let len = self.sorted.len();
        (self.sorted[(len - 1) / 2] + self.sorted[len / 2]) / 2.0
    }
}

impl Display for Spread {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let precision = f.precision().unwrap_or(1);
        let (least, most) = (self.sorted[0], self.sorted[self.sorted.len() - 1]);
        write!(f, "{:.precision$} ({least:.precision$}–{most:.precision$})", self.median())
    }
}

const CONTENDERS: [Contender; 2] = [Contender::FLOOR, Contender::FRISBEE];

const WORKLOADS: [Workload; 5] = [
    Workload { name: "32B-C32-K1", size: 32, clients: 32, concurrent: 1 },
    Workload { name: "32B-C32-K10", size: 32, clients: 32, concurrent: 10 },
    Workload { name: "32B-C256-K10", size: 32, clients: 256, concurrent: 10 },
    Workload { name: "128KiB-C32-K1", size: 128 << 10, clients: 32, concurrent: 1 },
    Workload { name: "1MiB-C32-K1", size: 1 << 20, clients: 32, concurrent: 1 },
];

const IDLE: &str = "idle";
const IDLE_CLIENTS: u64 = 5000;
const IDLE_TIME: Duration = Duration::from_secs(3);

/// The wire format's PING, often enough to stay connected.
const PING: [u8; 10] = [0x00, 0x0f, 0, 0, 0, 0, 0, 0, 0, 0];
const PING_INTERVAL: Duration = Duration::from_millis(400);
