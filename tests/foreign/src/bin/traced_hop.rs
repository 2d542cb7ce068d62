//! A process in a chain of traced calls: `traced_hop NAME COLLECTOR [TARGET]` serves a greeter on all wires, and passes its
//! calls on to the greeter of the target. Prints its port, and ends with its input.

use std::{env, error::Error, time::Duration};

use foreign::{
    Host,
    protos::helloworld::{
        HelloReply, HelloRequest,
        greeter_client::GreeterClient,
        greeter_server::{Greeter, GreeterServer},
    },
};
use frpc::{Address, Channel, Request, Response, Server, Status, layers::Trace};
use frpc_http::Http;
use frpc_opentelemetry::{OtlpSettings, OtlpSpans, TraceBridge};
use opentelemetry_sdk::trace::SdkTracerProvider;
use tokio::io::{AsyncReadExt, stdin};
use tracing_subscriber::layer::SubscriberExt;

struct PassOn(GreeterClient);

impl Greeter for PassOn {
    async fn say_hello(&self, request: Request<HelloRequest>) -> Result<Response<HelloReply>, Status> {
        self.0.say_hello(request.into_inner()).await
    }
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let mut args = env::args().skip(1);
    let (Some(name), Some(endpoint)) = (args.next(), args.next()) else {
        return Err("expected NAME COLLECTOR [TARGET]".into());
    };
    let resource = vec![("service.name".to_owned(), name)];
    let spans = OtlpSpans::start(&OtlpSettings { endpoint, resource, ..OtlpSettings::default() })?;
    let bridge = TraceBridge::new(SdkTracerProvider::builder().with_batch_exporter(spans));
    tracing::subscriber::set_global_default(tracing_subscriber::registry().with(bridge.layer()))?;

    let builder = Server::builder().wire(Http::new()).layer(Trace::new());
    let server = match args.next() {
        None => builder.add_service(GreeterServer::new(Host)).bind("tcp://127.0.0.1:0").await?,
        Some(target) => {
            let channel = Channel::builder().transport(frpc_http::transport()).layer(Trace::for_channel());
            let next = PassOn(GreeterClient::new(channel.connect(target).await?));
            builder.add_service(GreeterServer::new(next)).bind("tcp://127.0.0.1:0").await?
        }
    };
    if let Address::Tcp(addr) = server.local_addr() {
        println!("{}", addr.port());
    }
    stdin().read_to_end(&mut Vec::new()).await?;
    server.shutdown(Duration::from_secs(5)).await;
    tokio::task::spawn_blocking(move || bridge.provider().shutdown()).await??;
    Ok(())
}
