//! A server that is replaced by the next without losing a call: those under way are answered, and the client makes the others
//! at the next server. Changes by itself after a second, or earlier by Ctrl-C or SIGTERM.

use std::{error::Error, io, time::Duration};

use frpc::{Address, Channel, Request, Response, ServeError, Server, Status};
use hello_world::{
    HelloReply, HelloRequest,
    greeter_client::GreeterClient,
    greeter_server::{Greeter, GreeterServer},
};
use tokio::{
    task::JoinSet,
    time::{sleep, timeout},
};

/// Made of `proto/helloworld.proto`.
pub mod hello_world {
    frpc::include_proto!("helloworld");
}

struct SlowHost;

impl Greeter for SlowHost {
    async fn say_hello(&self, request: Request<HelloRequest>) -> Result<Response<HelloReply>, Status> {
        sleep(Duration::from_millis(300)).await;
        Ok(HelloReply { message: format!("Hello {}!", request.into_inner().name) }.into())
    }
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error + Send + Sync>> {
    let server = Server::builder().add_service(GreeterServer::new(SlowHost)).bind("tcp://127.0.0.1:0").await?;
    let address = server.local_addr().clone();
    println!("server: listening on {address}; Ctrl-C ends it");
    let client = GreeterClient::new(Channel::connect(&address).await?);
    let calling = tokio::spawn(call_for_two_seconds(client));

    // For the sake of an example that ends. A server would only wait for the signal.
    if let Ok(signal) = timeout(Duration::from_secs(1), asked_to_stop()).await {
        signal?;
    }
    println!("server: shutting down");
    // The address is free at once, and what is not answered after 10 seconds is cut. Kubernetes sends SIGKILL after 30.
    let shutdown = tokio::spawn(server.shutdown(Duration::from_secs(10)));
    let next = start_next(&address).await?;
    println!("server: the first is done, {} connections were cut", shutdown.await?);
    calling.await??;
    next.shutdown(Duration::from_secs(10)).await;
    Ok(())
}

/// Starts the next server, usually another process, as soon as the first has left the address to it.
async fn start_next(address: &Address) -> Result<Server, ServeError> {
    loop {
        match Server::builder().add_service(GreeterServer::new(SlowHost)).bind(address).await {
            Err(ServeError::Listen(error)) if error.kind() == io::ErrorKind::AddrInUse => {
                sleep(Duration::from_millis(1)).await;
            }
            started => return started,
        }
    }
}

/// Comes back when the program is to end.
#[cfg(unix)]
async fn asked_to_stop() -> io::Result<()> {
    use tokio::signal::unix::{SignalKind, signal};

    let mut terminated = signal(SignalKind::terminate())?;
    tokio::select! {
        interrupted = tokio::signal::ctrl_c() => interrupted,
        _ = terminated.recv() => Ok(()),
    }
}

/// Comes back when the program is to end.
#[cfg(not(unix))]
async fn asked_to_stop() -> io::Result<()> {
    tokio::signal::ctrl_c().await
}

/// Calls all the time, without waiting for one answer before the next call, and does not notice that the server changes.
async fn call_for_two_seconds(client: GreeterClient) -> Result<(), Box<dyn Error + Send + Sync>> {
    let mut calls = JoinSet::new();
    for number in 1..=20 {
        let client = client.clone();
        calls.spawn(async move { client.say_hello(HelloRequest { name: format!("caller {number}") }).await });
        sleep(Duration::from_millis(100)).await;
    }
    while let Some(answered) = calls.join_next().await {
        println!("client: {}", answered??.into_inner().message);
    }
    Ok(())
}
