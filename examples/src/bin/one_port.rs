//! An RPC service and custom packets on one port: an agent calls the server and sends it one-way measurements on the
//! same connection.

use std::{
    error::Error,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use frpc::{Channel, HandlerTable, Operation, Packet, Request, Response, Server, Status, Unimplemented};
use hello_world::{
    HelloReply, HelloRequest,
    greeter_client::GreeterClient,
    greeter_server::{Greeter, GreeterServer},
};

/// Generated from `proto/helloworld.proto`.
pub mod hello_world {
    frpc::include_proto!("helloworld");
}

/// Far above the operation numbers of methods, which start at 10.
const MEASUREMENT: Operation = Operation::new(1000).unwrap();

struct Host {
    sum: Arc<AtomicU64>,
}

impl Greeter for Host {
    async fn say_hello(&self, request: Request<HelloRequest>) -> Result<Response<HelloReply>, Status> {
        let (name, sum) = (request.into_inner().name, self.sum.load(Ordering::Relaxed));
        Ok(HelloReply { message: format!("Hello {name}, the sum is {sum}!") }.into())
    }
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let sum = Arc::new(AtomicU64::new(0));
    // `Unimplemented` answers all packets other than calls and measurements.
    let packets = HandlerTable::over(Unimplemented).on(MEASUREMENT, {
        let sum = sum.clone();
        move |packet: Packet| {
            if let Ok(bytes) = packet.content[..].try_into() {
                sum.fetch_add(u64::from_be_bytes(bytes), Ordering::Relaxed);
            }
            async {}
        }
    });
    let greeter = GreeterServer::new(Host { sum });
    let server = Server::builder().add_service(greeter).router(packets).bind("tcp://127.0.0.1:0").await?;
    println!("server: listening on {}", server.local_addr());

    let channel = Channel::connect(server.local_addr()).await?;
    let connection = channel.connection().ok_or("there is none within the process")?;
    for value in [20_u64, 1, 21] {
        connection.send(Packet::new(0, MEASUREMENT, value.to_be_bytes().to_vec())).await?;
    }
    // Packets and calls of a connection arrive in order.
    let reply = GreeterClient::new(channel).say_hello(HelloRequest { name: "agent".into() }).await?;
    println!("client: {}", reply.into_inner().message);
    server.shutdown(Duration::from_secs(1)).await;
    Ok(())
}
