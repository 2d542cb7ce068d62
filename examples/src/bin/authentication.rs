//! A token in the metadata of every call. A client interceptor adds it. A server interceptor checks it and passes the
//! user to handlers.

use std::error::Error;

use frpc::{Call, Channel, Code, Request, Response, Server, Status, interceptor};
use hello_world::{
    HelloReply, HelloRequest,
    greeter_client::GreeterClient,
    greeter_server::{Greeter, GreeterServer},
};

/// Generated from `proto/helloworld.proto`.
pub mod hello_world {
    frpc::include_proto!("helloworld");
}

/// The owner of a token.
struct User(&'static str);

struct Host;

impl Greeter for Host {
    // ANCHOR: handler
    async fn say_hello(&self, request: Request<HelloRequest>) -> Result<Response<HelloReply>, Status> {
        let User(user) = request.extensions().get().ok_or_else(|| Status::internal("the interceptor is missing"))?;
        Ok(HelloReply { message: format!("Hello {}, says {user}!", request.get_ref().name) }.into())
    }
    // ANCHOR_END: handler
}

// ANCHOR: check
fn check(call: &mut Call) -> Result<(), Status> {
    let user = match call.head().metadata().get("authorization") {
        Some("Bearer ada's secret") => User("Ada"),
        Some(_) => return Err(Status::unauthenticated("the token is not known")),
        None => return Err(Status::unauthenticated("there is no token")),
    };
    call.head_mut().extensions_mut().insert(user);
    Ok(())
}
// ANCHOR_END: check

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    // ANCHOR: server
    let server = Server::builder()
        .layer(interceptor(check))
        .add_service(GreeterServer::new(Host))
        .bind("tcp://127.0.0.1:0")
        .await?;
    // ANCHOR_END: server
    let channel = Channel::connect(server.local_addr()).await?;

    let refused = GreeterClient::new(channel.clone()).say_hello(HelloRequest { name: "Bob".into() }).await;
    let status = refused.expect_err("there is no token");
    assert_eq!(status.code(), Code::Unauthenticated);
    println!("without a token: {status}");

    // ANCHOR: client
    let with_token = interceptor(|call: &mut Call| {
        Ok(call.head_mut().metadata_mut().insert("authorization", "Bearer ada's secret")?)
    });
    let client = GreeterClient::new(channel.layer(with_token));
    // ANCHOR_END: client
    let reply = client.say_hello(HelloRequest { name: "Bob".into() }).await?;
    println!("with a token: {}", reply.into_inner().message);
    Ok(())
}
