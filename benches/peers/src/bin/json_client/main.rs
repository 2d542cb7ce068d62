//! Keeps calls of JSON-RPC's `sum` in flight, verifies every answer, and prints one line of JSON.
//!
//! All servers are measured with this client, which works directly on sockets, so that the servers are comparable.
//!
//! `json_client ADDR --wire tcp|tcp-reset|http|http-batch|websocket|rest|rest-websocket --clients C --concurrent K
//! --seconds S --warmup W`
//!
//! Over TCP and WebSocket, K calls are in flight on each connection. Otherwise, each client has K connections with one
//! request in flight each; a request of `http-batch` contains ten calls. `tcp-reset` opens a new connection for every
//! call. `rest` calls the same function as an ordinary resource, without JSON-RPC.

mod wire;

use std::error::Error;
use std::io;
use std::net::SocketAddr;
use std::time::Instant;

use load::{Args, Arguments, Recorder, Report, Window, process};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::timeout_at;

use crate::wire::{Call, Wire};

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = Arguments::from_env();
    let wire = arguments.value_from_fn("--wire", Wire::parse)?;
    let args = Args::parse(arguments)?;
    process::raise_open_files_limit()?;
    println!("{}", serde_json::to_string(&run(&args, wire).await?)?);
    Ok(())
}

async fn run(args: &Args, wire: Wire) -> Result<Report, Box<dyn Error>> {
    let concurrent = usize::from(args.concurrent);
    let (connections, in_flight) = match wire {
        Wire::Tcp | Wire::WebSocket => (args.clients, concurrent),
        _ => (args.clients * concurrent, wire.calls_per_request()),
    };
    let connecting = Instant::now();
    let mut open = Vec::with_capacity(connections);
    for number in 0..connections {
        open.push(Connection::open(args.addr, wire, number, in_flight).await?);
    }
    let connect = connecting.elapsed();

    let window = Window::after(args.warmup, args.seconds);
    let cpu = process::watch_cpu(window);
    let running: Vec<_> = open.into_iter().map(|connection| tokio::spawn(connection.run(window))).collect();
    let mut recorders = Vec::with_capacity(running.len());
    for connection in running {
        recorders.push(connection.await?);
    }
    let client_cpu = cpu.join().expect("the thread only sleeps");
    Ok(Report::new(window, recorders, connect, client_cpu))
}

struct Connection {
    addr: SocketAddr,
    wire: Wire,
    socket: TcpStream,
    inbox: Vec<u8>,
    filled: usize,
    /// The calls of this connection by id, each with its send time until it is answered.
    calls: Vec<(Call, Option<Instant>)>,
}

impl Connection {
    async fn open(addr: SocketAddr, wire: Wire, number: usize, in_flight: usize) -> io::Result<Self> {
        let mut socket = connect(addr).await?;
        let mut inbox = vec![0; READ_LEN];
        if let Some(handshake) = wire.handshake(addr) {
            socket.write_all(handshake.as_bytes()).await?;
            // The server sends nothing after its answer until the first request.
            let mut filled = 0;
            while !inbox[..filled].ends_with(b"\r\n\r\n") {
                filled += read(&mut socket, &mut inbox, filled).await?;
            }
            if !inbox.starts_with(b"HTTP/1.1 101") {
                return Err(io::Error::other(String::from_utf8_lossy(&inbox[..filled]).into_owned()));
            }
        }
        let calls = (0..in_flight).map(|id| (Call { id, a: 100 * number, b: id }, None)).collect();
        Ok(Self { addr, wire, socket, inbox, filled: 0, calls })
    }

    async fn run(mut self, window: Window) -> Recorder {
        let mut recorder = Recorder::new(window);
        let deadline = window.deadline().into();
        if let Ok(Err(error)) = timeout_at(deadline, self.exchange(window, &mut recorder)).await {
            recorder.fail(error);
        }
        recorder.give_up(self.calls.iter().filter(|(_, sent)| sent.is_some()).count());
        recorder
    }

    async fn exchange(&mut self, window: Window, recorder: &mut Recorder) -> io::Result<()> {
        let mut out = Vec::new();
        let mut answered: Vec<usize> = (0..self.calls.len()).collect();
        let mut now = Instant::now();
        loop {
            if now < window.end() {
                out.clear();
                for id in &answered {
                    let (call, sent) = &mut self.calls[*id];
                    call.a += 1;
                    *sent = Some(now);
                }
                let calls: Vec<_> = answered.iter().map(|id| self.calls[*id].0).collect();
                self.wire.encode(&calls, &mut out);
                self.socket.write_all(&out).await?;
            }
            if self.calls.iter().all(|(_, sent)| sent.is_none()) {
                return Ok(());
            }
            answered.clear();
            while answered.is_empty() {
                self.filled += read(&mut self.socket, &mut self.inbox, self.filled).await?;
                now = Instant::now();
                self.take_answers(now, recorder, &mut answered)?;
            }
            if self.wire == Wire::TcpReset && now < window.end() {
                self.socket.set_zero_linger()?;
                // The time to connect counts as part of the next call.
                self.socket = connect(self.addr).await?;
                self.filled = 0;
            }
        }
    }

    /// Verifies and records each complete answer.
    fn take_answers(&mut self, now: Instant, recorder: &mut Recorder, answered: &mut Vec<usize>) -> io::Result<()> {
        let mut taken = 0;
        while let Some((answers, len)) = self.wire.decode(&self.inbox[taken..self.filled])? {
            for (id, result) in answers {
                let Some((call, sent)) = self.calls.get_mut(id) else {
                    return Err(io::Error::other(format!("answer to id {id}")));
                };
                let Some(sent) = sent.take() else {
                    return Err(io::Error::other(format!("second answer to id {id}")));
                };
                if result != call.a + call.b {
                    return Err(io::Error::other(format!("{} + {} is not {result}", call.a, call.b)));
                }
                recorder.complete(sent, now, 1);
                answered.push(id);
            }
            taken += len;
        }
        self.inbox.copy_within(taken..self.filled, 0);
        self.filled -= taken;
        Ok(())
    }
}

async fn connect(addr: SocketAddr) -> io::Result<TcpStream> {
    let socket = TcpStream::connect(addr).await?;
    socket.set_nodelay(true)?;
    Ok(socket)
}

/// Reads once into the free part of the buffer.
async fn read(socket: &mut TcpStream, inbox: &mut Vec<u8>, filled: usize) -> io::Result<usize> {
    if filled == inbox.len() {
        inbox.resize(2 * filled, 0);
    }
    match socket.read(&mut inbox[filled..]).await? {
        0 => Err(io::ErrorKind::UnexpectedEof.into()),
        len => Ok(len),
    }
}

const READ_LEN: usize = 16 << 10;
