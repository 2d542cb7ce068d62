//! A Unix socket: the server asks the kernel which user is at the other end, and has a TCP port for everybody else.

use std::{error::Error, time::Duration};

use frpc::{Channel, Request, Response, Server, Status};
use hello_world::{
    HelloReply, HelloRequest,
    greeter_client::GreeterClient,
    greeter_server::{Greeter, GreeterServer},
};

/// Made of `proto/helloworld.proto`.
pub mod hello_world {
    frpc::include_proto!("helloworld");
}

struct Host;

impl Greeter for Host {
    async fn say_hello(&self, request: Request<HelloRequest>) -> Result<Response<HelloReply>, Status> {
        // Nothing that a client says: the kernel knows who connected.
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
    // The file of the socket goes with its server.
    assert!(!path.exists());
    Ok(())
}
