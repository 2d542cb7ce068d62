use std::io::{self, Write};
use std::net::TcpStream;
use std::thread;
use std::time::{Duration, Instant};

use benches::Contender;
use load::process;
use serde::Serialize;

use crate::progress::Progress;

/// The cost of idle connections.
#[derive(Serialize)]
pub(crate) struct Idle {
    pub(crate) contender: &'static str,
    /// Resident memory of the server, per connection.
    pub(crate) bytes_per_connection: Option<u64>,
    /// The reason for a missing value.
    pub(crate) failure: Option<String>,
}

pub(crate) fn measure(contenders: &[Contender], progress: &mut Progress) -> Vec<Idle> {
    let idle = |contender: &Contender| {
        progress.start(format_args!("idle {}", contender.name));
        let bytes = bytes_per_connection(contender);
        progress.finish();
        let failure = bytes.as_ref().err().map(ToString::to_string);
        Idle { contender: contender.name, bytes_per_connection: bytes.ok(), failure }
    };
    contenders.iter().filter(|contender| contender.idles()).map(idle).collect()
}

fn bytes_per_connection(contender: &Contender) -> io::Result<u64> {
    let server = contender.start_server(Duration::ZERO, None)?;
    let before = process::memory_kib(server.pid(), "VmRSS")?;
    let mut streams = (0..CLIENTS).map(|_| TcpStream::connect(server.addr)).collect::<io::Result<Vec<_>>>()?;
    streams.iter_mut().try_for_each(|stream| stream.write_all(contender.greeting))?;
    let end = Instant::now() + DURATION;
    while Instant::now() < end {
        streams.iter_mut().try_for_each(|stream| stream.write_all(contender.heartbeat))?;
        thread::sleep(HEARTBEAT_INTERVAL);
    }
    let grown = process::memory_kib(server.pid(), "VmRSS")?.saturating_sub(before);
    // The server must end first. It would otherwise report every connection as failed.
    drop(server);
    Ok(grown * 1024 / CLIENTS)
}

pub(crate) const CLIENTS: u64 = 10_000;
const DURATION: Duration = Duration::from_secs(3);

/// Frequent enough to stay connected.
const HEARTBEAT_INTERVAL: Duration = Duration::from_millis(400);
