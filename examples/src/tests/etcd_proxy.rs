//! The etcd proxy with a real etcd, and with the client that frisbee-rpc-build generates from the proto files of etcd.

use std::time::Duration;

use examples::gate::{
    Limits,
    etcd::{self, Etcd, proto::etcdserverpb as pb},
};
use frpc::{Address, Channel, Code};
use frpc_http::Client;
use futures_util::{StreamExt, stream};
use pb::{
    auth_client::AuthClient, kv_client::KvClient, lease_client::LeaseClient, watch_client::WatchClient,
    watch_request::RequestUnion,
};
use support::{EtcdServer, Identity, in_real_time};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
};

use super::gateway::{Gateway, PASSWORD, log_in, open};

#[test]
fn a_client_logs_in_and_calls_etcd_on_one_socket() {
    in_real_time(async {
        let Some(server) = EtcdServer::start().await else { return };
        let database = Address::Tcp(server.addr);
        add_users(&server).await;
        for identity in [None, Some(Identity::new())] {
            let gateway = Gateway::serve(Etcd, database.clone(), Limits::default(), identity).await;
            let gate = gateway.dial().await;
            let local_addr = gate.channel().connection().unwrap().local_addr().clone();
            assert_eq!(log_in(&gate).await.unwrap(), "ada");
            let opened = open(&gate, "etcd").await.unwrap();
            let raw = gate.into_raw().await.unwrap();
            assert_eq!(*raw.local_addr(), local_addr);

            let channel = etcd::channel(raw, opened).await.unwrap();
            let (kv, watch) = (KvClient::new(channel.clone()), WatchClient::new(channel.clone()));
            // A stream in both directions next to the calls.
            let create = pb::WatchCreateRequest { key: "ada/".into(), range_end: "ada0".into(), ..Default::default() };
            let create = pb::WatchRequest { request_union: Some(RequestUnion::CreateRequest(create)) };
            let requests = stream::once(async { create }).chain(stream::pending());
            let mut watched = watch.watch(requests).await.unwrap().into_inner();
            assert!(watched.next().await.unwrap().unwrap().created);

            let long = vec![7; 1_000_000];
            let puts = (0..100_u8).map(|key| {
                let (kv, long) = (&kv, &long);
                let value = if key == 0 { long.clone() } else { vec![key] };
                let put = pb::PutRequest { key: [b"ada/", &[key][..]].concat(), value, ..Default::default() };
                async move { kv.put(put).await.unwrap() }
            });
            futures_util::future::join_all(puts).await;
            let mut events = 0;
            while events < 100 {
                events += watched.next().await.unwrap().unwrap().events.len();
            }
            let range = pb::RangeRequest { key: "ada/".into(), range_end: "ada0".into(), ..Default::default() };
            let found = kv.range(range.clone()).await.unwrap().into_inner();
            assert_eq!((found.count, found.kvs[0].value == long), (100, true));
            // New in etcd 3.7: the same range, in several answers.
            let mut parts = kv.range_stream(range).await.unwrap().into_inner();
            let mut streamed = 0;
            while let Some(part) = parts.next().await {
                streamed += part.unwrap().range_response.map_or(0, |range| range.kvs.len());
            }
            assert_eq!(streamed, 100);
            let lease = LeaseClient::new(channel.clone());
            let granted = lease.lease_grant(pb::LeaseGrantRequest { ttl: 60, id: 0 }).await.unwrap().into_inner();
            assert_eq!(granted.ttl, 60);
            assert_eq!(gateway.server.metrics().accepted, 1, "all that was on one connection");

            // The rights are those of the user in etcd, and the token is what proves it.
            let secret = pb::RangeRequest { key: "secrets".into(), ..Default::default() };
            let refused = kv.range(secret.clone()).await.unwrap_err();
            assert_eq!(refused.code(), Code::PermissionDenied, "{refused}");
            let gate = gateway.dial().await;
            log_in(&gate).await.unwrap();
            open(&gate, "etcd").await.unwrap();
            let without = Client::new().socket(gate.into_raw().await.unwrap());
            let without = Channel::builder().transport(without).connect("grpc://etcd").await.unwrap();
            let refused = KvClient::new(without).range(secret).await.unwrap_err();
            assert_eq!(refused.code(), Code::InvalidArgument, "{refused}");

            // The end of the session is that of the channel.
            gateway.end(Duration::ZERO).await;
            while watched.next().await.is_some_and(|event| event.is_ok()) {}
            let put = pb::PutRequest { key: "ada/".into(), ..Default::default() };
            let lost = kv.put(put).await.unwrap_err();
            assert_eq!(lost.code(), Code::Unavailable, "{lost}");
            assert!(lost.to_string().contains("the only connection of this client has ended"), "{lost}");
        }
    });
}

#[test]
fn etcd_without_login_is_refused_with_advice() {
    in_real_time(async {
        let gateway = Gateway::serve(Etcd, "tcp://127.0.0.1:1".parse().unwrap(), Limits::default(), None).await;
        let address = gateway.server.local_addr().socket_addr().unwrap();
        let mut socket = TcpStream::connect(address).await.unwrap();
        socket.write_all(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n").await.unwrap();
        socket.shutdown().await.unwrap();
        let mut heard = Vec::new();
        socket.read_to_end(&mut heard).await.unwrap();
        assert!(heard.ends_with(b"authenticate by calls of gate.Gate before you speak to the database here"));
    });
}

#[test]
fn a_session_of_etcd_begins_with_http2() {
    in_real_time(async {
        let Some(server) = EtcdServer::start().await else { return };
        add_users(&server).await;
        let gateway = Gateway::serve(Etcd, Address::Tcp(server.addr), Limits::default(), None).await;
        let mut raw = gateway.opened("etcd").await;
        raw.write_all(b"GET /metrics HTTP/1.1\r\nhost: etcd\r\n\r\n").await.unwrap();
        // Closing with unread bytes may reset the connection instead of ending it.
        assert!(!matches!(raw.read(&mut [0]).await, Ok(1..)));
    });
}

/// Adds the user of the account, with a range of keys, and enables authentication.
async fn add_users(server: &EtcdServer) {
    let channel = Channel::builder().transport(Client::new()).connect(format!("grpc://{}", server.addr)).await.unwrap();
    let auth = AuthClient::new(channel);
    for (name, password) in [("root", "of all"), ("ada", PASSWORD)] {
        let user = pb::AuthUserAddRequest { name: name.into(), password: password.into(), ..Default::default() };
        auth.user_add(user).await.unwrap();
        auth.role_add(pb::AuthRoleAddRequest { name: name.into() }).await.unwrap();
        auth.user_grant_role(pb::AuthUserGrantRoleRequest { user: name.into(), role: name.into() }).await.unwrap();
    }
    let perm = etcd::proto::authpb::Permission { perm_type: 2, key: "ada/".into(), range_end: "ada0".into() };
    let grant = pb::AuthRoleGrantPermissionRequest { name: "ada".into(), perm: Some(perm) };
    auth.role_grant_permission(grant).await.unwrap();
    auth.auth_enable(pb::AuthEnableRequest {}).await.unwrap();
}
