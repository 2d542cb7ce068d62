//! Tests without a socket.

use frpc::Channel;

use crate::{
    Host, Outcome,
    hello_world::{HelloRequest, greeter_client::GreeterClient, greeter_server::GreeterServer},
};

pub(crate) async fn run() -> Outcome {
    // ANCHOR: in_process
    let greeter = GreeterClient::new(Channel::in_process(GreeterServer::new(Host)));
    let reply = greeter.say_hello(HelloRequest { name: "Ada".into() }).await?;
    assert_eq!(reply.into_inner().message, "Hello Ada!");
    // ANCHOR_END: in_process
    Ok(())
}
