//! A server out of file descriptors resumes as soon as some are free again. Runs in its own process, because it lowers
//! the process limit.

#![allow(clippy::unwrap_used, reason = "a test that panics has failed")]

use std::{
    fs::File,
    net::SocketAddr,
    os::fd::AsRawFd,
    time::{Duration, Instant},
};

use frisbee::{Config, Engine, HandlerTable, Operation, Packet, Server};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use support::{engines, hear_log};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
    runtime,
    sync::Semaphore,
    time::timeout,
};
use tracing::Level;

/// One permit per warning of a server unable to accept.
static WARNED: Semaphore = Semaphore::const_new(0);

/// Lowers the limit of this process to leave room for one more descriptor. Returns the old limit.
fn leave_one_descriptor() -> Rlimit {
    let before = getrlimit(Resource::Nofile);
    let lowest_free = File::open("/dev/null").unwrap().as_raw_fd();
    let current = Some(u64::try_from(lowest_free).unwrap() + 1);
    setrlimit(Resource::Nofile, Rlimit { current, ..before }).unwrap();
    before
}

/// Returns after the server has answered on this socket.
async fn served(mut socket: TcpStream) -> TcpStream {
    socket.write_all(&[0, 0x0f, 0, 1, 0, 20, 0, 0, 0, 0]).await.unwrap();
    loop {
        let mut header = [0; 10];
        socket.read_exact(&mut header).await.unwrap();
        if header[5] == 20 {
            return socket;
        }
    }
}

async fn check(engine: Engine) {
    const ECHO: Operation = Operation::new(20).unwrap();
    let router = HandlerTable::new().on(ECHO, async |packet: Packet| packet);
    let patient = Config { silence_max: None, ..Config::default() };
    let server = Server::builder(router).engine(engine).config(patient).bind("127.0.0.1:0").await.unwrap();
    let addr: SocketAddr = server.local_addr().socket_addr().unwrap();
    let first = served(TcpStream::connect(addr).await.unwrap()).await;

    let before = leave_one_descriptor();
    WARNED.forget_permits(WARNED.available_permits());
    let since = Instant::now();
    let waiting = TcpStream::connect(addr).await.unwrap();
    for failures in 0..6 {
        WARNED.acquire().await.unwrap().forget();
        // The pauses are 5, 10, 20 and so on milliseconds.
        let pauses = Duration::from_millis(5 * ((1 << failures) - 1));
        assert!(pauses <= since.elapsed(), "it does not try again and again");
    }
    assert_eq!(server.metrics().accepted, 1, "the second connection was not accepted");
    let first = served(first).await;

    setrlimit(Resource::Nofile, before).unwrap();
    let second = served(waiting).await;
    let third = served(TcpStream::connect(addr).await.unwrap()).await;
    assert_eq!(server.metrics().accepted, 3);
    drop((first, second, third));
    server.shutdown(Duration::from_secs(10)).await;
}

#[test]
fn accepting_resumes_after_running_out_of_descriptors() {
    hear_log(Level::WARN, |metadata, _| {
        if *metadata.level() == Level::WARN && metadata.target().starts_with("frisbee::server") {
            WARNED.add_permits(1);
        }
    });
    for engine in engines() {
        let runtime = runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
        runtime.block_on(async { timeout(Duration::from_secs(120), check(engine)).await.expect("it ends in time") });
    }
}
