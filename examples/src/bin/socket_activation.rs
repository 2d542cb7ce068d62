//! A server on the sockets of systemd, or on an address of its own. Usage: `socket_activation [ADDRESS]`
//!
//! `systemd-socket-activate -l 50051 target/debug/socket_activation` starts it with the first connection. A unit with
//! `ListenStream=50051` does the same. With systemfd, the port stays open while a new version is compiled:
//! `systemfd --no-pid -s tcp::50051 -- cargo watch -x "run --bin socket_activation"`.
#![cfg_attr(not(unix), allow(dead_code, unused_imports, reason = "service managers pass sockets on Unix only"))]

use std::{env, error::Error, time::Duration};

use frpc::{ListenOn, Request, Response, Server, Status};
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
        let name = request.into_inner().name;
        if name.is_empty() {
            return Err(Status::invalid_argument("a greeting needs a name"));
        }
        Ok(HelloReply { message: format!("Hello {name}!") }.into())
    }
}

#[cfg(unix)]
#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let passed = frpc::SystemdListeners::from_env()?;
    let targets = if passed.is_empty() {
        env::args().nth(1).unwrap_or("tcp://127.0.0.1:50051".into()).into_targets()?
    } else {
        passed.into_targets()?
    };
    let server = Server::builder().add_service(GreeterServer::new(Host)).bind(targets).await?;
    println!("listening on {}", server.local_addr());
    tokio::signal::ctrl_c().await?;
    server.shutdown(Duration::from_secs(5)).await;
    Ok(())
}

#[cfg(not(unix))]
fn main() -> Result<(), Box<dyn Error>> {
    Err("service managers pass sockets on Unix only".into())
}
