//! RPC clients written in Go against our server.

use std::time::Duration;

use frisbee::HeaderFormat;
use frpc::{Dispatch, Engine, Server};
use support::{
    GoPeers, Identity,
    interop::{
        Service,
        schema::{interop_server::InteropServer, second_server::SecondServer},
    },
};

use crate::{WIRES, all, engines, name, run_client, settings};

#[tokio::test(flavor = "multi_thread")]
async fn go_clients_are_content_with_our_services() {
    let Some(go) = GoPeers::build() else { return };
    let (mut busy, mut idle) = (Vec::new(), Vec::new());
    for (header, tls) in WIRES {
        for dispatch in [Dispatch::InPlace, Dispatch::Ordered, Dispatch::Spawned] {
            for engine in engines() {
                let name = format!("{} {dispatch:?} {engine:?}", name(header, tls));
                busy.push((name.clone(), serve(go, name, header, tls, dispatch, engine, "-quick")));
            }
        }
    }
    for (engine, header, tls) in settings() {
        let name = format!("{} {engine:?} idle", name(header, tls));
        idle.push((name.clone(), serve(go, name, header, tls, Dispatch::Spawned, engine, "-idle")));
    }
    all(busy, idle).await;
}

async fn serve(
    go: GoPeers,
    name: String,
    header: HeaderFormat,
    tls: bool,
    dispatch: Dispatch,
    engine: Engine,
    part: &'static str,
) {
    let builder = Server::builder().dispatch(dispatch).engine(engine);
    let mut builder = builder.add_service(InteropServer::new(Service)).add_service(SecondServer::new(Service));
    let mut client = go.command("rpc-client", header);
    client.arg(part);
    let certificate = tls.then(|| {
        let identity = Identity::new();
        (identity.pem_file(), identity)
    });
    if let Some((file, identity)) = &certificate {
        builder = builder.tls(identity.server());
        client.arg("-tls-ca").arg(file.path());
    }
    let server = builder.bind("tcp://127.0.0.1:0").await.expect("some port is free");
    let is_promised = |check: &str| dispatch != Dispatch::Ordered || !check.contains(AT_ONCE);
    let addr = server.local_addr().socket_addr().expect("it listens on TCP");
    run_client(&name, client.arg(addr.to_string()), is_promised).await;
    assert_eq!(server.shutdown(Duration::from_secs(5)).await, 0, "connections outlived their client");
}

/// The check of the Go client that fails if handlers run one after the other.
const AT_ONCE: &str = "40 calls at once";
