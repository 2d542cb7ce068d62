//! Tests of a client without a server: a generated mock checks requests and chooses answers, and a service of your own
//! runs in process.

use std::error::Error;

use frpc::{Channel, Code, Request, Response, Status};
use hello_world::{
    HelloReply, HelloRequest,
    greeter_client::GreeterClient,
    greeter_mock::MockGreeter,
    greeter_server::{Greeter, GreeterServer},
};

/// Generated from `proto/helloworld.proto`, with mocks.
pub mod hello_world {
    frpc::include_proto!("helloworld");
}

/// The code under test: greets again after an overload.
async fn greet(client: &GreeterClient, name: &str) -> Result<String, Status> {
    let request = HelloRequest { name: name.to_owned() };
    let reply = match client.say_hello(request.clone()).await {
        Err(status) if status.code() == Code::ResourceExhausted => client.say_hello(request).await?,
        other => other?,
    };
    Ok(reply.into_inner().message)
}

struct Host;

impl Greeter for Host {
    async fn say_hello(&self, request: Request<HelloRequest>) -> Result<Response<HelloReply>, Status> {
        Ok(HelloReply { message: format!("Hello {}!", request.into_inner().name) }.into())
    }
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    // ANCHOR: mock
    let mock = MockGreeter::new();
    let ada = HelloRequest { name: "Ada".into() };
    mock.expect_say_hello().with(ada.clone()).times(1).failing(Status::resource_exhausted("too many greetings"));
    mock.expect_say_hello().with(ada).times(1).answering(HelloReply { message: "Hello again, Ada!".into() });
    println!("mock: {}", greet(&GreeterClient::new(mock.channel()), "Ada").await?);
    mock.verify();
    // ANCHOR_END: mock

    let channel = Channel::in_process(GreeterServer::new(Host));
    println!("in process: {}", greet(&GreeterClient::new(channel), "Bob").await?);
    Ok(())
}
