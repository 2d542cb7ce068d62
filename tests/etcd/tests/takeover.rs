//! The etcd proxy of the examples, whose sessions are those of the crate etcd-client.
#![allow(clippy::unwrap_used, reason = "a test that panics has failed")]

use std::{
    collections::HashMap,
    future::ready,
    io,
    sync::{Arc, Mutex},
    time::Duration,
};

use etcd_client::{Client, Error, EventType, GetOptions, Permission, WatchOptions};
use examples::gate::{
    Account, Limits, Proxy,
    etcd::Etcd,
    proto::{LogInRequest, OpenDatabaseRequest, gate_client::GateClient, gate_server::GateServer},
};
use frpc::{Address, Channel, Raw, Server};
use http::{HeaderValue, Request};
use hyper_util::rt::TokioIo;
use support::{EtcdServer, in_real_time};
use tonic::{Code, transport::Endpoint};
use tower::{BoxError, ServiceExt, util::BoxCloneSyncService};

#[test]
fn etcd_client_continues_on_a_taken_over_socket() {
    in_real_time(async {
        let Some(etcd) = EtcdServer::start().await else { return };
        let mut root = Client::connect([etcd.addr.to_string()], None).await.unwrap();
        for (name, password) in [("root", "of all"), ("ada", PASSWORD)] {
            root.user_add(name, password, None).await.unwrap();
            root.role_add(name).await.unwrap();
            root.user_grant_role(name, name).await.unwrap();
        }
        root.role_grant_permission("ada", Permission::read_write("ada/").with_prefix()).await.unwrap();
        root.auth_enable().await.unwrap();

        let account = Account { role: "ada".into(), password: PASSWORD.into(), databases: vec!["etcd".into()] };
        let accounts = HashMap::from([("ada's secret".to_owned(), account)]);
        let proxy = Proxy::new(Etcd, Address::Tcp(etcd.addr), accounts, Limits::default());
        let server = Server::builder().add_service(GateServer::new(proxy.clone())).router(proxy.clone());
        let server = server.wire(proxy.clone()).bind("tcp://127.0.0.1:0").await.unwrap();

        let gate = GateClient::new(Channel::connect(server.local_addr()).await.unwrap());
        gate.log_in(LogInRequest { token: "ada's secret".into() }).await.unwrap();
        let opened = gate.open_database(OpenDatabaseRequest { database: "etcd".into() }).await.unwrap().into_inner();
        let raw = gate.into_raw().await.unwrap();
        let mut client = Client::from_channel(channel(raw, &opened.token).await, None).await.unwrap();

        let mut watched = client.watch("ada/", Some(WatchOptions::new().with_prefix())).await.unwrap();
        let long = vec![7; 1_000_000];
        client.put("ada/long", long.clone(), None).await.unwrap();
        for number in 0..10 {
            client.put(format!("ada/{number}"), number.to_string(), None).await.unwrap();
        }
        let found = client.get("ada/", Some(GetOptions::new().with_prefix())).await.unwrap();
        assert_eq!(found.count(), 11);
        assert!(client.get("ada/long", None).await.unwrap().kvs()[0].value() == long);
        let mut events = 0;
        while events < 11 {
            let answer = watched.message().await.unwrap().unwrap();
            assert!(answer.events().iter().all(|event| event.event_type() == EventType::Put));
            events += answer.events().len();
        }
        match client.get("secrets", None).await.unwrap_err() {
            Error::GRpcStatus(status) => assert_eq!(status.code(), Code::PermissionDenied),
            other => panic!("{other}"),
        }
        assert_eq!(server.metrics().accepted, 1, "all that was on one connection");
        drop((client, watched));
        server.shutdown(Duration::MAX).await;
        proxy.end(Duration::MAX).await;
    });
}

/// Returns a channel of tonic over the only connection, whose calls carry the token.
async fn channel(raw: Raw, token: &str) -> etcd_client::Channel {
    let raw = Arc::new(Mutex::new(Some(TokioIo::new(raw))));
    let connector = tower::service_fn(move |_| {
        let taken = raw.lock().unwrap().take().ok_or_else(|| io::Error::from(io::ErrorKind::NotConnected));
        ready(taken)
    });
    let channel = Endpoint::from_static("http://etcd").connect_with_connector(connector).await.unwrap();
    let token: HeaderValue = token.parse().unwrap();
    let with_token = channel.map_err(BoxError::from).map_request(move |mut request: Request<_>| {
        request.headers_mut().insert("token", token.clone());
        request
    });
    etcd_client::Channel::Custom(BoxCloneSyncService::new(with_token))
}

const PASSWORD: &str = "engine";
