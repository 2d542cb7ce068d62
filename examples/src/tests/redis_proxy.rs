//! The Redis proxy with a real Redis and the crate `redis`.

#![cfg(unix)]

use std::time::Duration;

use examples::gate::{Limits, redis as gate};
use frpc::{Address, Code, Raw};
use redis::{AsyncCommands, AsyncConnectionConfig, RedisConnectionInfo, RedisResult, aio::MultiplexedConnection, cmd};
use support::{Identity, RedisServer, in_real_time};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
    task::JoinHandle,
};

use super::gateway::{Gateway, log_in, open};

#[test]
fn a_client_logs_in_and_speaks_redis_on_one_socket() {
    in_real_time(async {
        let Some(redis) = RedisServer::start(&USERS).await else { return };
        for identity in [None, Some(Identity::new())] {
            let gateway = serve(&redis, identity).await;
            let gate = gateway.dial().await;
            let local_addr = gate.channel().connection().unwrap().local_addr().clone();
            assert_eq!(log_in(&gate).await.unwrap(), "ada");
            open(&gate, "redis").await.unwrap();
            let raw = gate.into_raw().await.unwrap();
            assert_eq!(*raw.local_addr(), local_addr);

            let (mut client, session) = speak(raw).await;
            assert_eq!(cmd("ACL").arg("WHOAMI").query_async::<String>(&mut client).await.unwrap(), "ada");
            let long = "frisbee".repeat(1_000_000);
            let () = client.set("ada:long", &long).await.unwrap();
            assert!(client.get::<_, String>("ada:long").await.unwrap() == long, "far more than any buffer on the way");
            let () = client.del("ada:count").await.unwrap();
            let counts = (0..100).map(|_| {
                let mut client = client.clone();
                async move { client.incr::<_, _, i64>("ada:count", 1).await.unwrap() }
            });
            let counts = futures_util::future::join_all(counts).await;
            assert_eq!(counts.iter().sum::<i64>(), 5050, "all of them at once");
            drop(client);
            session.await.unwrap();
            assert_eq!(gateway.server.metrics().accepted, 1);
            gateway.end(Duration::MAX).await;
        }
    });
}

#[test]
fn the_rights_are_those_of_the_user_in_redis() {
    in_real_time(async {
        let Some(redis) = RedisServer::start(&USERS).await else { return };
        let gateway = serve(&redis, None).await;
        let (mut client, _session) = speak(gateway.opened("redis").await).await;
        let refused = client.get::<_, String>("secrets").await.unwrap_err();
        assert_eq!(refused.code(), Some("NOPERM"), "{refused}");
        // The command makes the connection one of the default user, who is off.
        let _: RedisResult<String> = cmd("RESET").query_async(&mut client).await;
        let refused = client.get::<_, String>("ada:long").await.unwrap_err();
        assert_eq!(refused.code(), Some("NOAUTH"), "{refused}");
    });
}

#[test]
fn a_user_unknown_to_redis_keeps_its_connection_for_calls() {
    in_real_time(async {
        let Some(redis) = RedisServer::start(&["default off"]).await else { return };
        let gateway = serve(&redis, None).await;
        let gate = gateway.dial().await;
        log_in(&gate).await.unwrap();
        for _ in 0..2 {
            let refused = open(&gate, "redis").await.unwrap_err();
            let message = "Redis does not accept the proxy as ada";
            assert_eq!((refused.code(), refused.message()), (Code::Internal, message));
        }
    });
}

#[test]
fn redis_without_login_is_refused_with_advice() {
    in_real_time(async {
        // Redis is not asked.
        let gateway = Gateway::serve(gate::Redis, Address::Unix("/nowhere".into()), Limits::default(), None).await;
        let address = gateway.server.local_addr().socket_addr().unwrap();
        let mut socket = TcpStream::connect(address).await.unwrap();
        socket.write_all(b"*1\r\n$4\r\nPING\r\n").await.unwrap();
        let mut heard = String::new();
        socket.read_to_string(&mut heard).await.unwrap();
        assert_eq!(heard, "-NOAUTH authenticate by calls of gate.Gate before you speak to the database here\r\n");
    });
}

async fn serve(redis: &RedisServer, identity: Option<Identity>) -> Gateway<gate::Redis> {
    Gateway::serve(gate::Redis, Address::Unix(redis.socket()), Limits::default(), identity).await
}

async fn speak(raw: Raw) -> (MultiplexedConnection, JoinHandle<()>) {
    // Half a second is too short for long values on a busy machine.
    let (info, config) = (RedisConnectionInfo::default(), AsyncConnectionConfig::default().set_response_timeout(None));
    let (client, session) = MultiplexedConnection::new_with_config(&info, raw, config).await.unwrap();
    (client, tokio::spawn(session))
}

const USERS: [&str; 2] = ["default off", "ada on >engine ~ada:* +@all -@admin +acl|whoami"];
