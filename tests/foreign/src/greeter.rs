//! The greeter of the examples.

use frpc::{Request, Response, Status};

use crate::protos::helloworld::{HelloReply, HelloRequest, greeter_server::Greeter};

/// Greets everybody but nobody.
#[derive(Clone, Copy, Debug, Default)]
pub struct Host;

impl Greeter for Host {
    async fn say_hello(&self, request: Request<HelloRequest>) -> Result<Response<HelloReply>, Status> {
        let name = request.into_inner().name;
        if name.is_empty() {
            return Err(Status::invalid_argument("who is there?"));
        }
        Ok(HelloReply { message: format!("Hello {name}!") }.into())
    }
}
