//! One of four servers is slow. Calls without an answer in time are also made on another server.
//!
//! Usage: `hedging`

use std::{
    error::Error,
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering},
    },
    time::{Duration, Instant},
};

use frpc::{
    Address, Channel, Request, Response, Server, Status,
    fleet::{FleetSettings, ServiceConfig},
};
use hello_world::{
    HelloReply, HelloRequest,
    greeter_client::GreeterClient,
    greeter_server::{Greeter, GreeterServer},
};

/// Generated from `proto/helloworld.proto`.
pub mod hello_world {
    frpc::include_proto!("helloworld");
}

/// Answers after some work.
struct Worker {
    work: Duration,
    calls: Arc<AtomicU32>,
}

impl Greeter for Worker {
    async fn say_hello(&self, request: Request<HelloRequest>) -> Result<Response<HelloReply>, Status> {
        self.calls.fetch_add(1, Ordering::Relaxed);
        tokio::time::sleep(self.work).await;
        Ok(HelloReply { message: format!("Hello {}!", request.into_inner().name) }.into())
    }
}

/// Each call goes to the next server. The default policy would avoid the slow one.
const IN_TURN: &str = r#"{"loadBalancingConfig": [{"round_robin": {}}]}"#;

/// "p95" as the delay follows the latency of the method. Only the file knows the method as safe to execute twice; the option
/// `idempotency_level` in the proto file would say so for all clients.
const HEDGED: &str = r#"{
    "loadBalancingConfig": [{"round_robin": {}}],
    "methodConfig": [{
        "name": [{"service": "helloworld.Greeter", "method": "SayHello"}],
        "hedgingPolicy": {"maxAttempts": 2, "hedgingDelay": "0.02s"}
    }]
}"#;

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let calls = Arc::<AtomicU32>::default();
    let mut servers = Vec::new();
    for work in [1, 1, 1, 200].map(Duration::from_millis) {
        let worker = Worker { work, calls: calls.clone() };
        servers.push(Server::builder().add_service(GreeterServer::new(worker)).bind("tcp://127.0.0.1:0").await?);
    }
    let addresses: Vec<Address> = servers.iter().map(|server| server.local_addr().clone()).collect();
    for (name, config) in [("without hedging", IN_TURN), ("with hedging", HEDGED)] {
        let fleet = FleetSettings { service_config: ServiceConfig::from_json(config)?, ..FleetSettings::default() };
        let channel = Channel::builder().fleet(fleet).connect(addresses.clone()).await?;
        let latencies = measure(&GreeterClient::new(channel)).await?;
        let [half, most] = [CALLS / 2, CALLS * 9 / 10].map(|index| latencies[index]);
        let calls = calls.swap(0, Ordering::Relaxed);
        println!("{name}: half of the calls within {half:.0?}, 90 % within {most:.0?}, {calls} attempts");
    }
    Ok(())
}

/// Makes calls one after another, and returns their latencies in order.
async fn measure(client: &GreeterClient) -> Result<Vec<Duration>, Status> {
    let mut latencies = Vec::new();
    for _ in 0..CALLS {
        let start = Instant::now();
        client.say_hello(HelloRequest { name: "world".to_owned() }).await?;
        latencies.push(start.elapsed());
    }
    latencies.sort_unstable();
    Ok(latencies)
}

const CALLS: usize = 40;
