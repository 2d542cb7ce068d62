//! A greeting service. Usage: `helloworld_server [ADDRESS]`, until Ctrl-C.

use std::{env, error::Error, time::Duration};

use frpc::{Request, Response, Server, Status};
use hello_world::{
    HelloReply, HelloRequest,
    greeter_server::{Greeter, GreeterServer},
};

/// Generated from `proto/helloworld.proto`.
pub mod hello_world {
    frpc::include_proto!("helloworld");
}

struct Host;

impl Greeter for Host {
    async fn say_hello(&self, request: Request<HelloRequest>) -> Result<Response<HelloReply>, Status> {
        if let Some(address) = request.peer_addr() {
            println!("asked from {address}");
        }
        let name = request.into_inner().name;
        if name.is_empty() {
            return Err(Status::invalid_argument("a greeting needs a name"));
        }
        Ok(HelloReply { message: format!("Hello {name}!") }.into())
    }
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let address = env::args().nth(1).unwrap_or("tcp://127.0.0.1:50051".into());
    let server = Server::builder().add_service(GreeterServer::new(Host)).bind(address).await?;
    println!("listening on {}", server.local_addr());
    tokio::signal::ctrl_c().await?;
    server.shutdown(Duration::from_secs(5)).await;
    Ok(())
}
