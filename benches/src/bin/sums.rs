//! Compares servers that add two numbers, in the format of the table on UCall's page: `sums [--seconds S]`.

use std::error::Error;
use std::io;
use std::time::Duration;

use benches::{Contender, Contest, SumWire};
use load::{Args, Arguments, Field, Report, process};

fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = Arguments::from_env();
    let seconds = arguments.opt_value_from_str("--seconds")?.unwrap_or(2.0);
    if let Some(unknown) = arguments.finish().first() {
        return Err(format!("unexpected {unknown:?}").into());
    }
    let seconds = Duration::try_from_secs_f64(seconds)?;
    process::raise_open_files_limit()?;
    println!("| setup | connections | server | latency with 1 client | calls/s with 32 clients |");
    println!("|---|---|---|--:|--:|");
    for Setup { name, language, contender, wire } in SETUPS {
        let connections = if wire == SumWire::TcpReset { "one per call" } else { "reused" };
        let latency = match measure(contender, wire, 1, seconds) {
            Ok(report) => format!("{:.0} µs", report.p50_us),
            Err(error) => failure(&error),
        };
        let rate = match measure(contender, wire, 32, seconds) {
            Ok(report) => format!("{:.0}", report.rps),
            Err(error) => failure(&error),
        };
        println!("| {name} | {connections} | {language} | {latency} | {rate} |");
    }
    Ok(())
}

struct Setup {
    name: &'static str,
    language: &'static str,
    contender: &'static str,
    wire: SumWire,
}

const fn setup(name: &'static str, language: &'static str, contender: &'static str, wire: SumWire) -> Setup {
    Setup { name, language, contender, wire }
}

const SETUPS: [Setup; 17] = [
    setup("FastAPI, REST", "Python", "fastapi", SumWire::Rest),
    setup("FastAPI, WebSocket", "Python", "fastapi", SumWire::RestWebSocket),
    setup("gRPC, an echo", "Python", "grpc-python", SumWire::Http),
    setup("gRPC with tonic, an echo", "Rust", "tonic", SumWire::Http),
    setup("UCall on POSIX, JSON-RPC over TCP", "Python", "ucall-posix", SumWire::TcpReset),
    setup("UCall on io_uring, JSON-RPC over TCP", "Python", "ucall-uring", SumWire::Tcp),
    setup("UCall on io_uring, JSON-RPC over HTTP", "Python", "ucall-uring", SumWire::Http),
    setup("UCall on io_uring, JSON-RPC over HTTP in batches of ten", "Python", "ucall-uring", SumWire::HttpBatch),
    setup("jsonrpsee, JSON-RPC over HTTP", "Rust", "jsonrpsee", SumWire::Http),
    setup("jsonrpsee, JSON-RPC over HTTP in batches of ten", "Rust", "jsonrpsee", SumWire::HttpBatch),
    setup("jsonrpsee, JSON-RPC over WebSocket", "Rust", "jsonrpsee", SumWire::WebSocket),
    setup("frpc, JSON-RPC over TCP", "Rust", "frpc-json", SumWire::TcpReset),
    setup("frpc, JSON-RPC over TCP", "Rust", "frpc-json", SumWire::Tcp),
    setup("frpc on io_uring, JSON-RPC over TCP", "Rust", "frpc-json-uring", SumWire::Tcp),
    setup("frpc, JSON-RPC over HTTP", "Rust", "frpc-json", SumWire::Http),
    setup("frpc, JSON-RPC over HTTP in batches of ten", "Rust", "frpc-json", SumWire::HttpBatch),
    setup("frpc, JSON-RPC over WebSocket", "Rust", "frpc-json", SumWire::WebSocket),
];

/// Loads a server for a while. Fails with the first failed call.
fn measure(contender: &str, wire: SumWire, clients: usize, seconds: Duration) -> io::Result<Report> {
    let contender = Contender::ALL.iter().find(|other| other.name == contender);
    let entrant = contender.and_then(|contender| contender.entrant(Contest::Sums(wire)));
    let entrant = entrant.ok_or_else(|| io::Error::other("it takes no part"))?;
    entrant.check()?;
    let server = entrant.start_server(Duration::ZERO, None)?;
    let args = Args {
        addr: server.addr,
        size: 32,
        field: Field::String,
        streaming: false,
        joined: false,
        clients,
        concurrent: 1,
        seconds,
        warmup: seconds / 4,
    };
    let report = entrant.run_client(&args, None)?;
    match report.first_error {
        Some(error) => Err(io::Error::other(error)),
        None => Ok(report),
    }
}

/// Returns the start of an error, as one table cell.
fn failure(error: &io::Error) -> String {
    let text: String = error.to_string().chars().filter(|character| *character != '|').take(60).collect();
    format!("failed: {text}")
}
