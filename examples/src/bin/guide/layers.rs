//! Layers and metadata.

use std::time::Duration;

use frpc::{
    Answer, Call, Channel, Layer, Next, Request, Response, Server, Status, interceptor,
    layers::{Timeout, Trace},
};

use crate::{
    Host, Outcome,
    hello_world::{
        HelloReply, HelloRequest,
        greeter_client::GreeterClient,
        greeter_server::{Greeter, GreeterServer},
    },
};

// ANCHOR: layer
struct Stopwatch;

impl Layer for Stopwatch {
    async fn call(&self, call: Call, next: Next<'_>) -> Result<Answer, Status> {
        let (method, start) = (call.method(), std::time::Instant::now());
        let answer = next.run(call).await;
        println!("{method} took {:?}", start.elapsed());
        answer
    }
}
// ANCHOR_END: layer

// ANCHOR: checked
struct Checked<T>(T);

impl<T: Greeter> Greeter for Checked<T> {
    async fn say_hello(&self, request: Request<HelloRequest>) -> Result<Response<HelloReply>, Status> {
        if request.get_ref().name.len() > 100 {
            return Err(Status::invalid_argument("the name is too long"));
        }
        self.0.say_hello(request).await
    }
}
// ANCHOR_END: checked

pub(crate) async fn run() -> Outcome {
    // ANCHOR: server
    let known = interceptor(|call: &mut Call| match call.peer_addr() {
        Some(_) => Ok(()),
        None => Err(Status::unauthenticated("the address of the caller is unknown")),
    });
    let server = Server::builder()
        .layer(Trace::new())
        .layer(known)
        .layer(Timeout::new(Duration::from_secs(10)))
        .layer(Stopwatch)
        .add_service(GreeterServer::new(Checked(Host)))
        .bind("tcp://127.0.0.1:0")
        .await?;
    // ANCHOR_END: server
    let client = GreeterClient::new(Channel::connect(server.local_addr()).await?);
    let trace = [1_u8, 2];
    // ANCHOR: metadata
    let mut request = Request::new(HelloRequest { name: "Ada".into() });
    request.metadata_mut().insert("x-request-id", "7")?;
    request.metadata_mut().insert_bin("trace-bin", trace)?;
    let reply = client.say_hello(request).await?;
    println!("served by {:?}", reply.metadata().get("x-server"));
    // ANCHOR_END: metadata
    Ok(())
}
