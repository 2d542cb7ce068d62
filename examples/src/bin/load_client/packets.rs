//! The layer without RPC: each reply triggers the next request.

use std::{
    error::Error,
    sync::{Arc, Mutex, PoisonError},
    time::Instant,
};

use bytes::Bytes;
use frisbee::{Client, Config, Connection, Engine, Event, Operation, Outcome, Packet, Router};
use load::{Args, Contents, Recorder, Report, Window, process};
use tokio::{sync::Notify, time::timeout_at};

const ECHO: Operation = Operation::new(20).unwrap();

pub(crate) async fn run(args: &Args, engine: Engine) -> Result<Report, Box<dyn Error>> {
    let connecting = Instant::now();
    let config = Config { outbox_len_max: usize::MAX, ..Config::default() };
    let contents = Contents::new(args.size);
    let mut workers = Vec::with_capacity(args.clients);
    for number in 0..args.clients {
        let contents = contents.starting_at(number * usize::from(args.concurrent));
        let worker = Arc::new(Worker { contents, calls: Mutex::default(), done: Notify::new() });
        let client = Client::new(worker.clone()).config(config.clone()).engine(engine);
        let connection = client.connect(args.addr).await?;
        workers.push((worker, connection));
    }
    let connect = connecting.elapsed();

    let window = Window::after(args.warmup, args.seconds);
    let cpu = process::watch_cpu(window);
    for (worker, connection) in &workers {
        worker.start(connection, args.concurrent, window)?;
    }
    let mut recorders = Vec::with_capacity(workers.len());
    for (worker, _connection) in &workers {
        recorders.push(worker.result(window).await);
    }
    let client_cpu = cpu.join().expect("the thread only sleeps");
    Ok(Report::new(window, recorders, connect, client_cpu))
}

/// The requests of one connection. Each reply triggers the next request.
struct Worker {
    contents: Contents,
    calls: Mutex<Option<Calls>>,
    done: Notify,
}

struct Calls {
    window: Window,
    recorder: Recorder,
    /// The send time of each request by id, or `None` once it is answered.
    in_flight: Vec<Option<Instant>>,
}

impl Worker {
    fn start(&self, connection: &Connection, concurrent: u16, window: Window) -> Result<(), frisbee::TrySendError> {
        let mut calls = self.calls.lock().unwrap_or_else(PoisonError::into_inner);
        let in_flight = vec![Some(Instant::now()); concurrent.into()];
        *calls = Some(Calls { window, recorder: Recorder::new(window), in_flight });
        for id in 0..concurrent {
            connection.try_send(Packet::new(id, ECHO, Bytes::copy_from_slice(self.contents.of(id))))?;
        }
        Ok(())
    }

    /// Waits for the last answers.
    async fn result(&self, window: Window) -> Recorder {
        // Missing answers are counted below.
        let _ = timeout_at(window.deadline().into(), self.done.notified()).await;
        let calls = self.calls.lock().unwrap_or_else(PoisonError::into_inner).take();
        let mut calls = calls.expect("a worker is started once and ends once");
        calls.recorder.give_up(calls.in_flight.iter().flatten().count());
        calls.recorder
    }

    fn answered(&self, packet: Packet) -> Outcome {
        let now = Instant::now();
        let mut calls = self.calls.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(calls) = calls.as_mut() else { return Outcome::Nothing };
        let Some(sent) = calls.in_flight.get_mut(usize::from(packet.id)).and_then(Option::take) else {
            calls.recorder.fail(format!("an answer to id {}, which is not in flight", packet.id));
            return Outcome::Nothing;
        };
        if packet.content != self.contents.of(packet.id) || packet.operation != ECHO {
            calls.recorder.fail(format!("a wrong answer to id {}", packet.id));
        }
        calls.recorder.complete(sent, now, 1);
        if now < calls.window.end() {
            calls.in_flight[usize::from(packet.id)] = Some(now);
            return Outcome::Reply(packet);
        }
        if calls.in_flight.iter().all(Option::is_none) {
            self.done.notify_one();
        }
        Outcome::Nothing
    }
}

impl Router for Worker {
    async fn route(&self, packet: Packet, _: &Connection) -> Outcome {
        self.answered(packet)
    }

    fn event(&self, _: &Connection, event: Event<'_>) {
        let Event::Closed(reason) = event else { return };
        if let Some(calls) = self.calls.lock().unwrap_or_else(PoisonError::into_inner).as_mut() {
            calls.recorder.fail(reason);
        }
        self.done.notify_one();
    }
}
