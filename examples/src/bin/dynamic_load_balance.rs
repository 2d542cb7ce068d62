//! A channel whose servers come and go, as told by a resolver of our own.
//!
//! Usage: `dynamic_load_balance`

use std::{collections::BTreeSet, error::Error, io};

use frpc::{
    Channel, Request, Response, Server, Status,
    fleet::{Endpoint, Endpoints, FleetSettings, PickPolicy, Refresh, Resolve, Target},
};
use futures_util::{
    StreamExt,
    stream::{self, BoxStream},
};
use hello_world::{
    HelloReply, HelloRequest,
    greeter_client::GreeterClient,
    greeter_server::{Greeter, GreeterServer},
};
use tokio::sync::watch;

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

async fn serve(name: &'static str) -> Result<Server, frpc::ServeError> {
    Server::builder().add_service(GreeterServer::new(Host(name))).bind("tcp://127.0.0.1:0").await
}

/// The servers of the moment. A real registry would send them over the network.
struct Registry(watch::Receiver<Vec<Endpoint>>);

impl Resolve for Registry {
    fn resolve(&self, _: Refresh) -> BoxStream<'static, io::Result<Endpoints>> {
        let mut servers = self.0.clone();
        servers.mark_changed();
        stream::unfold(servers, async |mut servers| {
            servers.changed().await.ok()?;
            let endpoints = Endpoints::new(servers.borrow_and_update().iter().cloned());
            Some((Ok(endpoints), servers))
        })
        .boxed()
    }
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let (one, two) = (serve("one").await?, serve("two").await?);
    let (registry, servers) = watch::channel(vec![Endpoint::new(one.local_addr())?]);
    let fleet = FleetSettings { policy: PickPolicy::RoundRobin, ..FleetSettings::default() };
    let channel = Channel::builder().fleet(fleet).connect(Target::resolved_by(Registry(servers))).await?;
    let client = GreeterClient::new(channel);
    show(&client, &["one"]).await?;

    registry.send(vec![Endpoint::new(one.local_addr())?, Endpoint::new(two.local_addr())?])?;
    show(&client, &["one", "two"]).await?;

    registry.send(vec![Endpoint::new(two.local_addr())?])?;
    show(&client, &["two"]).await?;
    Ok(())
}

/// Makes calls until exactly these servers answer two calls in a row.
async fn show(client: &GreeterClient, expected: &[&str]) -> Result<(), Status> {
    loop {
        let mut answers = BTreeSet::new();
        for _ in 0..2 {
            answers.insert(client.say_hello(HelloRequest { name: "x".to_owned() }).await?.into_inner().message);
        }
        if answers.iter().eq(expected) {
            println!("answered: {answers:?}");
            return Ok(());
        }
    }
}
