//! An HTTP health check on the port of an RPC server, for load balancers that only speak HTTP, and layers around the
//! calls.

use std::{error::Error, time::Duration};

use frpc::{
    Call, Channel, Drain, Endpoint, ProtocolMatch, Raw, Request, Response, Server, Status, Wire, interceptor,
    layers::{Timeout, Trace},
};
use hello_world::{
    HelloReply, HelloRequest,
    greeter_client::GreeterClient,
    greeter_server::{Greeter, GreeterServer},
};
use tokio::{
    io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader},
    net::TcpStream,
};

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

/// Answers any GET request: 200 while the server is running, 503 during its shutdown.
struct Health;

impl Wire for Health {
    fn recognize(&self, first: &[u8], _alpn: Option<&[u8]>) -> ProtocolMatch {
        ProtocolMatch::by_prefix(first, b"GET ")
    }

    async fn serve(&self, socket: Raw, endpoint: Endpoint, drain: Drain) {
        let mut socket = BufReader::new(socket).take(HEAD_LEN_MAX);
        let mut line = String::new();
        // Read up to the empty line after the request headers.
        while socket.read_line(&mut line).await.is_ok_and(|len| len > 2) {
            line.clear();
        }
        let status = if drain.is_requested() { "503 Service Unavailable" } else { "200 OK" };
        let body = format!("methods: {}\n", endpoint.methods().count());
        let head = format!("HTTP/1.1 {status}\r\ncontent-length: {}\r\nconnection: close\r\n\r\n", body.len());
        // The load balancer may be gone. Then the answer is not needed.
        let _ = socket.get_mut().write_all((head + &body).as_bytes()).await;
        let _ = socket.get_mut().shutdown().await;
    }
}

const HEAD_LEN_MAX: u64 = 16 * 1024;

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let polite = interceptor(|call: &mut Call| match call.body().content_len() {
        Some(len) if len > 1000 => Err(Status::invalid_argument("that is a long name")),
        _ => Ok(()),
    });
    let server = Server::builder()
        .wire(Health)
        .layer(Trace::new())
        .layer(Timeout::new(Duration::from_secs(1)))
        .layer(polite)
        .add_service(GreeterServer::new(Host))
        .bind("tcp://127.0.0.1:0")
        .await?;
    let addr = server.local_addr().socket_addr().ok_or("it listens on TCP")?;
    println!("server: listening on {addr}");

    let mut http = TcpStream::connect(addr).await?;
    http.write_all(b"GET /healthz HTTP/1.1\r\nhost: localhost\r\n\r\n").await?;
    let mut answer = String::new();
    http.read_to_string(&mut answer).await?;
    println!("health: {}", answer.lines().next().unwrap_or_default());

    let greeter = GreeterClient::new(Channel::connect(server.local_addr()).await?);
    println!("client: {}", greeter.say_hello(HelloRequest { name: "Ada".into() }).await?.into_inner().message);
    let refused = greeter.say_hello(HelloRequest { name: "Ada".repeat(1000) }).await;
    println!("client: {}", refused.err().ok_or("it should be refused")?);
    server.shutdown(Duration::from_secs(5)).await;
    Ok(())
}
