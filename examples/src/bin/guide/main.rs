//! The code of the pages in `docs/guide`, one module per page. Each function runs the code that its page shows.
//!
//! Usage: `guide`

use std::error::Error;

use frpc::{Request, Response, Status};
use hello_world::{HelloReply, HelloRequest, greeter_server::Greeter};

mod channels;
mod deadlines;
mod errors;
mod layers;
mod nats;
mod streams;
mod testing;
mod wires;

/// Generated from `proto/helloworld.proto`.
pub mod hello_world {
    frpc::include_proto!("helloworld");
}

/// Generated from `proto/routeguide.proto`.
pub mod route_guide {
    frpc::include_proto!("routeguide");
}

type Outcome = Result<(), Box<dyn Error + Send + Sync>>;

struct Host;

impl Greeter for Host {
    async fn say_hello(&self, request: Request<HelloRequest>) -> Result<Response<HelloReply>, Status> {
        let name = request.into_inner().name;
        if name.is_empty() {
            return Err(Status::invalid_argument("a greeting needs a name"));
        }
        Ok(HelloReply { message: format!("Hello {name}!") }.into())
    }
}

#[tokio::main]
async fn main() -> Outcome {
    channels::run().await?;
    deadlines::run().await?;
    errors::run().await?;
    layers::run().await?;
    nats::run().await?;
    streams::run().await?;
    testing::run().await?;
    wires::run().await?;
    println!("the code of the guide works");
    Ok(())
}
