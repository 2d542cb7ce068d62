//! Makes one call. Usage: `client [PERSON [ADDRESS]]`

use std::{env, error::Error};

use frpc::Channel;

use CRATE::greeter::{HelloRequest, greeter_client::GreeterClient};

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let name = env::args().nth(1).unwrap_or("world".into());
    let address = env::args().nth(2).unwrap_or("tcp://127.0.0.1:7300".into());
    // The transport is for addresses such as `grpc://127.0.0.1:7300`.
    let channel = Channel::builder()
        .transport(frpc_http::transport())
        .connect(&*address)
        .await?;
    let reply = GreeterClient::new(channel)
        .say_hello(HelloRequest { name })
        .await?;
    println!("{}", reply.into_inner().message);
    Ok(())
}
