//! A client for code without async: each call blocks its thread. The runtime is part of the client.

use std::{error::Error, thread};

use frpc::{Request, Response, Server, Status};
use hello_world::{
    HelloReply, HelloRequest,
    greeter_client::GreeterClient,
    greeter_server::{Greeter, GreeterServer},
};
use tokio::runtime::{Builder, Runtime};

/// Generated from `proto/helloworld.proto`.
pub mod hello_world {
    frpc::include_proto!("helloworld");
}

/// A client with blocking methods.
struct BlockingGreeter {
    client: GreeterClient,
    runtime: Runtime,
}

impl BlockingGreeter {
    fn connect(address: &str) -> Result<Self, Box<dyn Error>> {
        // One worker keeps the connection alive between calls. A runtime of the current thread would answer no pings
        // while the program does other things.
        let runtime = Builder::new_multi_thread().worker_threads(1).enable_all().build()?;
        let client = runtime.block_on(GreeterClient::connect(address))?;
        Ok(Self { client, runtime })
    }

    fn say_hello(&self, name: &str) -> Result<String, Status> {
        let call = self.client.say_hello(HelloRequest { name: name.to_owned() });
        Ok(self.runtime.block_on(call)?.into_inner().message)
    }
}

struct Host;

impl Greeter for Host {
    async fn say_hello(&self, request: Request<HelloRequest>) -> Result<Response<HelloReply>, Status> {
        Ok(HelloReply { message: format!("Hello {}!", request.into_inner().name) }.into())
    }
}

fn main() -> Result<(), Box<dyn Error>> {
    let runtime = Runtime::new()?;
    let server = Server::builder().add_service(GreeterServer::new(Host));
    let server = runtime.block_on(server.bind("tcp://127.0.0.1:0"))?;

    let greeter = BlockingGreeter::connect(&server.local_addr().to_string())?;
    println!("{}", greeter.say_hello("world")?);
    // Several threads share a client, and their calls run at the same time.
    thread::scope(|scope| {
        let calls = ["Ada", "Bob"].map(|name| {
            let greeter = &greeter;
            scope.spawn(move || greeter.say_hello(name))
        });
        for call in calls {
            println!("{}", call.join().map_err(|_| "a thread panicked")??);
        }
        Ok(())
    })
}
