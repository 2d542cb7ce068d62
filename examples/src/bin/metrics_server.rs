//! Collects samples and shows them as a table. Clients push them as packets, on the same connections as their calls.
//!
//! Usage: `metrics_server [ADDRESS]`, until Ctrl-C.

use std::{
    collections::BTreeMap,
    env,
    error::Error,
    fmt,
    io::{IsTerminal, stdout},
    sync::{Arc, Mutex},
    time::Duration,
};

use frpc::{Address, Connection, HandlerTable, Operation, Packet, Request, Response, Server, Status, Unimplemented};
use hello_world::{
    HelloReply, HelloRequest,
    greeter_server::{Greeter, GreeterServer},
};
use tokio::time::interval;

/// Generated from `proto/helloworld.proto`.
pub mod hello_world {
    frpc::include_proto!("helloworld");
}

/// A one-way packet with any number of samples. Each sample has 8 bytes for its value, one byte for the length of its
/// name, and the name.
const SAMPLES: Operation = Operation::new(1000).unwrap();

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let address = env::args().nth(1).unwrap_or("tcp://127.0.0.1:50051".into());
    let collector = Arc::new(Collector::default());
    let packets = HandlerTable::over(Unimplemented).on_with_connection(SAMPLES, {
        let collector = collector.clone();
        move |packet: Packet, connection: Connection| {
            collector.take(&packet.content.into_bytes(), connection.peer_addr());
            async {}
        }
    });
    let server = Server::builder().add_service(GreeterServer::new(Host)).router(packets).bind(address).await?;
    println!("listening on {}", server.local_addr());

    let mut ticks = interval(Duration::from_secs(1));
    loop {
        tokio::select! {
            result = tokio::signal::ctrl_c() => break result?,
            // On a terminal, redraw the table in place.
            _ = ticks.tick() => if stdout().is_terminal() {
                print!("\x1b[2J\x1b[H{collector}");
            }
        }
    }
    server.shutdown(Duration::from_secs(5)).await;
    print!("{collector}");
    Ok(())
}

struct Host;

impl Greeter for Host {
    async fn say_hello(&self, request: Request<HelloRequest>) -> Result<Response<HelloReply>, Status> {
        Ok(HelloReply { message: format!("Hello {}!", request.into_inner().name) }.into())
    }
}

/// All samples, by client and name.
#[derive(Default)]
struct Collector(Mutex<BTreeMap<(String, String), Series>>);

/// The samples with one name.
#[derive(Default)]
struct Series {
    count: u64,
    sum: f64,
    last: f64,
    max: f64,
}

impl Collector {
    /// Records the samples of a packet within the limit on names. The rest of a malformed packet is ignored.
    fn take(&self, mut bytes: &[u8], from: &Address) {
        let mut all = self.0.lock().expect("never poisoned");
        while let Some((value, name)) = next(&mut bytes) {
            let key = (from.to_string(), name.to_owned());
            if all.len() < SERIES_MAX || all.contains_key(&key) {
                let series = all.entry(key).or_default();
                series.count += 1;
                series.sum += value;
                series.last = value;
                series.max = series.max.max(value);
            }
        }
    }
}

/// Splits off the first sample.
fn next<'a>(bytes: &mut &'a [u8]) -> Option<(f64, &'a str)> {
    let (value, rest) = bytes.split_first_chunk()?;
    let (len, rest) = rest.split_first()?;
    let (name, rest) = rest.split_at_checked(usize::from(*len))?;
    *bytes = rest;
    Some((f64::from_be_bytes(*value), str::from_utf8(name).ok()?))
}

impl fmt::Display for Collector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{:<28} {:<12} {:>8} {:>10} {:>10} {:>10}", "client", "name", "samples", "last", "mean", "max")?;
        for ((client, name), Series { count, sum, last, max }) in &*self.0.lock().expect("never poisoned") {
            let mean = sum / *count as f64;
            writeln!(f, "{client:<28} {name:<12} {count:>8} {last:>10.1} {mean:>10.1} {max:>10.1}")?;
        }
        Ok(())
    }
}

/// The maximum number of names of all clients together. Samples with further names are ignored.
const SERIES_MAX: usize = 1000;
