//! Channels, TLS, engines and peers in Go.

use std::time::Duration;

use examples::certificates::Authority;
use frisbee::HeaderFormat;
use frpc::{
    CallLimitPolicy, Channel, ChannelCallSettings, ClientTls, Config, ConnectRetry, Engine, Pem, Server, ServerTls,
};

use crate::{
    Host, Outcome,
    hello_world::{HelloRequest, greeter_client::GreeterClient, greeter_server::GreeterServer},
};

pub(crate) async fn run() -> Outcome {
    let identity = Authority::new("ours")?;
    let host = identity.issue("localhost")?;
    let folder = std::env::temp_dir().join(format!("frpc-guide-{}", std::process::id()));
    std::fs::create_dir(&folder)?;
    for (name, pem) in [("ca.pem", identity.pem()), ("server.pem", host.certificate), ("server.key", host.key)] {
        std::fs::write(folder.join(name), pem)?;
    }
    let [ca, certificate, key] = ["ca.pem", "server.pem", "server.key"].map(|name| folder.join(name));

    // ANCHOR: tls
    let server = Server::builder()
        .tls(ServerTls::new(Pem::file(certificate), Pem::file(key))?)
        .add_service(GreeterServer::new(Host))
        .bind("tcp://localhost:0")
        .await?;
    let tls = ClientTls::with_roots(Pem::file(ca))?;
    // ANCHOR_END: tls
    let address = format!("tcp://localhost:{}", server.local_addr().socket_addr().ok_or("it listens on TCP")?.port());

    // ANCHOR: channel
    let channel = Channel::builder()
        .tls(tls)
        .connect_timeout(Duration::from_secs(1))
        .retry(ConnectRetry { attempts: 3, ..ConnectRetry::default() })
        .timeout(Duration::from_secs(5))
        .config(Config { ping_interval: Some(Duration::from_secs(1)), ..Config::default() })
        .calls(ChannelCallSettings {
            calls_max: 1024,
            when_full: CallLimitPolicy::Fail,
            ..ChannelCallSettings::default()
        })
        .connect(&*address)
        .await?;
    // ANCHOR_END: channel
    GreeterClient::new(channel).say_hello(HelloRequest { name: "Ada".into() }).await?;
    std::fs::remove_dir_all(&folder)?;

    // ANCHOR: shutdown
    let cut = server.shutdown(Duration::from_secs(10)).await;
    // ANCHOR_END: shutdown
    println!("{cut} connections were cut");

    let service = GreeterServer::new(Host);
    // ANCHOR: engine
    let engine = Engine::Uring.choose().unwrap_or(Engine::PerCore);
    let server = Server::builder().engine(engine).add_service(service).bind("127.0.0.1:0").await?;
    println!("served by {}", server.engine());
    // ANCHOR_END: engine

    // ANCHOR: header
    let config = Config { header: Some(HeaderFormat::Plain8), ..Config::default() };
    let client = frisbee::Client::new(()).config(config);
    // ANCHOR_END: header
    client.connect(server.local_addr()).await?;
    Ok(())
}
