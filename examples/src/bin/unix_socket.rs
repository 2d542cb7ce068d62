//! A Unix socket and a TCP port of one server. For the Unix socket, the server asks the kernel for the user of its
//! client.

use std::{error::Error, time::Duration};

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

struct Host;

impl Greeter for Host {
    async fn say_hello(&self, request: Request<HelloRequest>) -> Result<Response<HelloReply>, Status> {
        // These credentials come from the kernel, not from the client.
        let peer = request.connection().and_then(|connection| connection.peer_credentials());
        let whence = match peer {
            Some(peer) => format!("user {} in process {}", peer.uid, peer.pid.unwrap_or_default()),
            None => "somebody on the network".to_owned(),
        };
        Ok(HelloReply { message: format!("Hello {}, {whence}!", request.into_inner().name) }.into())
    }
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let path = std::env::temp_dir().join(format!("frisbee-{}.sock", std::process::id()));
    let addresses = [format!("unix:{}", path.display()), "tcp://127.0.0.1:0".to_owned()];
    let server = Server::builder().add_service(GreeterServer::new(Host)).bind(addresses).await?;
    for address in server.local_addrs() {
        println!("server: listening on {address}");
        let client = GreeterClient::new(Channel::connect(address).await?);
        let reply = client.say_hello(HelloRequest { name: "neighbour".into() }).await?;
        println!("client: {}", reply.into_inner().message);
    }
    server.shutdown(Duration::from_secs(1)).await;
    // The server removes the socket file on shutdown.
    assert!(!path.exists());
    Ok(())
}
