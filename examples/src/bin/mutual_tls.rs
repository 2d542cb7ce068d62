//! Mutual TLS: the server accepts only clients with a certificate from a trusted authority, and reads that certificate.

use std::{error::Error, time::Duration};

use examples::certificates::Authority;
use frpc::{Channel, ClientTls, ConnectRetry, Pem, Request, Response, Server, ServerTls, Status};
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
        // ANCHOR: caller
        // The handshake has verified the certificate. A crate such as x509-parser can read the name in it.
        let certificates = request.peer_certificates();
        let certificate = certificates.as_ref().and_then(|chain| chain.first());
        let Some(certificate) = certificate else { return Err(Status::unauthenticated("show a certificate")) };
        // ANCHOR_END: caller
        println!("server: asked by the holder of a certificate of {} bytes", certificate.len());
        Ok(HelloReply { message: format!("Hello {}!", request.into_inner().name) }.into())
    }
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    // This example uses the same authority for both sides, which is not required.
    let authority = Authority::new("ours")?;
    let roots = || Pem::bytes(authority.pem());
    let (host, guest) = (authority.issue("localhost")?, authority.issue("guest")?);

    // ANCHOR: server
    let tls = ServerTls::new(Pem::bytes(host.certificate), Pem::bytes(host.key))?.client_roots(roots())?;
    // ANCHOR_END: server
    let server = Server::builder().add_service(GreeterServer::new(Host)).tls(tls).bind("tcp://127.0.0.1:0").await?;
    println!("server: listening on {}", server.local_addr());

    // ANCHOR: client
    let tls = ClientTls::with_roots(roots())?.identity(Pem::bytes(guest.certificate), Pem::bytes(guest.key))?;
    // ANCHOR_END: client
    let channel = Channel::builder().tls_with_name(tls, "localhost").connect(server.local_addr()).await?;
    let reply = GreeterClient::new(channel).say_hello(HelloRequest { name: "guest".into() }).await?;
    println!("client: {}", reply.into_inner().message);

    let nobody = Channel::builder()
        .retry(ConnectRetry { attempts: 1, ..ConnectRetry::default() })
        .tls_with_name(ClientTls::with_roots(roots())?, "localhost");
    // The server checks the certificate last, so a client may briefly consider itself connected.
    let refused = match nobody.connect(server.local_addr()).await {
        Err(error) => error.to_string(),
        Ok(channel) => match GreeterClient::new(channel).say_hello(HelloRequest::default()).await {
            Err(status) => status.to_string(),
            Ok(_) => return Err("a client without a certificate was served".into()),
        },
    };
    println!("client without a certificate: {refused}");
    server.shutdown(Duration::from_secs(1)).await;
    Ok(())
}
