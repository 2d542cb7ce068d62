//! One service on every wire of a port, with health checks, reflection and a page for browsers, and one client for all
//! wires.
//!
//! Usage: `every_wire serve [ADDRESS]`, until Ctrl-C, and `every_wire call ADDRESS NAME`, with the wire selected by the
//! address. `every_wire.sh` calls the service in seven ways.

use std::{env, error::Error, time::Duration};

use frpc::{Request, Response, Server, Status};
use frpc_http::{Http, HttpSettings, MetricsPage};
use frpc_services::{Health, Reflection};
use hello_world::{
    HelloReply, HelloRequest,
    greeter_client::GreeterClient,
    greeter_server::{Greeter, GreeterServer},
};

/// Generated from `proto/helloworld.proto`, with JSON support.
pub mod hello_world {
    frpc::include_proto!("helloworld");
}

struct Host;

impl Greeter for Host {
    async fn say_hello(&self, request: Request<HelloRequest>) -> Result<Response<HelloReply>, Status> {
        let name = request.into_inner().name;
        if name.is_empty() {
            return Err(Status::invalid_argument("a greeting needs a name"));
        }
        Ok(HelloReply { message: format!("Hello {name}!") }.into())
    }
}

async fn serve(address: &str) -> Result<(), Box<dyn Error>> {
    let server = Server::builder()
        .add_service(GreeterServer::new(Host))
        .add_service(Health::new())
        .add_service(Reflection::v1())
        .add_service(Reflection::v1alpha())
        // Adds gRPC, gRPC-Web, Connect and Twirp. Frisbee is always served.
        .wire(
            Http::new()
                .settings(HttpSettings { page: true, ..HttpSettings::default() })
                // For Prometheus.
                .mount("/metrics", MetricsPage),
        )
        .bind(address)
        .await?;
    println!("listening on {}", server.local_addr());
    tokio::signal::ctrl_c().await?;
    server.shutdown(Duration::from_secs(5)).await;
    Ok(())
}

async fn call(address: &str, name: &str) -> Result<(), Box<dyn Error>> {
    // Registers the address schemes of these wires.
    frpc_http::register();
    let client = GreeterClient::connect(address).await?;
    let reply = client.say_hello(HelloRequest { name: name.to_owned() }).await?;
    println!("{}", reply.into_inner().message);
    Ok(())
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let args: Vec<String> = env::args().skip(1).collect();
    match &args.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        [] | ["serve"] => serve("tcp://127.0.0.1:7300").await,
        ["serve", address] => serve(address).await,
        ["call", address, name] => call(address, name).await,
        _ => Err("every_wire serve [ADDRESS], or every_wire call ADDRESS NAME".into()),
    }
}
