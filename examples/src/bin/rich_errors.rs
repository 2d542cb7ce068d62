//! Errors with machine-readable details: invalid fields, and a retry after the delay requested by the server.

use std::{
    error::Error,
    sync::atomic::{AtomicBool, Ordering},
    time::Duration,
};

use frpc::{Channel, Code, Request, Response, Server, Status};
use frpc_types::{ErrorDetails, RetryInfo, StatusExt};
use hello_world::{
    HelloReply, HelloRequest,
    greeter_client::GreeterClient,
    greeter_server::{Greeter, GreeterServer},
};
use tokio::time::sleep;

/// Generated from `proto/helloworld.proto`.
pub mod hello_world {
    frpc::include_proto!("helloworld");
}

/// Refuses the first call as busy.
#[derive(Default)]
struct Host {
    was_asked: AtomicBool,
}

impl Greeter for Host {
    async fn say_hello(&self, request: Request<HelloRequest>) -> Result<Response<HelloReply>, Status> {
        let name = request.into_inner().name;
        // ANCHOR: details
        let mut details = ErrorDetails::new();
        if name.is_empty() {
            details.add_bad_request_violation("name", "must not be empty");
        }
        if name.len() > 20 {
            details.add_bad_request_violation("name", "must not be longer than 20 bytes");
        }
        if details.has_bad_request_violations() {
            return Err(Status::with_error_details(Code::InvalidArgument, "the request is not valid", details));
        }
        // ANCHOR_END: details
        if !self.was_asked.swap(true, Ordering::Relaxed) {
            details.set_retry_info(Duration::from_millis(50));
            return Err(Status::with_error_details(Code::Unavailable, "busy just now", details));
        }
        Ok(HelloReply { message: format!("Hello {name}!") }.into())
    }
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let server = Server::builder().add_service(GreeterServer::new(Host::default())).bind("tcp://127.0.0.1:0").await?;
    let client = GreeterClient::new(Channel::connect(server.local_addr()).await?);
    if let Err(status) = client.say_hello(HelloRequest { name: String::new() }).await {
        let details = status.get_error_details();
        for violation in details.bad_request().iter().flat_map(|request| &request.field_violations) {
            println!("{status}: {} {}", violation.field, violation.description);
        }
    }
    loop {
        let status = match client.say_hello(HelloRequest { name: "world".into() }).await {
            Ok(reply) => {
                println!("{}", reply.into_inner().message);
                return Ok(());
            }
            Err(status) => status,
        };
        // Read a single detail.
        let retry: Option<RetryInfo> = status.error_detail();
        let Some(wait) = retry.and_then(|retry| retry.delay()) else { return Err(status.into()) };
        println!("{status}, again in {wait:?}");
        sleep(wait).await;
    }
}
