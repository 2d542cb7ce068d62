//! A server that takes over the listeners of the process before it, so that a restart refuses no connection.
//!
//! Usage: `handover PATH [ADDRESS]`. Start it again with the same arguments to replace the running process.
#![cfg_attr(not(unix), allow(dead_code, unused_imports, reason = "listeners are passed on Unix only"))]

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

/// Answers with its process.
struct Host;

impl Greeter for Host {
    async fn say_hello(&self, request: Request<HelloRequest>) -> Result<Response<HelloReply>, Status> {
        let name = request.into_inner().name;
        if name.is_empty() {
            return Err(Status::invalid_argument("a greeting needs a name"));
        }
        Ok(HelloReply { message: format!("Hello {name}, from process {}!", std::process::id()) }.into())
    }
}

#[cfg(unix)]
#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = env::args().skip(1);
    let path = arguments.next().ok_or("usage: handover PATH [ADDRESS]")?;
    let address = arguments.next().unwrap_or("tcp://127.0.0.1:50051".into());

    // ANCHOR: handover
    // The listeners of the running process, or a new one if this is the first process.
    let mut handover = frpc::Handover::join(path).await?;
    let targets = handover.targets(address)?;
    let server = Server::builder().add_service(GreeterServer::new(Host)).bind(targets).await?;
    println!("listening on {}", server.local_addr());

    // The running process stops now. This one serves until the next process or Ctrl-C.
    tokio::select! {
        () = server.hand_over(handover) => println!("handed over to the next process"),
        interrupted = tokio::signal::ctrl_c() => interrupted?,
    }
    // ANCHOR_END: handover
    println!("connections cut: {}", server.shutdown(Duration::from_secs(30)).await);
    Ok(())
}

#[cfg(not(unix))]
fn main() -> Result<(), Box<dyn Error>> {
    Err("listeners are passed between processes on Unix only".into())
}
