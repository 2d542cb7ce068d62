//! Errors.

use frpc::{CallError, Channel, Code};

use crate::{
    Host, Outcome,
    hello_world::{HelloRequest, greeter_client::GreeterClient, greeter_server::GreeterServer},
};

pub(crate) async fn run() -> Outcome {
    let greeter = GreeterClient::new(Channel::in_process(GreeterServer::new(Host)));
    let request = HelloRequest::default();
    // ANCHOR: match
    match greeter.say_hello(request).await {
        Ok(reply) => println!("{}", reply.into_inner().message),
        Err(status) if status.code() == Code::InvalidArgument => println!("{}", status.message()),
        Err(status) if status.call_error().is_some_and(CallError::is_safe_to_repeat) => println!("never executed"),
        Err(status) => return Err(status.into()),
    }
    // ANCHOR_END: match
    Ok(())
}
