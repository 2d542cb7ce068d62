//! Channels to servers found in Kubernetes.

#![cfg(target_os = "linux")]

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use frpc::{Channel, Server};
use frpc_http::Http;
use frpc_kubernetes::KubernetesResolvers;
use serde_json::{Value, json};
use support::{
    calls::{TestClient, TestServer, TestService, ask},
    in_real_time,
};
use tokio::sync::Semaphore;

use crate::{fake::FakeApi, hasty};

/// A slice of pods on addresses of this machine, all of them the same server.
fn slice(name: &str, numbers: std::ops::Range<u8>, server: &Server) -> Value {
    let port = server.local_addr().socket_addr().unwrap().port();
    let endpoints: Vec<_> = numbers.map(|number| json!({"addresses": [format!("127.1.0.{number}")]})).collect();
    json!({
        "metadata": {"name": name, "resourceVersion": "6"}, "addressType": "IPv4", "endpoints": endpoints,
        "ports": [{"name": "grpc", "port": port}]
    })
}

async fn serve() -> Server {
    let server = Server::builder().add_service(TestServer::new(TestService::default())).wire(Http::new());
    server.bind("tcp://0.0.0.0:0").await.unwrap()
}

#[test]
fn a_deploy_of_250_pods_loses_no_call() {
    in_real_time(async {
        for scheme in ["kubernetes", "kubernetes+grpc"] {
            let [old, new] = [serve().await, serve().await];
            let slices = [("a", 1..101), ("b", 101..201), ("c", 201..251)];
            let mut api = FakeApi::listen().await;
            let channel = Channel::builder()
                .transport(frpc_http::transport())
                .resolver(KubernetesResolvers::new(api.config()).settings(hasty()))
                .connect(format!("{scheme}:///orders.shop:grpc"));
            let items: Vec<_> = slices.iter().map(|(name, pods)| slice(name, pods.clone(), &old)).collect();
            let list = json!({"metadata": {"resourceVersion": "5"}, "items": items}).to_string();
            let (channel, ()) = tokio::join!(channel, api.list(list));
            let client = TestClient::new(channel.unwrap());
            ask(&client, "hi").await.unwrap();

            let (is_over, answered) = (Arc::new(AtomicBool::new(false)), Arc::new(Semaphore::new(0)));
            let calls = tokio::spawn({
                let (is_over, answered) = (is_over.clone(), answered.clone());
                async move {
                    while !is_over.load(Ordering::Relaxed) {
                        assert_eq!(ask(&client, "hi").await.unwrap(), "hi");
                        answered.add_permits(1);
                    }
                }
            });
            let mut watch = api.watch("5").await;
            for (name, pods) in slices {
                let event = json!({"type": "MODIFIED", "object": slice(name, pods, &new)});
                watch.send(event.to_string() + "\n").await;
            }
            // Of more than 100 servers, a channel uses a random part.
            while new.metrics().accepted < 100 && !calls.is_finished() {
                tokio::task::yield_now().await;
            }
            old.shutdown(Duration::MAX).await;
            answered.forget_permits(usize::MAX);
            answered.acquire_many(100).await.unwrap().forget();
            is_over.store(true, Ordering::Relaxed);
            calls.await.unwrap();
        }
    });
}
