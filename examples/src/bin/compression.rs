//! Compressed messages: each side chooses the compression of its messages and announces the algorithms it can
//! decompress.

use std::error::Error;

use frpc::{Channel, CompressionSettings, Request, Response, Server, Status, codec::Compression};
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
    let server = Server::builder()
        // LZ4 is for clients without Zstd.
        .compression(CompressionSettings {
            send: vec![Compression::Zstd, Compression::Lz4],
            ..CompressionSettings::default()
        })
        .add_service(GreeterServer::new(Host))
        .bind("tcp://127.0.0.1:0")
        .await?;
    // Compressed answers are accepted even without this setting.
    let compression = CompressionSettings { send: vec![Compression::Lz4], ..CompressionSettings::default() };
    let channel = Channel::builder().compression(compression).connect(server.local_addr()).await?;
    let client = GreeterClient::new(channel.clone());
    let connection = channel.connection().ok_or("there is a connection")?;

    for name in ["Ada".to_owned(), "Ada, Countess of Lovelace, ".repeat(1000)] {
        let before = connection.metrics().counters;
        let reply = client.say_hello(HelloRequest { name }).await?.into_inner();
        let after = connection.metrics().counters;
        println!(
            "{} bytes of text: {} bytes there, {} bytes back",
            reply.message.len(),
            after.bytes_out - before.bytes_out,
            after.bytes_in - before.bytes_in
        );
    }
    Ok(())
}
