//! One service over two servers, called directly through announcements in NATS, and through NATS.
//!
//! Usage: `nats [HOST:PORT]`, the address of a NATS server with JetStream. Default `127.0.0.1:4222`, where
//! `nats-server -js` listens.

use std::{collections::BTreeMap, env, error::Error, time::Duration};

use frpc::{Channel, Request, Response, Server, Status};
use frpc_nats::{Announcement, NatsCluster, NatsServer};
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

/// A server with its two ways in.
struct Replica {
    server: Server,
    announcement: Announcement,
    through_nats: NatsServer,
}

impl Replica {
    async fn start(name: &'static str, cluster: &NatsCluster) -> Result<Self, Box<dyn Error>> {
        let server = Server::builder().add_service(GreeterServer::new(Host(name))).bind("tcp://127.0.0.1:0").await?;
        let announcement = Announcement::builder("greeter", server.local_addr())?.zone("a").start(cluster).await?;
        let through_nats = NatsServer::builder("greeter").serve(cluster, server.endpoint()).await?;
        Ok(Self { server, announcement, through_nats })
    }

    /// Leaves without a failed call: first no channel picks the server, then its calls finish.
    async fn shutdown(self) {
        self.announcement.withdraw().await;
        self.through_nats.shutdown(Duration::from_secs(5)).await;
        self.server.shutdown(Duration::from_secs(5)).await;
    }
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let nats = env::args().nth(1).unwrap_or_else(|| "127.0.0.1:4222".to_owned());
    let cluster = NatsCluster::new(format!("nats://{nats}"));
    let replicas = [Replica::start("one", &cluster).await?, Replica::start("two", &cluster).await?];

    // The address alone decides.
    let mut clients = Vec::new();
    for address in [format!("nats+direct://{nats}/greeter"), format!("nats://{nats}/greeter")] {
        let transport = frpc_nats::transport();
        let channel = Channel::builder().transport(transport.clone()).resolver(transport).connect(&address).await?;
        clients.push((address, GreeterClient::new(channel)));
    }
    for (address, client) in &clients {
        println!("{address}: {:?}", count(client).await?);
    }
    let [one, two] = replicas;
    one.shutdown().await;
    for (address, client) in &clients {
        println!("{address} without the first server: {:?}", count(client).await?);
    }
    two.shutdown().await;
    if let Err(status) = count(&clients[1].1).await {
        println!("without servers: {status}");
    }
    Ok(())
}

/// Makes calls, and counts the answers of each server.
async fn count(client: &GreeterClient) -> Result<BTreeMap<String, usize>, Status> {
    let mut answers = BTreeMap::new();
    for _ in 0..100 {
        let reply = client.say_hello(HelloRequest { name: "x".to_owned() }).await?;
        *answers.entry(reply.into_inner().message).or_default() += 1;
    }
    Ok(answers)
}
