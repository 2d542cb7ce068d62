//! The service of this project.

use frpc::{Request, Response, ServeError, Server, Status};
use frpc_http::Http;
use frpc_services::{Health, Reflection};

use greeter::{
    HelloReply, HelloRequest,
    greeter_server::{Greeter, GreeterServer},
};

/// Generated from `proto/greeter.proto`.
pub mod greeter {
    frpc::include_proto!("greeter");
}

/// Implements the service.
pub struct GreeterService;

impl Greeter for GreeterService {
    async fn say_hello(
        &self,
        request: Request<HelloRequest>,
    ) -> Result<Response<HelloReply>, Status> {
        let name = request.into_inner().name;
        if name.is_empty() {
            return Err(Status::invalid_argument("a greeting needs a name"));
        }
        Ok(HelloReply {
            message: format!("Hello {name}!"),
        }
        .into())
    }
}

/// Starts a server. One port serves fRPC, gRPC, gRPC-Web, Connect and WebSocket.
pub async fn serve(address: &str) -> Result<Server, ServeError> {
    Server::builder()
        .add_service(GreeterServer::new(GreeterService))
        .add_service(Health::new())
        .add_service(Reflection::v1())
        .wire(Http::new())
        .bind(address)
        .await
}
