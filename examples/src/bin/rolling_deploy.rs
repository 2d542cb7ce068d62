//! Four replicas are replaced one after another by a new version, while calls are made. None fails.
//!
//! Usage: `rolling_deploy`

use std::{
    collections::BTreeMap,
    error::Error,
    fs,
    path::{Path, PathBuf},
    time::Duration,
};

use frpc::{Channel, Request, Response, Server, Status};
use hello_world::{
    HelloReply, HelloRequest,
    greeter_client::GreeterClient,
    greeter_server::{Greeter, GreeterServer},
};
use tokio::{sync::watch, task::JoinSet};

/// Generated from `proto/helloworld.proto`.
pub mod hello_world {
    frpc::include_proto!("helloworld");
}

/// Answers with its version.
struct Replica(&'static str);

impl Greeter for Replica {
    async fn say_hello(&self, _: Request<HelloRequest>) -> Result<Response<HelloReply>, Status> {
        Ok(HelloReply { message: self.0.to_owned() }.into())
    }
}

async fn start(version: &'static str) -> Result<Server, frpc::ServeError> {
    Server::builder().add_service(GreeterServer::new(Replica(version))).bind("tcp://127.0.0.1:0").await
}

/// The list of replicas, in a file watched by the channel. Orchestrators and consul-template write such files.
struct ReplicaFile(PathBuf);

impl ReplicaFile {
    fn write(&self, replicas: &[Server]) -> std::io::Result<()> {
        let addresses: Vec<String> =
            replicas.iter().map(|server| format!("{:?}", server.local_addr().to_string())).collect();
        // A rename replaces the file in one step, so no reader sees half of it.
        let new = self.0.with_extension("new");
        fs::write(&new, format!("[{}]", addresses.join(", ")))?;
        fs::rename(new, &self.0)
    }
}

impl Drop for ReplicaFile {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.0);
    }
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let mut replicas = Vec::new();
    for _ in 0..4 {
        replicas.push(start("v1").await?);
    }
    let file = ReplicaFile(std::env::temp_dir().join(format!("rolling_deploy-{}.json", std::process::id())));
    file.write(&replicas)?;
    let client = GreeterClient::new(Channel::connect(&*target(&file.0)).await?);

    let (deployed, is_over) = watch::channel(false);
    let mut callers = JoinSet::new();
    for _ in 0..8 {
        callers.spawn(call_until(client.clone(), is_over.clone()));
    }

    for index in 0..replicas.len() {
        let before = std::mem::replace(&mut replicas[index], start("v2").await?);
        file.write(&replicas)?;
        // Asks its clients to leave, and answers their calls until they have left.
        let cut = before.shutdown(Duration::from_secs(5)).await;
        println!("replaced replica {index}, connections cut: {cut}");
    }
    // The new version alone answers by now.
    assert_eq!(client.say_hello(HelloRequest::default()).await?.into_inner().message, "v2");
    deployed.send(true)?;

    let mut answers = BTreeMap::new();
    while let Some(counts) = callers.join_next().await {
        for (version, calls) in counts?? {
            *answers.entry(version).or_insert(0) += calls;
        }
    }
    assert!(answers["v1"] > 0 && answers["v2"] > 0);
    println!("no call failed, answers of versions: {:?}", answers.keys());
    Ok(())
}

fn target(file: &Path) -> String {
    format!("file://{}", file.display())
}

/// Makes calls until the deploy is over. Counts the answers of each version.
async fn call_until(client: GreeterClient, is_over: watch::Receiver<bool>) -> Result<BTreeMap<String, u32>, Status> {
    let mut answers = BTreeMap::new();
    while !*is_over.borrow() {
        let version = client.say_hello(HelloRequest::default()).await?.into_inner().message;
        *answers.entry(version).or_insert(0) += 1;
    }
    Ok(answers)
}
