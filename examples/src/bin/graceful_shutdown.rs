//! Replacing a server without losing a call: calls in flight are answered, and later ones go to the next server.
//!
//! The replacement happens after a second, or earlier on Ctrl-C or SIGTERM.

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

/// Generated from `proto/helloworld.proto`.
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

    // The timeout makes the example end. A real server would wait for the signal only.
    if let Ok(signal) = timeout(Duration::from_secs(1), asked_to_stop()).await {
        signal?;
    }
    println!("server: shutting down");
    // The address is free immediately. Calls unfinished after 10 seconds are cut off. Kubernetes sends SIGKILL after 30
    // seconds.
    let shutdown = tokio::spawn(server.shutdown(Duration::from_secs(10)));
    let next = start_next(&address).await?;
    println!("server: the first is done, {} connections were cut", shutdown.await?);
    calling.await??;
    next.shutdown(Duration::from_secs(10)).await;
    Ok(())
}

/// Starts the next server, usually another process, once the first one has released the address.
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

// ANCHOR: signals
/// Waits for a signal to terminate.
#[cfg(unix)]
async fn asked_to_stop() -> io::Result<()> {
    use tokio::signal::unix::{SignalKind, signal};

    let mut terminated = signal(SignalKind::terminate())?;
    tokio::select! {
        interrupted = tokio::signal::ctrl_c() => interrupted,
        _ = terminated.recv() => Ok(()),
    }
}
// ANCHOR_END: signals

/// Waits for a signal to terminate.
#[cfg(not(unix))]
async fn asked_to_stop() -> io::Result<()> {
    tokio::signal::ctrl_c().await
}

/// Makes calls continuously, with several in flight, and does not notice the replacement of the server.
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
