//! A server that ends without losing a call: those under way are answered, those that come too late are turned away and
//! were not executed. Ends by itself after a second, or earlier by Ctrl-C or SIGTERM.

use std::{error::Error, io, time::Duration};

use frpc::{Channel, Request, Response, Server, Status};
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
    println!("server: listening on {}; Ctrl-C ends it", server.local_addr());
    let client = GreeterClient::new(Channel::connect(server.local_addr()).await?);
    let calling = tokio::spawn(call_until_turned_away(client));

    // For the sake of an example that ends. A server would only wait for the signal.
    if let Ok(signal) = timeout(Duration::from_secs(1), asked_to_stop()).await {
        signal?;
    }
    println!("server: shutting down");
    // Nobody connects any more, and what is not answered after 10 seconds is cut. Kubernetes sends SIGKILL after 30.
    let cut = server.shutdown(Duration::from_secs(10)).await;
    println!("server: done, {cut} connections were cut");
    calling.await??;
    Ok(())
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

/// Calls all the time, without waiting for one answer before the next call.
async fn call_until_turned_away(client: GreeterClient) -> Result<(), Box<dyn Error + Send + Sync>> {
    let mut calls = JoinSet::new();
    for number in 1.. {
        let client = client.clone();
        calls.spawn(async move { client.say_hello(HelloRequest { name: format!("caller {number}") }).await });
        sleep(Duration::from_millis(100)).await;
        while let Some(answered) = calls.try_join_next() {
            match answered? {
                Ok(reply) => println!("client: {}", reply.into_inner().message),
                Err(status) => return turned_away(status, calls).await,
            }
        }
    }
    Ok(())
}

/// Looks at what became of the calls that were under way.
async fn turned_away(
    status: Status,
    mut calls: JoinSet<Result<Response<HelloReply>, Status>>,
) -> Result<(), Box<dyn Error + Send + Sync>> {
    // Whoever gets this may make the call again, at another server or later.
    println!("client: turned away: {status}");
    while let Some(answered) = calls.join_next().await {
        match answered? {
            Ok(reply) => println!("client: {}", reply.into_inner().message),
            Err(status) => println!("client: turned away as well: {status}"),
        }
    }
    Ok(())
}
