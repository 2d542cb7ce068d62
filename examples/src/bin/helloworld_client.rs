//! Requests a greeting, and shows the error for a missing name. Usage: `helloworld_client [ADDRESS [NAME]]`

use std::{env, error::Error};

use hello_world::{HelloRequest, greeter_client::GreeterClient};

/// Generated from `proto/helloworld.proto`.
pub mod hello_world {
    frpc::include_proto!("helloworld");
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = env::args().skip(1);
    let address = arguments.next().unwrap_or("tcp://127.0.0.1:50051".into());
    let name = arguments.next().unwrap_or("world".into());

    let client = GreeterClient::connect(address).await?;
    let reply = client.say_hello(HelloRequest { name }).await?;
    println!("{}", reply.into_inner().message);

    match client.say_hello(HelloRequest::default()).await {
        Ok(reply) => Err(format!("nobody was greeted: {reply:?}").into()),
        Err(status) => {
            println!("without a name: {status}");
            Ok(())
        }
    }
}
