//! Retries, timeouts and balancing by gRPC's service config. It may come from a file, from code, or from DNS.
//!
//! Usage: `service_config`

use std::error::Error;

use frpc::{
    Channel, Request, Response, Server, Status,
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

/// Fails the first two attempts of each call. Retries carry their number, as in gRPC.
struct Unsteady(&'static str);

impl Greeter for Unsteady {
    async fn say_hello(&self, request: Request<HelloRequest>) -> Result<Response<HelloReply>, Status> {
        let earlier = request.metadata().get("grpc-previous-rpc-attempts").map_or(Ok(0), str::parse::<u32>);
        match earlier.map_err(|_| Status::invalid_argument("expected a number of attempts"))? {
            2.. => Ok(HelloReply { message: format!("{} answers", self.0) }.into()),
            earlier => Err(Status::unavailable(format!("{} fails attempt {}", self.0, earlier + 1))),
        }
    }
}

const CONFIG: &str = r#"{
    "loadBalancingConfig": [{"round_robin": {}}],
    "methodConfig": [{
        "name": [{"service": "helloworld.Greeter"}],
        "timeout": "5s",
        "retryPolicy": {
            "maxAttempts": 3, "initialBackoff": "0.01s", "maxBackoff": "0.1s", "backoffMultiplier": 2,
            "retryableStatusCodes": ["UNAVAILABLE"]
        }
    }],
    "retryThrottling": {"maxTokens": 10, "tokenRatio": 0.1}
}"#;

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let mut servers = Vec::new();
    for name in ["one", "two", "three"] {
        let server = Server::builder().wire(frpc_http::Http::new()).add_service(GreeterServer::new(Unsteady(name)));
        servers.push(server.bind("tcp://127.0.0.1:0").await?);
    }
    let places = servers.iter().filter_map(|server| server.local_addr().socket_addr());
    let addresses = places.map(|place| format!("grpc://{place}")).collect::<Vec<_>>().join(",");
    for (name, config) in [("no config", "{}"), ("retryPolicy", CONFIG)] {
        let fleet = FleetSettings { service_config: ServiceConfig::from_json(config)?, ..FleetSettings::default() };
        let channel = Channel::builder().transport(frpc_http::transport()).fleet(fleet).connect(&*addresses).await?;
        match GreeterClient::new(channel).say_hello(HelloRequest::default()).await {
            Ok(reply) => println!("{name}: {}", reply.into_inner().message),
            Err(status) => println!("{name}: {status}"),
        }
    }
    // Typing errors are found when the config is read.
    if let Err(error) = ServiceConfig::from_json(r#"{"methodConfig": [{"timeout": "5 seconds"}]}"#) {
        println!("{error}");
    }
    Ok(())
}
