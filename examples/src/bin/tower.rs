//! Middleware of tower around the calls of a server: a limit and a timeout of tower, and a service of its own.

use std::{
    error::Error,
    pin::Pin,
    task::{Context, Poll},
    time::{Duration, Instant},
};

use frpc::{
    Request, Response, Server, Status,
    layers::{self, TowerCall},
};
use hello_world::{
    HelloReply, HelloRequest,
    greeter_client::GreeterClient,
    greeter_server::{Greeter, GreeterServer},
};
use tower::{Service, ServiceBuilder, layer::layer_fn};

/// Generated from `proto/helloworld.proto`.
pub mod hello_world {
    frpc::include_proto!("helloworld");
}

struct Host;

impl Greeter for Host {
    async fn say_hello(&self, request: Request<HelloRequest>) -> Result<Response<HelloReply>, Status> {
        Ok(HelloReply { message: format!("Hello {}!", request.into_inner().name) }.into())
    }
}

/// Prints the time of each call.
#[derive(Clone)]
struct Stopwatch<S>(S);

impl<S> Service<TowerCall> for Stopwatch<S>
where
    S: Service<TowerCall, Future: Send + 'static>,
{
    type Response = S::Response;
    type Error = S::Error;
    type Future = Pin<Box<dyn Future<Output = Result<S::Response, S::Error>> + Send>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.0.poll_ready(context)
    }

    fn call(&mut self, call: TowerCall) -> Self::Future {
        let (method, start) = (call.get_ref().method(), Instant::now());
        let answer = self.0.call(call);
        Box::pin(async move {
            let answer = answer.await;
            println!("{method} took {:?}", start.elapsed());
            answer
        })
    }
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let stack = ServiceBuilder::new()
        .concurrency_limit(100)
        .timeout(Duration::from_secs(30))
        .layer(layer_fn(Stopwatch))
        .into_inner();
    let server = Server::builder()
        .layer(layers::tower(stack))
        .add_service(GreeterServer::new(Host))
        .bind("tcp://127.0.0.1:0")
        .await?;
    let client = GreeterClient::connect(server.local_addr()).await?;
    println!("{}", client.say_hello(HelloRequest { name: "world".into() }).await?.into_inner().message);
    Ok(())
}
