//! TLS with configurations of rustls, for settings that `ServerTls` and `ClientTls` lack: only TLS 1.3 in this case.

use std::{error::Error, sync::Arc, time::Duration};

use examples::certificates::Authority;
use frpc::{
    Channel, Request, Response, Server, Status,
    frisbee::rustls::{
        ClientConfig, RootCertStore, ServerConfig,
        crypto::ring,
        pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject},
        version::TLS13,
    },
};
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
    let authority = Authority::new("ours")?;
    let identity = authority.issue("localhost")?;
    let provider = Arc::new(ring::default_provider());

    let certificate = CertificateDer::from_pem_slice(identity.certificate.as_bytes())?;
    let key = PrivateKeyDer::from_pem_slice(identity.key.as_bytes())?;
    let config = ServerConfig::builder_with_provider(provider.clone())
        .with_protocol_versions(&[&TLS13])?
        .with_no_client_auth()
        .with_single_cert(vec![certificate], key)?;
    let server = Server::builder().add_service(GreeterServer::new(Host)).tls(config).bind("tcp://127.0.0.1:0").await?;

    let mut roots = RootCertStore::empty();
    roots.add(CertificateDer::from_pem_slice(authority.pem().as_bytes())?)?;
    let config = ClientConfig::builder_with_provider(provider)
        .with_protocol_versions(&[&TLS13])?
        .with_root_certificates(roots)
        .with_no_client_auth();
    let channel = Channel::builder().tls_with_name(config, "localhost").connect(server.local_addr()).await?;
    let reply = GreeterClient::new(channel).say_hello(HelloRequest { name: "world".into() }).await?;
    println!("over TLS 1.3: {}", reply.into_inner().message);
    server.shutdown(Duration::from_secs(1)).await;
    Ok(())
}
