//! A call over TLS: the client trusts the authority of the server's certificate.

use std::{error::Error, fs, time::Duration};

use examples::certificates::Authority;
use frpc::{Channel, ClientTls, Pem, Request, Response, Server, ServerTls, Status};
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
        Ok(HelloReply { message: format!("Hello {}!", request.into_inner().name) }.into())
    }
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let (authority, stranger) = (Authority::new("ours")?, Authority::new("theirs")?);
    let identity = authority.issue("localhost")?;

    // Read from files, as in real deployments. `Pem::bytes` takes text in memory.
    let directory = std::env::temp_dir().join(format!("frisbee-tls-{}", std::process::id()));
    fs::create_dir(&directory)?;
    fs::write(directory.join("server.pem"), &identity.certificate)?;
    fs::write(directory.join("server.key"), &identity.key)?;
    let tls = ServerTls::new(Pem::file(directory.join("server.pem")), Pem::file(directory.join("server.key")))?;
    fs::remove_dir_all(&directory)?;

    let server = Server::builder().add_service(GreeterServer::new(Host)).tls(tls).bind("tcp://127.0.0.1:0").await?;
    let address = server.local_addr();
    println!("server: listening on {address} with TLS");

    // The address contains no host name, so the client names the expected one. For `tcp://localhost:7300`, `tls` is
    // enough.
    let roots = ClientTls::with_roots(Pem::bytes(authority.pem()))?;
    let channel = Channel::builder().tls_with_name(roots, "localhost").connect(address).await?;
    let reply = GreeterClient::new(channel).say_hello(HelloRequest { name: "world".into() }).await?;
    println!("client: {}", reply.into_inner().message);

    let roots = ClientTls::with_roots(Pem::bytes(stranger.pem()))?;
    match Channel::builder().tls_with_name(roots, "localhost").connect(address).await {
        Ok(_) => return Err("a client that trusts somebody else was served".into()),
        Err(error) => println!("client that trusts somebody else: {error}"),
    }
    server.shutdown(Duration::from_secs(1)).await;
    Ok(())
}
