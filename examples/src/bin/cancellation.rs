//! Cancellation: when a caller gives up, by a timeout or by dropping the call, the handler is dropped and can clean up.

use std::{error::Error, time::Duration};

use frpc::{Channel, Request, Response, Server, Status};
use hello_world::{
    HelloReply, HelloRequest,
    greeter_client::GreeterClient,
    greeter_server::{Greeter, GreeterServer},
};
use tokio::{sync::mpsc, time::timeout};

/// Generated from `proto/helloworld.proto`.
pub mod hello_world {
    frpc::include_proto!("helloworld");
}

struct Host {
    given_up: mpsc::UnboundedSender<String>,
}

/// Reports a handler that was dropped before it finished.
struct Unfinished {
    name: String,
    given_up: mpsc::UnboundedSender<String>,
}

impl Drop for Unfinished {
    fn drop(&mut self) {
        let _ = self.given_up.send(std::mem::take(&mut self.name));
    }
}

impl Greeter for Host {
    async fn say_hello(&self, request: Request<HelloRequest>) -> Result<Response<HelloReply>, Status> {
        if let Some(left) = request.timeout() {
            println!("server: the caller waits for another {left:.0?}");
        }
        let name = request.into_inner().name;
        let _unfinished = Unfinished { name, given_up: self.given_up.clone() };
        // This work never ends.
        std::future::pending().await
    }
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let (given_up, mut unfinished) = mpsc::unbounded_channel();
    let server = Server::builder().add_service(GreeterServer::new(Host { given_up })).bind("tcp://127.0.0.1:0").await?;
    let client = GreeterClient::new(Channel::connect(server.local_addr()).await?);

    let mut request = Request::new(HelloRequest { name: "a deadline".into() });
    request.set_timeout(Duration::from_millis(100));
    let status = client.say_hello(request).await.expect_err("it takes for ever");
    println!("client: {status}");
    println!("server: gave up for {}", unfinished.recv().await.unwrap_or_default());

    // The timeout drops the future of the call.
    let call = client.say_hello(HelloRequest { name: "a dropped call".into() });
    timeout(Duration::from_millis(100), call).await.expect_err("it takes for ever");
    println!("server: gave up for {}", unfinished.recv().await.unwrap_or_default());
    Ok(())
}
