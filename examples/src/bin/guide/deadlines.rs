//! Deadlines.

use std::time::Duration;

use frpc::{CallSettings, Channel, Code, Request, Response, Server, Status, TimeLimits};

use crate::{
    Outcome,
    hello_world::{
        HelloReply, HelloRequest,
        greeter_client::GreeterClient,
        greeter_server::{Greeter, GreeterServer},
    },
};

/// Works without an end.
struct Slow;

impl Greeter for Slow {
    async fn say_hello(&self, _: Request<HelloRequest>) -> Result<Response<HelloReply>, Status> {
        std::future::pending().await
    }
}

pub(crate) async fn run() -> Outcome {
    // ANCHOR: server
    let times = TimeLimits { max: Some(Duration::from_secs(10)), ..TimeLimits::default() };
    let server = Server::builder()
        .calls(CallSettings { times, ..CallSettings::default() })
        .add_service(GreeterServer::new(Slow))
        .bind("tcp://127.0.0.1:0")
        .await?;
    // ANCHOR_END: server
    let client = GreeterClient::new(Channel::connect(server.local_addr()).await?);
    // ANCHOR: call
    let mut request = Request::new(HelloRequest { name: "Ada".into() });
    request.set_timeout(Duration::from_millis(100));
    let status = client.say_hello(request).await.expect_err("the handler never ends");
    assert_eq!(status.code(), Code::DeadlineExceeded);
    // ANCHOR_END: call
    Ok(())
}
