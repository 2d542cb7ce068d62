//! An overloaded server in an open loop: calls are made at a fixed rate, no matter how earlier ones end.
//!
//! `cargo run --release --bin overload -- 5000 12000 64000` sets the rates in calls per second. Without arguments, it
//! is a short run. A scheme before the rates, such as `grpc`, selects the wire.

use std::{error::Error, sync::Arc, time::Duration};

use frpc::{CallError, Channel, Config, Request, Response, Server, Status};
use frpc_http::Http;
use hello_world::{
    HelloReply, HelloRequest,
    greeter_client::GreeterClient,
    greeter_server::{Greeter, GreeterServer},
};
use tokio::{
    sync::Mutex,
    task::JoinSet,
    time::{Instant, interval, sleep},
};

/// Generated from `proto/helloworld.proto`.
pub mod hello_world {
    frpc::include_proto!("helloworld");
}

/// Needs a fixed time for each greeting.
struct Host;

impl Greeter for Host {
    async fn say_hello(&self, request: Request<HelloRequest>) -> Result<Response<HelloReply>, Status> {
        sleep(WORK).await;
        Ok(HelloReply { message: request.into_inner().name }.into())
    }
}

const HANDLERS: u32 = 64;
const WORK: Duration = Duration::from_millis(10);
const DEADLINE: Duration = Duration::from_millis(500);

/// The number of calls by outcome.
#[derive(Default)]
struct Ends {
    in_time: u32,
    refused: u32,
    late: u32,
    unsent: u32,
}

impl Ends {
    fn add(&mut self, answer: Result<Response<HelloReply>, Status>) {
        let end = match answer.as_ref().map_err(Status::call_error) {
            Ok(_) => &mut self.in_time,
            Err(Some(CallError::Refused { .. })) => &mut self.refused,
            Err(Some(CallError::NotSent { .. } | CallError::TooManyCalls { .. })) => &mut self.unsent,
            Err(_) => &mut self.late,
        };
        *end += 1;
    }
}

/// Makes calls at a fixed rate for `duration`, and waits for their outcomes.
async fn load(client: &GreeterClient, rate: u32, duration: Duration) -> Ends {
    let ends = Arc::new(Mutex::new(Ends::default()));
    let (mut ticks, mut calls, begun, mut made) = (interval(TICK), JoinSet::new(), Instant::now(), 0);
    while begun.elapsed() < duration {
        ticks.tick().await;
        // Make all calls due by now, even if this task was delayed.
        let due = begun.elapsed().as_micros() * u128::from(rate) / 1_000_000;
        while made < due {
            made += 1;
            let (client, ends) = (client.clone(), ends.clone());
            calls.spawn(async move {
                let answer = client.say_hello(HelloRequest { name: "world".into() }).await;
                ends.lock().await.add(answer);
            });
        }
        while calls.try_join_next().is_some() {}
    }
    calls.join_all().await;
    std::mem::take(&mut *ends.lock().await)
}

const TICK: Duration = Duration::from_millis(1);

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1).peekable();
    let scheme = arguments.next_if(|first| first.parse::<u32>().is_err()).unwrap_or_else(|| "tcp".to_owned());
    let mut rates = arguments.map(|rate| rate.parse()).collect::<Result<Vec<u32>, _>>()?;
    let duration = if rates.is_empty() { Duration::from_secs(1) } else { Duration::from_secs(5) };
    if rates.is_empty() {
        rates = vec![3000, 12_000];
    }
    let config = Config { handlers_max: HANDLERS as usize, ..Config::default() };
    let server = Server::builder().config(config).wire(Http::new()).add_service(GreeterServer::new(Host));
    let server = server.bind("tcp://127.0.0.1:0").await?;
    let address = server.local_addr().to_string().replace("tcp://", &format!("{scheme}://"));
    frpc_http::register();
    let channel = Channel::builder().timeout(DEADLINE).connect(address).await?;
    let client = GreeterClient::new(channel);

    println!("{HANDLERS} handlers of {WORK:?}, a deadline of {DEADLINE:?}; calls per second:");
    println!("{:>9} {:>9} {:>9} {:>9} {:>9}", "asked", "in time", "refused", "late", "not sent");
    for rate in rates {
        let Ends { in_time, refused, late, unsent } = load(&client, rate, duration).await;
        let per_second = |count: u32| f64::from(count) / duration.as_secs_f64();
        println!(
            "{rate:>9} {:>9.0} {:>9.0} {:>9.0} {:>9.0}",
            per_second(in_time),
            per_second(refused),
            per_second(late),
            per_second(unsent)
        );
    }
    Ok(())
}
