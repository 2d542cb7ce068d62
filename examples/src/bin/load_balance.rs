//! One channel to three servers, one of which is replaced while calls are made.
//!
//! Usage: `load_balance`

use std::{collections::BTreeMap, error::Error, time::Duration};

use frpc::{Channel, Request, Response, Server, Status};
use hello_world::{
    HelloReply, HelloRequest,
    greeter_client::GreeterClient,
    greeter_server::{Greeter, GreeterServer},
};

/// Generated from `proto/helloworld.proto`.
pub mod hello_world {
    frpc::include_proto!("helloworld");
}

/// Answers with its own name.
struct Host(&'static str);

impl Greeter for Host {
    async fn say_hello(&self, _: Request<HelloRequest>) -> Result<Response<HelloReply>, Status> {
        Ok(HelloReply { message: self.0.to_owned() }.into())
    }
}

async fn serve(name: &'static str, address: &str) -> Result<Server, frpc::ServeError> {
    Server::builder().add_service(GreeterServer::new(Host(name))).bind(address).await
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let mut servers = Vec::new();
    for name in ["one", "two", "three"] {
        servers.push(serve(name, "tcp://127.0.0.1:0").await?);
    }
    let addresses: Vec<_> = servers.iter().map(|server| server.local_addr().clone()).collect();
    // Also as text: "tcp://127.0.0.1:7301,tcp://127.0.0.1:7302", or "dns:///greeter.internal:7300".
    let channel = Channel::builder().timeout(Duration::from_secs(5)).connect(addresses).await?;
    let client = GreeterClient::new(channel);
    println!("three servers: {:?}", count(&client).await?);

    // Its calls finish, and the channel stops to pick it.
    let replaced = servers.remove(0);
    let address = replaced.local_addr().to_string();
    replaced.shutdown(Duration::from_secs(5)).await;
    println!("two servers: {:?}", count(&client).await?);

    servers.push(serve("four", &address).await?);
    let mut answers = count(&client).await?;
    while !answers.contains_key("four") {
        answers = count(&client).await?;
    }
    println!("with the new one: {answers:?}");
    Ok(())
}

/// Makes calls, eight at a time, and counts the answers of each server.
async fn count(client: &GreeterClient) -> Result<BTreeMap<String, usize>, Status> {
    let mut answers = BTreeMap::new();
    for _ in 0..100 {
        let calls: [_; 8] = std::array::from_fn(|_| client.say_hello(HelloRequest { name: "x".to_owned() }));
        for reply in futures_util::future::join_all(calls).await {
            *answers.entry(reply?.into_inner().message).or_default() += 1;
        }
    }
    Ok(answers)
}
