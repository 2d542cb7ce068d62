//! Errors with details that programs can act on: a retry after the time that the server asks for.

use std::{
    error::Error,
    sync::atomic::{AtomicBool, Ordering},
    time::Duration,
};

use frpc::{
    Channel, Code, Request, Response, Server, Status,
    prost_types::{self, Any},
};
use hello_world::{
    HelloReply, HelloRequest,
    greeter_client::GreeterClient,
    greeter_server::{Greeter, GreeterServer},
};
use tokio::time::sleep;

/// Made of `proto/helloworld.proto`.
pub mod hello_world {
    frpc::include_proto!("helloworld");
}

/// Is busy once.
#[derive(Default)]
struct Host {
    was_asked: AtomicBool,
}

impl Greeter for Host {
    async fn say_hello(&self, request: Request<HelloRequest>) -> Result<Response<HelloReply>, Status> {
        if !self.was_asked.swap(true, Ordering::Relaxed) {
            let wait = prost_types::Duration { seconds: 0, nanos: 50_000_000 };
            let details = Any::from_msg(&wait).map_err(|error| Status::internal(error.to_string()))?;
            return Err(Status::with_error_details(Code::Unavailable, "busy just now", [details]));
        }
        Ok(HelloReply { message: format!("Hello {}!", request.into_inner().name) }.into())
    }
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let server = Server::builder().add_service(GreeterServer::new(Host::default())).bind("tcp://127.0.0.1:0").await?;
    let client = GreeterClient::new(Channel::connect(server.local_addr()).await?);
    loop {
        let status = match client.say_hello(HelloRequest { name: "world".into() }).await {
            Ok(reply) => {
                println!("{}", reply.into_inner().message);
                return Ok(());
            }
            Err(status) => status,
        };
        let Some(wait) = status.error_detail::<prost_types::Duration>() else { return Err(status.into()) };
        let wait = Duration::try_from(wait)?;
        println!("{status}, again in {wait:?}");
        sleep(wait).await;
    }
}
