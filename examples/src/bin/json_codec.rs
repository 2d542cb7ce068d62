//! A service without a proto file: its messages are types of serde, and a codec of its own writes them as JSON. The service is
//! described in `build.rs`.

use std::error::Error;

use bytes::Bytes;
use frpc::{Request, Response, Server, Status, codec::Codec};
use frpc_http::Http;
use hello_world::{
    greeter_client::GreeterClient,
    greeter_server::{Greeter, GreeterServer},
};
use serde::{Deserialize, Serialize, de::DeserializeOwned};

/// Made of `build_json_codec_service` in `build.rs`, which names the types below.
pub mod hello_world {
    frpc::include_proto!("json.helloworld.Greeter");
}

/// A request.
#[derive(Debug, Deserialize, Serialize)]
pub struct HelloRequest {
    name: String,
}

/// A response.
#[derive(Debug, Deserialize, Serialize)]
pub struct HelloResponse {
    message: String,
}

/// Writes messages as JSON.
#[derive(Debug)]
pub struct JsonCodec;

impl<M: Serialize + DeserializeOwned> Codec<M> for JsonCodec {
    const NAME: &'static str = "json";

    fn encode(message: &M, out: &mut Vec<u8>) -> Result<(), Box<dyn Error + Send + Sync>> {
        Ok(serde_json::to_writer(out, message)?)
    }

    fn decode(content: &Bytes) -> Result<M, Box<dyn Error + Send + Sync>> {
        Ok(serde_json::from_slice(content)?)
    }
}

struct MyGreeter;

impl Greeter for MyGreeter {
    async fn say_hello(&self, request: Request<HelloRequest>) -> Result<Response<HelloResponse>, Status> {
        Ok(HelloResponse { message: format!("Hello {}!", request.into_inner().name) }.into())
    }
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    frpc_http::register();
    let server = Server::builder().add_service(GreeterServer::new(MyGreeter)).wire(Http::new());
    let server = server.bind("tcp://127.0.0.1:0").await?;
    let address = server.local_addr().to_string();
    // frisbee; gRPC, as the clients and servers of tonic's json-codec speak it; and JSON that curl can send.
    for scheme in ["tcp", "grpc", "http"] {
        let client = GreeterClient::connect(address.replace("tcp", scheme)).await?;
        let response = client.say_hello(HelloRequest { name: scheme.to_owned() }).await?;
        println!("{:?}", response.into_inner());
    }
    Ok(())
}
