//! A server with the services that its command line names. Usage: `dynamic [greeter] [health] [reflection]`
//!
//! It then calls the greeter as a client. A service without its name in the command line is `Unimplemented`.

use std::{env, error::Error};

use frpc::{BoxService, Code, Request, Response, Server, Status};
use frpc_services::{Health, Reflection};
use hello_world::{
    HelloReply, HelloRequest,
    greeter_client::GreeterClient,
    greeter_server::{Greeter, GreeterServer},
};

/// Generated from `proto/helloworld.proto`.
pub mod hello_world {
    frpc::include_proto!("helloworld");
}

struct Host;

impl Greeter for Host {
    async fn say_hello(&self, request: Request<HelloRequest>) -> Result<Response<HelloReply>, Status> {
        Ok(HelloReply { message: format!("Hello {}!", request.into_inner().name) }.into())
    }
}

fn service(name: &str) -> Result<BoxService, String> {
    Ok(match name {
        "greeter" => BoxService::new(GreeterServer::new(Host)),
        "health" => BoxService::new(Health::new()),
        "reflection" => BoxService::new(Reflection::v1()),
        _ => return Err(format!("there is no service {name}; use greeter, health or reflection")),
    })
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let names: Vec<String> = env::args().skip(1).collect();
    let services = names.iter().map(|name| service(name)).collect::<Result<Vec<_>, _>>()?;
    let server = Server::builder().add_services(services).bind("tcp://127.0.0.1:0").await?;
    println!("serving [{}]", names.join(", "));

    let client = GreeterClient::connect(server.local_addr()).await?;
    match client.say_hello(HelloRequest { name: "world".into() }).await {
        Ok(reply) => println!("{}", reply.into_inner().message),
        Err(status) if status.code() == Code::Unimplemented => println!("no greeter: {status}"),
        Err(status) => return Err(status.into()),
    }
    Ok(())
}
