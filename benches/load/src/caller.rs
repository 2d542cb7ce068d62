use std::error::Error;
use std::fmt::Display;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use futures_util::stream::{FuturesUnordered, StreamExt as _};
use tokio::{runtime::Handle, time::timeout_at};

use crate::{Args, Contents, Recorder, Report, Window, process};

/// A client for calls. Its clones share a connection.
pub trait Caller: Clone + Send + Sized + 'static {
    /// The content sent and received.
    type Message: Clone + From<String> + PartialEq + Send + 'static;
    /// The error of a failed call.
    type Error: Display + Send;

    /// The number of calls between two clock readings. Reading the clock takes as long as a small message of a stream.
    const CALLS_PER_SAMPLE: u32 = 1;

    /// Returns the runtime to call from.
    fn runtime(&self) -> Handle {
        Handle::current()
    }

    /// Sends a message and returns the answer.
    fn call(&mut self, message: &Self::Message) -> impl Future<Output = Result<Self::Message, Self::Error>> + Send;
}

/// Opens connections and makes calls on each of them until the window ends.
pub async fn run<C: Caller>(
    args: &Args,
    connect: impl AsyncFn(SocketAddr) -> Result<C, Box<dyn Error>>,
) -> Result<Report, Box<dyn Error>> {
    let connecting = Instant::now();
    let mut clients = Vec::with_capacity(args.clients);
    for _ in 0..args.clients {
        clients.push(connect(args.addr).await?);
    }
    let connected = connecting.elapsed();

    let contents = Contents::new(args.size);
    let calls_per_sample = if args.size < LARGE { C::CALLS_PER_SAMPLE } else { 1 };
    let window = Window::after(args.warmup, args.seconds);
    let cpu = process::watch_cpu(window);
    let mut recorders = Vec::with_capacity(clients.len());
    let mut tasks = Vec::with_capacity(clients.len() * usize::from(args.concurrent));
    for (number, client) in clients.iter().enumerate() {
        let contents = contents.starting_at(number * usize::from(args.concurrent));
        let recorder = Arc::new(Mutex::new(Recorder::new(window)));
        let joined = FuturesUnordered::new();
        for id in 0..args.concurrent {
            let message = contents.text(id).to_owned().into();
            let recorder = recorder.clone();
            let task = Task { client: client.clone(), message, calls_per_sample, window, recorder };
            match args.joined {
                true => joined.push(task.run()),
                false => tasks.push(client.runtime().spawn(task.run())),
            }
        }
        if args.joined {
            tasks.push(client.runtime().spawn(joined.collect()));
        }
        recorders.push(recorder);
    }
    for task in tasks {
        task.await?;
    }
    let client_cpu = cpu.join().expect("the thread only sleeps");
    let recorders = recorders.iter().map(|recorder| recorder.lock().unwrap_or_else(PoisonError::into_inner).clone());
    Ok(Report::new(window, recorders.collect(), connected, client_cpu))
}

/// A task that makes calls one after another.
struct Task<C: Caller> {
    client: C,
    message: C::Message,
    calls_per_sample: u32,
    window: Window,
    /// Shared by all tasks of a connection.
    recorder: Arc<Mutex<Recorder>>,
}

impl<C: Caller> Task<C> {
    async fn run(mut self) {
        let deadline = self.window.deadline().into();
        if timeout_at(deadline, self.call_repeatedly()).await.is_err() {
            self.record(|recorder| recorder.give_up(1));
        }
    }

    /// Makes calls until the window ends or a call fails.
    async fn call_repeatedly(&mut self) {
        let mut sent = Instant::now();
        while sent < self.window.end() {
            for _ in 0..self.calls_per_sample {
                match self.client.call(&self.message).await {
                    Ok(answer) if answer == self.message => {}
                    Ok(_) => return self.record(|recorder| recorder.fail("a wrong answer")),
                    Err(error) => return self.record(|recorder| recorder.fail(error)),
                }
            }
            let answered = Instant::now();
            self.record(|recorder| recorder.complete(sent, answered, self.calls_per_sample));
            sent = answered;
        }
    }

    fn record(&self, what: impl FnOnce(&mut Recorder)) {
        what(&mut self.recorder.lock().unwrap_or_else(PoisonError::into_inner));
    }
}

/// The message length at which reading the clock no longer matters.
const LARGE: usize = 4 << 10;

#[cfg(test)]
mod tests {
    use std::convert::Infallible;
    use std::future;
    use std::time::Duration;

    use tokio::runtime::Builder;

    use super::*;
    use crate::Field;

    #[derive(Clone)]
    struct Forgetful;

    impl Caller for Forgetful {
        type Message = String;
        type Error = Infallible;

        async fn call(&mut self, _: &String) -> Result<String, Infallible> {
            Ok(String::new())
        }
    }

    #[derive(Clone)]
    struct Silent;

    impl Caller for Silent {
        type Message = String;
        type Error = Infallible;

        async fn call(&mut self, _: &String) -> Result<String, Infallible> {
            future::pending().await
        }
    }

    fn report<C: Caller>(caller: C) -> Report {
        let args = Args {
            addr: ([127, 0, 0, 1], 0).into(),
            size: 32,
            field: Field::String,
            streaming: false,
            joined: false,
            clients: 2,
            concurrent: 3,
            seconds: Duration::from_millis(10),
            warmup: Duration::ZERO,
        };
        let runtime = Builder::new_current_thread().enable_time().start_paused(true).build().unwrap();
        runtime.block_on(run(&args, async |_| Ok(caller.clone()))).unwrap()
    }

    #[test]
    fn wrong_answers_fail_their_task() {
        let report = report(Forgetful);
        assert_eq!((report.rpcs_total, report.errors, report.stuck), (0, 6, 0));
        assert_eq!(report.first_error.unwrap(), "a wrong answer");
    }

    #[test]
    fn unanswered_calls_are_reported_as_stuck() {
        let report = report(Silent);
        assert_eq!((report.errors, report.stuck, report.starved), (0, 6, 2));
    }
}
