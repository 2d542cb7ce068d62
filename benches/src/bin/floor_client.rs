//! Keeps K packets in flight on each connection without any RPC logic, and verifies each answer.

use std::error::Error;
use std::io;
use std::time::Instant;

use benches::{CONTENT_LEN_MAX, Frame, Inbox};
use load::{Args, Arguments, Contents, Recorder, Report, Window, process};
use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;
use tokio::runtime::Builder;
use tokio::time::timeout_at;

fn main() -> Result<(), Box<dyn Error>> {
    let args = Args::parse(Arguments::from_env())?;
    check(&args)?;
    process::raise_open_files_limit()?;
    let report = Builder::new_multi_thread().enable_all().build()?.block_on(run(&args))?;
    println!("{}", serde_json::to_string(&report)?);
    Ok(())
}

fn check(args: &Args) -> Result<(), String> {
    if args.streaming {
        return Err("the floor has no streams".to_owned());
    }
    if args.size > CONTENT_LEN_MAX as usize {
        return Err(format!("--size is at most {CONTENT_LEN_MAX}"));
    }
    // Neither floor reads while it writes. More data than the sockets can buffer would block both forever.
    if args.concurrent > 1 && args.size * usize::from(args.concurrent) > IN_FLIGHT_LEN_MAX {
        return Err(format!("--size times --concurrent is at most {IN_FLIGHT_LEN_MAX}"));
    }
    Ok(())
}

async fn run(args: &Args) -> Result<Report, Box<dyn Error>> {
    let connecting = Instant::now();
    let mut streams = Vec::with_capacity(args.clients);
    for _ in 0..args.clients {
        let stream = TcpStream::connect(args.addr).await?;
        stream.set_nodelay(true)?;
        streams.push(stream);
    }
    let connect = connecting.elapsed();

    let contents = Contents::new(args.size);
    let window = Window::after(args.warmup, args.seconds);
    let cpu = process::watch_cpu(window);
    let start = |(number, stream)| {
        let contents = contents.starting_at(number * usize::from(args.concurrent));
        tokio::spawn(Connection::new(stream, contents, args.concurrent, window).run())
    };
    let connections: Vec<_> = streams.into_iter().enumerate().map(start).collect();
    let mut recorders = Vec::with_capacity(connections.len());
    for connection in connections {
        recorders.push(connection.await?);
    }
    let client_cpu = cpu.join().expect("the thread only sleeps");
    Ok(Report::new(window, recorders, connect, client_cpu))
}

struct Connection {
    stream: TcpStream,
    inbox: Inbox,
    contents: Contents,
    /// The send time of each request in flight, by id.
    in_flight: Vec<Option<Instant>>,
    window: Window,
    recorder: Recorder,
}

impl Connection {
    fn new(stream: TcpStream, contents: Contents, concurrent: u16, window: Window) -> Self {
        let in_flight = vec![None; concurrent.into()];
        Self { stream, inbox: Inbox::default(), contents, in_flight, window, recorder: Recorder::new(window) }
    }

    async fn run(mut self) -> Recorder {
        let deadline = self.window.deadline().into();
        if let Ok(Err(error)) = timeout_at(deadline, self.exchange()).await {
            self.recorder.fail(error);
        }
        self.recorder.give_up(self.in_flight.iter().flatten().count());
        self.recorder
    }

    async fn exchange(&mut self) -> io::Result<()> {
        self.send_first_requests().await?;
        while self.in_flight.iter().any(Option::is_some) {
            if !self.inbox.fill(&mut self.stream).await? {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
            let now = Instant::now();
            let answers_len = self.take_answers(now)?;
            if now < self.window.end() {
                self.in_flight.iter_mut().for_each(|sent| *sent = sent.or(Some(now)));
                // A verified answer has the same bytes as the next request with its id.
                self.stream.write_all(&self.inbox.bytes()[..answers_len]).await?;
            }
            self.inbox.consume(answers_len);
        }
        Ok(())
    }

    async fn send_first_requests(&mut self) -> io::Result<()> {
        let mut requests = Vec::new();
        for (id, sent) in (0..).zip(&mut self.in_flight) {
            Frame { id, operation: OPERATION, content: self.contents.of(id) }.encode(&mut requests);
            *sent = Some(Instant::now());
        }
        self.stream.write_all(&requests).await
    }

    /// Verifies and records each complete answer, and returns their total length.
    fn take_answers(&mut self, answered: Instant) -> io::Result<usize> {
        let mut rest = self.inbox.bytes();
        while let Some((frame, tail)) = Frame::split_from(rest)? {
            let in_flight = self.in_flight.get_mut(usize::from(frame.id));
            let Some(sent) = in_flight.and_then(Option::take) else {
                return Err(io::Error::other(format!("answer to id {}, which is not in flight", frame.id)));
            };
            if frame.operation != OPERATION || frame.content != self.contents.of(frame.id) {
                return Err(io::Error::other(format!("wrong answer to id {}", frame.id)));
            }
            self.recorder.complete(sent, answered, 1);
            rest = tail;
        }
        Ok(self.inbox.bytes().len() - rest.len())
    }
}

const OPERATION: u16 = 20;
const IN_FLIGHT_LEN_MAX: usize = 2 << 20;
